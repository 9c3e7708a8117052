"""The fault benchmark's page: its arithmetic, its targets, and how it shows runs that failed."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import fedrelay as fr


@pytest.fixture(scope="module")
def faults(load_benchmark):
    return load_benchmark("faults")


def outcome(faults, **accuracies):
    """One seed; accuracies by fault, 0.8 by default, None if the run diverges."""

    def entry(name):
        found = accuracies.get(name, 0.8)
        if found is None:
            return fr.MethodResults(name, "fedseq", (), diverged=("seed 1: lost",))
        return fr.MethodResults(name, "fedseq", (SimpleNamespace(accuracy_last=found, weights=torch.ones(2)),))

    names = [each for name in ("clean", *faults.FAULTS) for each in (name, f"{name}, guarded")]
    return fr.ComparisonResult(None, tuple(map(entry, names)))


def test_every_fault_runs_without_and_with_the_same_guard(faults):
    entries = list(faults.entries("fedseq"))
    assert len(entries) == 2 * (1 + 14)
    assert [each.get("guard") for each in entries] == [None, faults.DEFENCE] * 15
    assert len({each["label"] for each in entries}) == 30


def test_targets_are_shares_of_the_clean_accuracy(faults):
    found = {
        "fedseq": outcome(
            faults, **{faults.DROPOUT: 0.77, faults.SIGN_FLIP: 0.4, f"{faults.SIGN_FLIP}, guarded": 0.74}
        ),
        "fedavg": outcome(faults, **{faults.SIGN_FLIP: None, f"{faults.SIGN_FLIP}, guarded": 0.71}),
    }
    dropout, flipped, scaled, lost, cost = faults.findings(found)
    assert "keeps 96.2 % of its clean accuracy. The target of 95 % is met." in dropout
    assert "methods keep 0.0 to 50.0 %" in flipped
    assert "1 of 2 methods meet the target of 90 %; not met by fedavg (88.8 %)." in flipped
    assert "2 of 2 methods meet the target of 90 %." in scaled
    assert "0 of 30 runs with the guard ended early. 0 of the merged models" in lost
    assert cost.endswith("fedseq 100.0 %, fedavg 100.0 %.")


def test_failed_runs_are_shown(faults, tmp_path):
    found = {"fedseq": outcome(faults, **{"5 % zeroed, guarded": None, faults.DROPOUT: 0.7})}
    dropout, *_, lost, _ = faults.findings(found)
    assert "keeps 87.5 % of its clean accuracy. The target of 95 % is not met." in dropout
    assert "1 of 15 runs with the guard ended early" in lost
    text = faults.page(found, 40, [1], "benchmarks/faults.py")
    assert "| 5 % zeroed | 80.0 → diverged |" in text
    faults.draw(found, tmp_path / "faults.png")
    assert (tmp_path / "faults.png").stat().st_size > 5000
