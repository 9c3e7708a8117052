"""The public functions: what Python users call and see."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest
import torch

import fedrelay as fr
from fedrelay.cli import main
from fedrelay.experiment.keyword_types import KeywordDataSettings, KeywordSettings
from fedrelay.experiment.spec import SECTIONS, CommonSettings, shortcuts

pytestmark = pytest.mark.usefixtures("no_drawing")


def test_typed_settings_are_those_of_the_spec():
    named = {"data", "model", "clients", "partition", "alpha", "rounds", "fraction", "epochs", "batch_size", "lr"}
    named |= {"engine", "workers", "out", "plugins", "task"}
    known = {*CommonSettings.model_fields, *shortcuts()}
    assert set(get_type_hints(KeywordSettings)) == known - named
    assert set(get_type_hints(KeywordDataSettings)) == set(SECTIONS["data"].model_fields) - named - {"name"}
    for function in (fr.run, fr.compare):
        assert named < set(inspect.signature(function).parameters)


@pytest.mark.slow
def test_a_type_checker_refuses_what_does_not_exist(tmp_path):
    script = tmp_path / "wrong.py"
    script.write_text(
        "import fedrelay as fr\n"
        "fr.run('fedseq', lr=0.1, clip=1.0, guard={'norm': 2.0})\n"
        "fr.run('fedseq', lrr=3)\n"
        "fr.run('fedseq', rounds='many')\n"
        "fr.run('fedseq', clip='tight')\n"
        "fr.compare(['fedseq'], seeds=1)\n"
    )
    command = [sys.executable, "-m", "mypy", script]
    found = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1]).stdout
    assert [int(line.split(":")[1]) for line in found.splitlines() if ": error:" in line] == [3, 4, 5, 6]


def test_unknown_settings_get_one_message():
    with pytest.raises(fr.SpecError, match=r"lrr: unknown key 'lrr' \(did you mean 'lr'\?\)"):
        fr.run("fedseq", lrr=3)


def test_results_are_short_to_look_at():
    outcome = fr.compare(["fedavg"], clients=4, rounds=1, workers=1, seeds=[1, 2])
    result = outcome["fedavg"].results[0]
    assert repr(result) == (
        f"Result(method='fedavg', data='digits', accuracy={result.accuracy:.4f}, rounds=1/1, client_updates=1, "
        f"transfers=2, bytes={result.bytes})"
    )
    assert "<td>accuracy</td>" in result._repr_html_()
    assert len(repr(outcome)) < 200
    assert "<td>fedavg</td>" in outcome._repr_html_()


def test_federations_are_short_to_look_at():
    x, y = torch.zeros(10, 3), torch.arange(10) % 2
    own = fr.federate(x, y, x[:4], y[:4], clients=2, partition="iid")
    assert repr(own).endswith("2 clients, 10 train and 4 test samples, 2 classes)")
    assert repr(fr.load_data("digits", clients=3, public=1)).startswith(
        "FederationWithPublicSamples('digits': 3 clients"
    )


def test_names_in_a_notebook_are_escaped():
    outcome = fr.compare([{"method": "fedavg", "label": "<b>"}], clients=4, rounds=1, workers=1)
    assert "<td>&lt;b&gt;</td>" in outcome._repr_html_()


def test_the_version_is_that_of_the_package():
    assert fr.__version__.count(".") >= 1


def test_a_comparison_writes_what_the_command_writes(tmp_path):
    settings = {"clients": 4, "rounds": 1, "workers": 1}
    outcome = fr.compare(["fedavg"], **settings, out=tmp_path / "python")
    assert (
        main(
            ["compare", "fedavg", "--clients", "4", "--rounds", "1", "--workers", "1", "-q", "--out", f"{tmp_path}/cli"]
        )
        == 0
    )
    names = {path.relative_to(tmp_path / "cli") for path in (tmp_path / "cli").rglob("*")}
    assert {path.relative_to(tmp_path / "python") for path in (tmp_path / "python").rglob("*")} == names
    assert fr.compare(["fedavg"], **settings, out=tmp_path / "python")["fedavg"].results[0].accuracy == (
        outcome["fedavg"].results[0].accuracy
    )


def test_progress_is_shown_where_wanted(capsys):
    fr.run("fedavg", clients=4, rounds=2, workers=1)
    assert capsys.readouterr() == ("", "")  # not a terminal
    fr.run("fedavg", clients=4, rounds=2, workers=1, progress=True)
    assert "fedavg: round 2/2, accuracy" in capsys.readouterr().err
    fr.compare(["fedavg"], clients=4, rounds=1, workers=1, seeds=[1, 2], progress=True)
    assert "fedavg, seed 2: round 1/1" in capsys.readouterr().err


def test_a_callback_needs_only_the_hooks_it_uses():
    class Rounds:
        def __init__(self):
            self.seen = []

        def on_round_end(self, context):
            self.seen.append(context.round)

    rounds = Rounds()
    fr.run("fedavg", clients=4, rounds=2, workers=1, callbacks=rounds)
    assert rounds.seen == [1, 2]
    with pytest.raises(fr.SpecError, match="has none of the hooks"):
        fr.run("fedavg", clients=4, rounds=2, callbacks=object())
