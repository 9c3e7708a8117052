"""Code of the user's own: what is wrong with it is said in one line."""

from __future__ import annotations

import json
import re
import sys
from functools import partial
from types import ModuleType

import pytest
from tests.conftest import make_federation
from torch import nn

import fedrelay as fr
from fedrelay.experiment.method_catalogue import METHODS, MethodEntry
from fedrelay.runtime.versions import source_digests

SMALL = {"clients": 4, "rounds": 1, "workers": 1}
TERM = """
import fedrelay as fr
from my_lab.helpers import FACTOR


class MyTerm(fr.Term):
    factor: float = FACTOR


fr.register("my-term", summary="", terms={"mine": MyTerm})
"""
NETS = """
from math import prod

from torch import nn


def make(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(prod(shape), classes))
"""


def quitting():
    raise SystemExit(3)


@pytest.fixture
def modules(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_nets.py").write_text(
        "from torch import nn\n\nWIDTH = 3\n\n\ndef make():\n    return nn.Linear(1, 1)\n"
    )
    (tmp_path / "my_broken.py").write_text("def make():\n    pass\n\n\n1 / 0\n")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("my_nets:", "'my_nets:': must be MODULE:FUNCTION, such as mylab.nets:make_net"),
        (":make", "':make': must be MODULE:FUNCTION"),
        ("my_nets.py:make", "must be MODULE:FUNCTION"),
        ("my_nets:nope", "my_nets:nope: my_nets has no function 'nope'; it has make"),
        ("my_nets:WIDTH", "my_nets has no function 'WIDTH'; it has make"),
        ("my_nope:f", "my_nope:f: cannot import my_nope (ModuleNotFoundError: No module named 'my_nope'); install it"),
        ("my_broken:make", "my_broken failed when it was imported: ZeroDivisionError: division by zero (line 5 of"),
        (3, "mapping of settings, an nn.Module or a function that builds one, got int"),
        (nn.ReLU, "model: must return outputs of shape (2, 10)"),
        (quitting, "model: quitting(): SystemExit: 3 (line"),
        (lambda: 3, "model: lambda(): must return a torch.nn.Module, got int"),
        (lambda shape, outputs: (shape, outputs), "model: lambda((1, 8, 8), 10): must return a torch.nn.Module, got"),
        (lambda width: nn.Linear(width, 1), "model: lambda(): TypeError: "),
        (partial(int, "x"), "model: partial(): ValueError: invalid literal for int()"),
    ],
)
def test_a_model_that_cannot_be_found_is_refused_in_one_line(modules, model, message):
    with pytest.raises(fr.SpecError) as refused:
        fr.run("fedavg", model=model, **SMALL)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_resume_warns_if_the_source_of_a_plug_in_or_a_model_changed(tmp_path, monkeypatch, caplog):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_lab").mkdir()
    helpers, nets, run = tmp_path / "my_lab" / "helpers.py", tmp_path / "my_linear_nets.py", tmp_path / "run"
    helpers.write_text("FACTOR = 0.5\n")
    (tmp_path / "my_lab" / "terms.py").write_text(TERM)
    nets.write_text(NETS)
    try:
        fr.run("my-term", plugins=["my_lab.terms"], model="my_linear_nets:make", out=run, **SMALL)
        assert sorted(json.loads((run / "run.json").read_text())["sources"]) == ["my_lab", "my_linear_nets"]
        fr.resume(run)
        assert caplog.messages == []
        helpers.write_text("FACTOR = 0.25\n")
        fr.resume(run)
        nets.write_text(NETS + "\n")
        fr.resume(run)
    finally:
        METHODS.pop("my-term", None)
    end = "changed since the run was started; results may differ"
    changed = ["my_lab", "my_lab and my_linear_nets"]
    assert caplog.messages == [f"{run}: the source of {each} {end}" for each in changed]


class Quits(fr.Term):
    how: str = "SystemExit"

    def add_gradient(self, gradient, theta, context):
        raise {"SystemExit": SystemExit(3), "KeyboardInterrupt": KeyboardInterrupt()}[self.how]


class QuittingNet(nn.Linear):
    def forward(self, x):
        if self.training:
            raise SystemExit(3)
        return super().forward(x)


@pytest.mark.parametrize("workers", [1, 2])
def test_user_code_that_ends_the_program_ends_the_run_with_a_message(monkeypatch, capfd, workers):
    monkeypatch.setitem(METHODS, "quits", MethodEntry("", terms={"quits": Quits}))
    settings = {"clients": 4, "rounds": 1, "workers": workers, "lanes": 1, "fraction": 1.0, "progress": False}
    with pytest.raises(fr.SpecError, match="term 'Quits', add_gradient: SystemExit: 3"):
        fr.run("quits", **settings)
    with pytest.raises(KeyboardInterrupt):  # as if the user had asked for it, with any number of workers
        fr.run("quits", terms={"quits": {"how": "KeyboardInterrupt"}}, **settings)
    with pytest.raises(fr.EngineError, match=r"training on client \d failed: SystemExit: 3"):
        fr.run("fedavg", data=make_federation([4] * 4), model=QuittingNet(4, 3), rounds=1, workers=workers)
    assert "Traceback" not in capfd.readouterr().err


class Late(fr.Routing):
    """Fails in round 3."""

    def plan(self, context, round):
        return fr.RoundPlan(round, (fr.Route((["first", "second"].index("third") if round == 3 else 0,)),))


def test_a_failure_names_the_round_and_how_to_continue(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "quits", MethodEntry("", terms={"quits": Quits}))
    monkeypatch.setitem(METHODS, "late", MethodEntry("", route=Late))
    run, settings = tmp_path / "run", {**SMALL, "rounds": 4}
    with pytest.raises(fr.SpecError) as ended:
        fr.run("late", out=run, **settings)
    message = "round 3: route 'Late', plan: ValueError: 'third' is not in list"
    assert str(ended.value).startswith(f"{message} (line ")
    assert str(ended.value).endswith(f"; continue from the last checkpoint with: fedrelay resume {run}")
    assert isinstance(ended.value.__cause__, ValueError)
    with pytest.raises(fr.SpecError) as ended:
        fr.run("quits", out=tmp_path / "other", lanes=1, fraction=0.25, **settings)
    assert re.match(r"round 1: training on client \d: term 'Quits', add_gradient: SystemExit: 3", str(ended.value))
    assert str(ended.value).endswith(f"; no round was done; try again with: fedrelay resume {tmp_path / 'other'}")
    with pytest.raises(fr.SpecError) as ended:
        fr.compare(["fedavg", {"method": "late", "label": "too late"}], out=tmp_path / "both", seeds=[7], **settings)
    assert str(ended.value).startswith(f"too late, seed 7: {message}")
    assert str(ended.value).endswith(f"fedrelay resume {tmp_path / 'both' / 'too late' / 'seed-7'}")


def test_a_module_that_a_plug_in_lacks_is_not_taken_for_the_plug_in(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "needy.py").write_text("\nimport my_lacking_module\n")
    message = r"plugins: my_package.needy failed when it was imported: ModuleNotFoundError: No module named "
    with pytest.raises(fr.SpecError, match=rf"{message}'my_lacking_module' \(line 2 of .*needy\.py\)$"):
        fr.run("fedavg", plugins=["my_package.needy"])
    for name in ("my_package.nope", "my_nope.pairs"):
        with pytest.raises(fr.SpecError, match=rf"plugins: cannot import {name} \(.*\); install it, or run in"):
            fr.run("fedavg", plugins=[name])


PULL = """
from typing import ClassVar
import fedrelay as fr


class {kind}(fr.Term):
    tensors: ClassVar = (fr.ClientState("{state}"),)
    strength: float = {strength}
    {more}

    def add_gradient(self, gradient, theta, context):
        gradient.add_(theta, alpha=self.strength)


fr.register("my-pull", summary="", terms={{"pull": {kind}}})
"""


class Dies(fr.Callback):
    def on_round_end(self, context):
        raise KeyboardInterrupt("died")


@pytest.fixture
def changed_plugin(tmp_path, monkeypatch):
    """Start a run that dies after round 1, then change the plug-in; returns the folder of the run."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def load(**changes):
        source = {"kind": "Pull", "state": "pull", "strength": 0.01, "more": "", **changes}
        (tmp_path / "my_pull.py").write_text(PULL.format(**source))
        sys.modules.pop("my_pull", None)
        METHODS.pop("my-pull", None)

    def change(**changes):
        load()
        wanted = {**SMALL, "rounds": 2, "checkpoint": {"seconds": 0}}
        with pytest.raises(KeyboardInterrupt, match="died"):
            fr.run("my-pull+fedprox", plugins=["my_pull"], out=tmp_path / "run", callbacks=Dies(), **wanted)
        load(**changes)
        return tmp_path / "run"

    yield change
    METHODS.pop("my-pull", None)
    sys.modules.pop("my_pull", None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strength": 0.5}, "terms.pull.strength was 0.01 when the run was started and is 0.5 now; continue with "),
        ({"kind": "Push"}, "terms.pull was 'Pull' when the run was started and is 'Push' now"),
        (
            {"state": "push"},
            "terms.pull.tensors was [\"ClientState(name='pull', additive=True, scalar=False)\"] when the run was "
            "started and is [\"ClientState(name='push', additive=True, scalar=False)\"] now",
        ),
    ],
)
def test_a_run_does_not_continue_with_other_options(changed_plugin, changes, message):
    run = changed_plugin(**changes)
    with pytest.raises(fr.RunFolderError) as refused:
        fr.resume(run)
    assert str(refused.value).startswith(f"{run}: {message}")
    assert "\n" not in str(refused.value)


def test_a_run_continues_where_an_option_was_added(changed_plugin):
    run = changed_plugin(more="more: float = 1.0")
    assert fr.resume(run).complete
    options = json.loads((run / "run.json").read_text())["options"]
    assert options["terms.pull.strength"] == 0.01
    assert {options[place] for place in ("route", "merge", "terms.prox")} == {"Singletons", "Mean", "ProximalPenalty"}


def test_a_changed_source_is_noted_even_if_the_plug_in_fails_now(changed_plugin, caplog):
    run = changed_plugin(more="1 / 0")
    with pytest.raises(fr.SpecError, match="my_pull failed when it was imported: ZeroDivisionError"):
        fr.resume(run)
    assert caplog.messages == [f"{run}: the source of my_pull changed since the run was started; results may differ"]


def test_only_code_with_a_file_has_a_digest(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "my_notebook", ModuleType("my_notebook"))
    assert source_digests(["my_notebook", "my_nowhere"]) == {}


class Wide(nn.Module):
    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.layers(x)


def by_keyword(*, hidden=8):
    return Wide(hidden)


@pytest.mark.parametrize(
    ("model", "name"),
    [(Wide, "Wide"), (by_keyword, "by_keyword"), (lambda: Wide(), "lambda"), (partial(Wide, hidden=8), "partial")],
)
def test_a_function_that_cannot_take_two_arguments_gets_none(model, name):
    result = fr.run("fedavg", model=model, **SMALL)
    assert result.experiment.model.name == name
    assert len(result.weights) == 65 * 8 + 9 * 10


def test_a_function_by_name_may_have_options(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_options.py").write_text(
        "from torch import nn\n\n\ndef make(*, n=10):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, n))\n"
    )
    assert len(fr.run("fedavg", model="my_options:make", **SMALL).weights) == 650
