"""`eval.subset`: rounds are evaluated on some samples, the end of a run on all of them."""

from __future__ import annotations

import json

import pytest

import fedrelay as fr
from fedrelay.runtime.run_folder_reader import RunFolderReader

SETTINGS = {"clients": 8, "rounds": 6, "lr": 0.1, "validation": 0.2, "workers": 1, "seed": 3}
METRICS = ("accuracy", "loss", "f1", "validation_accuracy", "validation_loss")


@pytest.fixture(scope="module")
def whole():
    return fr.run("fedseq", **SETTINGS)


@pytest.fixture(scope="module")
def some():
    return fr.run("fedseq", **SETTINGS, subset=50)


def test_rows_are_on_the_subset_and_the_result_is_on_all_samples(whole, some):
    assert some.weights_sha256 == whole.weights_sha256
    assert [row["test_samples"] for row in some.history] == [50] * 6
    assert [row["validation_samples"] for row in some.history] == [50] * 6
    assert all(round(row["accuracy"] * 50, 9).is_integer() for row in some.history)
    assert "test_samples" not in whole.history[-1]
    assert {name: some.last_row[name] for name in METRICS} == {name: whole.history[-1][name] for name in METRICS}
    assert (some.last_row["test_samples"], some.last_row["validation_samples"]) == (
        359,
        some.final["last"]["validation_samples"],
    )
    assert some.score == some.accuracy == some.score_last == some.accuracy_last == whole.accuracy
    summary = some.summary()
    assert (summary["accuracy"], summary["accuracy_last"], summary["f1"]) == (
        whole.accuracy,
        whole.accuracy,
        whole.history[-1]["f1"],
    )


def test_the_best_model_is_chosen_on_the_subset_and_measured_on_all(whole, some):
    values = [row["validation_accuracy"] for row in some.history]
    assert some.best.round == 1 + values.index(max(values))
    same = whole.history[some.best.round - 1]
    assert some.best.value == same["validation_accuracy"]
    assert {name: some.best.row[name] for name in METRICS} == {name: same[name] for name in METRICS}


def test_patience_looks_at_the_subset_and_the_round_it_stops_in_is_evaluated_on_all(whole):
    found = fr.run("fedseq", **SETTINGS, subset=5, patience=1)
    assert found.stopped.startswith("stop.patience")
    assert found.rounds < 6
    assert found.final["round"] == found.rounds
    assert found.accuracy == whole.history[found.rounds - 1]["accuracy"]


def test_a_callback_that_stops_the_run_has_its_round_evaluated_on_all(whole, tmp_path):
    class Stops(fr.Callback):
        def on_round_end(self, context):
            return fr.StopRun("enough") if context.round == 3 else None

    found = fr.run("fedseq", **SETTINGS, subset=50, every=2, callbacks=Stops(), out=tmp_path / "run")
    assert [row["round"] for row in found.history] == [2, 3]
    assert found.accuracy == whole.history[2]["accuracy"]
    assert fr.resume(tmp_path / "run").accuracy == found.accuracy


@pytest.mark.parametrize("every", [1, 4])
def test_a_longer_run_is_the_run_that_was_that_long_from_the_start(tmp_path, every):
    settings = {**SETTINGS, "subset": 50, "every": every}
    long = fr.run("fedseq", **settings, out=tmp_path / "long")
    fr.run("fedseq", **{**settings, "rounds": 3}, out=tmp_path / "run")
    longer = fr.resume(tmp_path / "run", rounds=6)
    assert (longer.history, longer.final) == (long.history, long.final)
    for name in ("metrics.jsonl", "final_metrics.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "long" / name).read_bytes()


def test_a_run_that_died_goes_on_with_the_same_subset(tmp_path, some):
    class Dies(fr.Callback):
        def on_round_end(self, context):
            if context.round == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fr.run("fedseq", **SETTINGS, subset=50, callbacks=Dies(), out=tmp_path / "run", checkpoint={"seconds": 0})
    assert not (tmp_path / "run" / "final_metrics.jsonl").exists()
    found = fr.resume(tmp_path / "run")
    assert (found.history, found.final) == (some.history, some.final)


def test_a_run_folder_without_its_last_line_is_damaged(tmp_path):
    fr.run("fedavg", **SETTINGS, subset=50, out=tmp_path / "run")
    (tmp_path / "run" / "final_metrics.jsonl").unlink()
    (tmp_path / "run" / "checksums.jsonl").unlink()
    with pytest.raises(fr.RunFolderError, match=r"final_metrics\.jsonl lacks round 6; the run is damaged"):
        fr.resume(tmp_path / "run")


def test_own_models_of_clients_are_compared_on_all_test_samples_alone():
    found = fr.run("local", **{**SETTINGS, "rounds": 2}, subset=50, per_client=1, holdout=0.2)
    assert ["test" in row for row in found.client_rows] == [False] * 8 + [True] * 8
    means = sum(row["test"]["accuracy"] for row in found.client_rows[8:]) / 8
    assert found.accuracy == pytest.approx(means)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"subset": 359}, r"^eval\.subset: must be less than 359, because there are 359 test samples, got 359$"),
        ({"subset": 400, "validation": 0.2}, r"because there are 359 test and \d+ validation samples, got 400$"),
        ({"subset": 0}, r"^eval\.subset: must be greater than or equal to 1, got 0$"),
    ],
)
def test_subsets_that_are_none_are_refused(settings, message):
    with pytest.raises(fr.SpecError, match=message):
        fr.run("fedavg", **{**SETTINGS, "validation": 0.0, **settings})


def test_a_subset_of_validation_samples_alone():
    """There are 359 test samples, and more validation samples."""
    found = fr.run("fedavg", **{**SETTINGS, "rounds": 1, "validation": 0.5}, subset=400)
    assert "test_samples" not in found.history[0]
    assert found.history[0]["validation_samples"] == 400
    assert found.history[0]["accuracy"] == found.accuracy


def test_exports_and_reports_say_what_scores_are_on(tmp_path, whole):
    settings = {name: value for name, value in SETTINGS.items() if name != "seed"}
    compared = fr.compare(["fedseq", "fedavg"], **settings, seeds=[3], subset=50, out=tmp_path / "comparison")
    assert compared.notes[-1] == (
        "with eval.subset (50) curves and rounds to targets are on that many samples, scores on all"
    )
    run = tmp_path / "comparison" / "fedseq" / "seed-3"
    line = json.loads((run / "final_metrics.jsonl").read_text())
    assert line == RunFolderReader.open(run).final_metrics
    fr.export(run, tmp_path / "export")
    card = next((tmp_path / "export").glob("*.md")).read_text()
    assert f"{whole.accuracy:.6g}" in card
