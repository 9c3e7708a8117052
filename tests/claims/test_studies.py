"""Studies: what they run, what they leave behind, what they read."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedrelay.claims.claim import Resolved
from fedrelay.claims.studies import KINDS, CompareStudy, Piece, study
from fedrelay.claims.studies.base import identifier
from fedrelay.claims.studies.comparisons import measures
from fedrelay.claims.studies.groups import closeness
from fedrelay.claims.studies.spies import distances
from fedrelay.claims.subjects import Undecided
from fedrelay.errors import RunFolderError
from fedrelay.grouping.distances import DISTANCES
from fedrelay.robustness.gan_attack_run import GanAttackResult, GanObservation

TINY = {
    "methods": ["fedavg", {"method": "fedseq+feddyn", "label": "Seq + Dyn"}],
    "data": {"clients": 8, "samples": 160, "test_samples": 50, "alpha": 0},
    "grouping": {"max_clients": 4, "min_samples": 80},
    "rounds": 2,
    "fraction": 0.5,
}


def make(folder: Path, settings: dict, kind: str = "compare", seeds: tuple[int, ...] = (1,)):
    return study(Resolved(3, "tiny", kind, settings), seeds, folder)


def test_labels_become_names():
    found = [identifier(each) for each in ("fedseq+feddyn", "Seq + Dyn", "fedavg, 10 epochs", "2 loops")]
    assert found == ["fedseq_feddyn", "seq_dyn", "fedavg_10_epochs", "_2_loops"]


def test_a_comparison_is_run_piece_by_piece_and_read(tmp_path):
    compared = make(tmp_path, TINY)
    assert compared.subjects == ("fedavg", "seq_dyn")
    assert compared.label("seq_dyn") == "Seq + Dyn"
    assert compared.folder == tmp_path / "03" / "tiny"
    assert compared.pieces == [Piece(1, "fedavg"), Piece(1, "seq_dyn")]
    assert compared.subject("fedavg", 1).problem == "seed 1 was not run to its end"
    compared.open()
    compared.run(Piece(1, "fedavg"))
    assert [compared.done(piece) for piece in compared.pieces] == [True, False]
    found = compared.subject("fedavg", 1)
    assert found.measure("transfers") == 2 * 2 * 4
    assert found.measure("client_updates") == 2 * 4
    assert found.measure("accuracy") == found.curve[-1]["accuracy"]
    assert found.rounds == 2


def test_a_line_that_is_just_being_written_does_no_harm(tmp_path):
    compared = make(tmp_path, TINY)
    run = compared.path(Piece(1, "fedavg"))
    run.mkdir(parents=True)
    (run / "metrics.jsonl").write_text('{"round": 1, "accuracy": 0.5}\n{"round": 2, "accu')
    assert compared.subject("fedavg", 1).problem == "seed 1 was not run to its end"
    (run / "result.json").write_text('{"transfers": {"s2c": 1}}')
    assert compared.subject("fedavg", 1).curve == [{"round": 1, "accuracy": 0.5}]


def test_kinds_and_classes_have_the_same_names():
    assert all(made.__name__ == f"{kind.capitalize()}Study" for kind, made in KINDS.items())


def test_every_run_takes_one_core(tmp_path):
    compared = make(tmp_path, TINY)
    assert isinstance(compared, CompareStudy)
    assert compared.comparison.engine.workers == 1


def test_more_seeds_are_welcome_other_settings_are_not(tmp_path):
    make(tmp_path, {**TINY, "rounds": 9}).open()
    make(tmp_path, TINY).open()  # there was nothing to lose
    (tmp_path / "03" / "tiny" / "fedavg" / "seed-1").mkdir(parents=True)
    make(tmp_path, TINY, seeds=(1, 2)).open()
    make(tmp_path, TINY).open()
    assert "seeds:\n- 1\n- 2\n" in (tmp_path / "03" / "tiny" / "comparison.yaml").read_text()
    with pytest.raises(RunFolderError, match="holds runs with other settings; remove it, or choose another --out"):
        make(tmp_path, {**TINY, "rounds": 3}).open()


def test_a_run_that_diverges_is_done_and_says_so(tmp_path):
    compared = make(tmp_path, {**TINY, "methods": ["fedavg"], "grouping": {}, "train": {"lr": 1e9}})
    compared.open()
    compared.run(Piece(1, "fedavg"))
    assert compared.done(Piece(1, "fedavg"))
    assert compared.subject("fedavg", 1).problem == "diverged with seed 1"


def test_a_run_in_which_nobody_answers_is_done_and_says_so(tmp_path):
    faults = [{"what": "dropout", "rate": 1.0}]
    compared = make(tmp_path, {**TINY, "methods": ["fedavg"], "grouping": {}, "faults": faults})
    compared.open()
    compared.run(Piece(1, "fedavg"))
    assert compared.done(Piece(1, "fedavg"))
    assert compared.subject("fedavg", 1).problem == "learnt nothing with seed 1"
    assert "anybody's work was accepted" in next(compared.folder.glob("*/seed-1-fruitless.txt")).read_text()


def test_groups_are_measured(tmp_path):
    settings = {
        "ways": {
            "random": {"min_samples": 80},
            "by share": {"assign": "greedy", "max_clients": 10, "min_samples": 999},
        },
        "data": {"clients": 20, "alpha": 0},
    }
    found = make(tmp_path, settings, "group")
    assert found.subjects == ("clients", "random", "by_share")
    found.open()
    found.run(Piece(1))
    assert found.done(Piece(1))
    best = found.subject("by_share", 1)
    assert best.measure("covered_classes") == 1.0
    assert best.measure("groups") == 2
    assert found.subject("clients", 1).measure("covered_classes") == pytest.approx(0.1)
    assert best.measure("same_class") < best.measure("other_class")
    with pytest.raises(RunFolderError, match="holds runs with other settings"):
        make(tmp_path, {**settings, "data": {"clients": 30, "alpha": 0}}, "group").open()
    (found.folder / "seed-1.json").write_text("{}")
    with pytest.raises(RunFolderError, match="is damaged"):
        found.subject("by_share", 1)


def test_costs_are_counted_from_plans(tmp_path):
    found = make(tmp_path, {**TINY, "methods": ["fedavg", "scaffold"], "grouping": {}}, "cost")
    assert found.pieces == [Piece(1)]
    found.open()
    found.run(Piece(1))
    assert found.subject("fedavg", 1).measure("transfers") == 8
    assert found.subject("scaffold", 1).measure("transfers") == 16
    assert found.subject("scaffold", 1).measure("hops") == 4


def test_a_spy_is_measured_at_equal_accuracy(tmp_path):
    settings = {**TINY, "methods": ["fedavg"], "grouping": {}, "fraction": 1, "spy": {"client": 1, "epochs": 1}}
    found = make(tmp_path, settings, "spy")
    assert found.subjects == ("fedavg",)
    found.open()
    found.run(Piece(1))
    assert found.subject("fedavg", 1).measure("visits") == 2
    with pytest.raises(Undecided, match="fedavg has no fid_80"):
        found.subject("fedavg", 1).measure("fid_80")


def test_a_model_far_from_a_level_says_nothing_there():
    """One visit with a model of 84 % is not three measurements."""
    haul = GanAttackResult(1, (GanObservation(1, None, 0.84, None, 653.8),), None, None)
    assert distances(haul) == {
        "visits": 1, "fid_60": None, "model_60": None, "fid_70": None, "model_70": None,
        "fid_80": 653.8, "model_80": 0.84,
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
    assert make(tmp_path, TINY).missing is None
    settings = {**TINY, "data": {"name": "femnist", "clients": 8}}
    assert make(tmp_path, settings).missing == "femnist"
