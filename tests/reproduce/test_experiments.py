"""Experiments of claims: what they run, what they write, what they read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedrelay.errors import RunFolderError
from fedrelay.grouping.distances import DISTANCES
from fedrelay.robustness.gan_attack_run import GanAttackResult, GanObservation
from fedrelay_reproduce.claim import ClaimExperiment
from fedrelay_reproduce.experiments import ClaimRun, ComparisonRuns, open_runs
from fedrelay_reproduce.experiments.comparison import measures
from fedrelay_reproduce.experiments.groups import closeness
from fedrelay_reproduce.experiments.image_recovery import distances

TINY = {
    "methods": ["fedavg", {"method": "fedseq+feddyn", "label": "Seq + Dyn"}],
    "data": {"clients": 8, "samples": 160, "test_samples": 50, "alpha": 0},
    "grouping": {"max_clients": 4, "min_samples": 80},
    "rounds": 2,
    "fraction": 0.5,
}


def make(folder: Path, settings: dict, kind: str = "comparison", seeds: tuple[int, ...] = (1,)):
    return open_runs(ClaimExperiment("03/tiny", settings, kind=kind), "small", seeds, folder)


def test_a_comparison_is_run_run_by_run_and_read(tmp_path):
    compared = make(tmp_path, TINY)
    assert compared.names == ("fedavg", "Seq + Dyn")
    assert compared.folder == tmp_path / "small" / "03" / "tiny"
    assert compared.runs == [ClaimRun(compared, 1, "fedavg"), ClaimRun(compared, 1, "Seq + Dyn")]
    assert [run.title for run in compared.runs] == ["03/tiny fedavg, seed 1", "03/tiny Seq + Dyn, seed 1"]
    assert compared.measured("fedavg", 1).problem == "seed 1 was not run to its end"
    compared.open()
    compared.execute(compared.runs[0])
    assert [run.done for run in compared.runs] == [True, False]
    found = compared.measured("fedavg", 1)
    assert found.transfers.soon == 2 * 2 * 4
    assert found.client_updates.soon == 2 * 4
    assert found.accuracy.soon == found.curve[-1]["accuracy"]
    assert found.rounds == 2


def test_a_line_that_is_just_being_written_does_no_harm(tmp_path):
    compared = make(tmp_path, TINY)
    run = compared.path("fedavg", 1)
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text('{"round": 1, "accuracy": 0.5}\n{"round": 2, "accu')
    assert compared.measured("fedavg", 1).problem == "seed 1 was not run to its end"
    (run / "result.json").write_text('{"transfers": {"s2c": 1}}')
    assert compared.measured("fedavg", 1).curve == [{"round": 1, "accuracy": 0.5}]


def test_every_run_takes_one_core(tmp_path):
    compared = make(tmp_path, TINY)
    assert isinstance(compared, ComparisonRuns)
    assert compared.comparison.engine.workers == 1


def test_more_seeds_are_welcome_other_settings_are_not(tmp_path):
    make(tmp_path, {**TINY, "rounds": 9}).open()
    make(tmp_path, TINY).open()  # there was nothing to lose
    (tmp_path / "small" / "03" / "tiny" / "fedavg" / "seed-1").mkdir(parents=True)
    make(tmp_path, TINY, seeds=(1, 2)).open()
    make(tmp_path, TINY).open()
    assert "seeds:\n- 1\n- 2\n" in (tmp_path / "small" / "03" / "tiny" / "comparison.yaml").read_text()
    with pytest.raises(RunFolderError, match="holds runs with other settings; remove it, or choose another --out"):
        make(tmp_path, {**TINY, "rounds": 3}).open()


def test_a_run_that_diverges_is_done_and_says_so(tmp_path):
    compared = make(tmp_path, {**TINY, "methods": ["fedavg"], "grouping": {}, "train": {"lr": 1e9}})
    compared.open()
    compared.execute(compared.runs[0])
    assert compared.runs[0].done
    assert compared.measured("fedavg", 1).problem == "diverged with seed 1"


def test_a_run_in_which_nobody_answers_is_done_and_says_so(tmp_path):
    faults = [{"what": "dropout", "rate": 1.0}]
    compared = make(tmp_path, {**TINY, "methods": ["fedavg"], "grouping": {}, "faults": faults})
    compared.open()
    compared.execute(compared.runs[0])
    assert compared.runs[0].done
    assert compared.measured("fedavg", 1).problem == "learnt nothing with seed 1"
    assert "no client update was accepted" in next(compared.folder.glob("*/seed-1-untrained.txt")).read_text()


def test_groups_are_measured(tmp_path):
    settings = {
        "groupings": {
            "random": {"min_samples": 80},
            "by share": {"assign": "greedy", "max_clients": 10, "min_samples": 999},
        },
        "data": {"clients": 20, "alpha": 0},
    }
    found = make(tmp_path, settings, "groups")
    assert found.names == ("clients", "random", "by share")
    found.open()
    found.execute(found.runs[0])
    assert found.runs[0].done
    best = found.measured("by share", 1)
    assert best.covered_classes.soon == 1.0
    assert best.groups.soon == 2
    assert found.measured("clients", 1).covered_classes.soon == pytest.approx(0.1)
    assert best.same_class.soon < best.other_class.soon
    with pytest.raises(RunFolderError, match="holds runs with other settings"):
        make(tmp_path, {**settings, "data": {"clients": 30, "alpha": 0}}, "groups").open()
    (found.folder / "seed-1.json").write_text("{}")
    with pytest.raises(RunFolderError, match="is damaged"):
        found.measured("by share", 1)


def test_costs_are_counted_from_plans(tmp_path):
    found = make(tmp_path, {**TINY, "methods": ["fedavg", "scaffold"], "grouping": {}}, "transfers")
    assert found.runs == [ClaimRun(found, 1)]
    found.open()
    found.execute(found.runs[0])
    assert found.measured("fedavg", 1).transfers.soon == 8
    assert found.measured("scaffold", 1).transfers.soon == 16
    assert found.measured("scaffold", 1).hops.soon == 4


@pytest.mark.slow
def test_an_attacker_is_measured_at_equal_accuracy(tmp_path):
    settings = {**TINY, "methods": ["fedavg"], "grouping": {}, "fraction": 1, "attacker": {"client": 1, "epochs": 1}}
    found = make(tmp_path, settings, "image-recovery")
    assert found.names == ("fedavg",)
    found.open()
    found.execute(found.runs[0])
    assert found.measured("fedavg", 1).visits.soon == 2
    assert found.measured("fedavg", 1).fid_80.missing == "fedavg has no fid_80"


def test_a_model_far_from_a_level_says_nothing_there():
    """One hop with a model of 84 % is not three measurements."""
    attack = GanAttackResult(1, (GanObservation(1, None, 0.84, None, 653.8),), None, None)
    assert distances(attack) == {
        "visits": 1, "fid_60": None, "model_60": None, "visits_60": None, "fid_70": None, "model_70": None,
        "visits_70": None, "fid_80": 653.8, "model_80": 0.84, "visits_80": 1,
    }  # fmt: skip


def test_closeness_by_exact_numbers():
    vectors = np.array([[0.0], [1.0], [10.0]])
    found = closeness(vectors, np.array([0, 0, 1]), DISTANCES["euclidean"])
    assert found == {"same_class": 1.0, "other_class": 9.5}
    assert closeness(vectors[:1], np.array([0]), DISTANCES["euclidean"]) == {"same_class": None, "other_class": None}


def test_measures_of_a_run_by_exact_numbers():
    curve = [{"round": t, "accuracy": accuracy} for t, accuracy in enumerate([0.1, 0.9, 0.4, 0.5, 0.25], start=1)]
    found = measures({"accuracy": 0.25, "transfers": {"s2c": 3, "c2s": 4, "c2c": 5}}, curve)
    assert found["transfers"] == 12
    assert found["accuracy_best"] == 0.9
    assert found["oscillation"] == pytest.approx((0.1 + 0.25) / 2)  # the second half begins with .4
    assert found["loss"] is None
    assert json.loads(json.dumps(found)) == found


def test_missing_data_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDRELAY_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert make(tmp_path, TINY).missing_data is None
    settings = {**TINY, "data": {"name": "femnist", "clients": 8}}
    assert make(tmp_path, settings).missing_data == "femnist"
