"""The page about bad weather: its arithmetic, its yardsticks, and how it shows runs that were lost."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

import fedrelay as fr


@pytest.fixture(scope="module")
def faults() -> ModuleType:
    """The command itself."""
    path = Path(__file__).parents[2] / "benchmarks" / "faults.py"
    spec = importlib.util.spec_from_file_location("faults_command", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outcome(faults, **accuracies):
    """One seed; accuracies by weather, 0.8 where nothing is said, None where the run diverges."""

    def contender(name):
        found = accuracies.get(name, 0.8)
        if found is None:
            return fr.MethodResults(name, "fedseq", (), diverged=("seed 1: lost",))
        return fr.MethodResults(name, "fedseq", (SimpleNamespace(accuracy_last=found, weights=torch.ones(2)),))

    names = [each for name in ("clean", *faults.FAULTS) for each in (name, f"{name}, guarded")]
    return fr.ComparisonResult(None, tuple(map(contender, names)))


def test_every_weather_comes_with_and_without_the_guard_which_is_the_same_everywhere(faults):
    entrants = list(faults.entrants("fedseq"))
    assert len(entrants) == 2 * (1 + 14)
    assert [each.get("guard") for each in entrants] == [None, faults.DEFENCE] * 15
    assert len({each["label"] for each in entrants}) == 30


def test_yardsticks_are_held_against_the_clean_accuracy(faults):
    found = {
        "fedseq": outcome(faults, **{faults.DROPOUT: 0.77, faults.TURNED: 0.4, f"{faults.TURNED}, guarded": 0.74}),
        "fedavg": outcome(faults, **{faults.TURNED: None, f"{faults.TURNED}, guarded": 0.71}),
    }
    dropout, turned, long, lost, fair = faults.findings(found)
    assert "keeps 96.2 % of its clean accuracy; the yardstick of 95 % holds." in dropout
    assert "methods keep 0.0 to 50.0 %" in turned
    assert "holds for 1 of 2 methods, not for fedavg (88.8 %)." in turned
    assert "holds for 2 of 2 methods." in long
    assert "Of 30 runs with the guard 0 ended early, and 0 of the merged models" in lost
    assert fair.endswith("fedseq 100.0 %, fedavg 100.0 %.")


def test_runs_that_are_lost_are_told(faults, tmp_path):
    found = {"fedseq": outcome(faults, **{"5 % zeroed, guarded": None, faults.DROPOUT: 0.7})}
    dropout, *_, lost, _ = faults.findings(found)
    assert "keeps 87.5 % of its clean accuracy; the yardstick of 95 % does not hold." in dropout
    assert "Of 15 runs with the guard 1 ended early" in lost
    text = faults.page(found, 40, [1], "benchmarks/faults.py")
    assert "| 5 % zeroed | 80.0 → diverged |" in text
    faults.draw(found, tmp_path / "weather.png")
    assert (tmp_path / "weather.png").stat().st_size > 5000
