"""Code of the user's own: what is wrong with it is said in one line."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
from torch import nn

import fedrelay as fr
from fedrelay.experiment.method_catalogue import METHODS
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
        (3, "model: must be a model of the zoo, 'module:function', a mapping of settings or an nn.Module, got int"),
        (nn.ReLU, "or an nn.Module, got the class ReLU; call it"),
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


def test_only_code_with_a_file_has_a_digest(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "my_notebook", ModuleType("my_notebook"))
    assert source_digests(["my_notebook", "my_nowhere"]) == {}
