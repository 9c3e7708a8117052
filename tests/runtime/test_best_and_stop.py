"""When runs stop, and which model is the best."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.runtime.eight_clients import Dies

import fedrelay as fr
from fedrelay.experiment.spec import StopSettings
from fedrelay.runtime.best_and_stop import SelectionMetric, StopRules
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.run_status import RunStatus

HIGH, LOW = SelectionMetric("score", True), SelectionMetric("score", False)


def rules(metric=HIGH, **settings):
    return StopRules(StopSettings(**settings), metric)


def rows(*values):
    return [{"round": round, "score": value} for round, value in enumerate(values, start=1)]


class TestRules:
    @pytest.mark.parametrize(
        ("values", "without_gain"),
        [
            ([], 0),
            ([0.5], 0),
            ([0.5, 0.6, 0.7], 0),
            ([0.5, 0.5, 0.4], 2),
            ([0.5, 0.4, 0.6, 0.6, 0.6], 2),
            ([None, None], 2),
            ([None, 0.1], 0),
            ([0.5, None, 0.4], 2),
        ],
    )
    def test_evaluations_without_gain(self, values, without_gain):
        assert rules(patience=1).evaluations_without_gain(rows(*values)) == without_gain
        mirrored = [None if value is None else -value for value in values]
        assert rules(LOW, patience=1).evaluations_without_gain(rows(*mirrored)) == without_gain

    def test_evaluations_without_a_defined_metric_do_not_count(self):
        """If the loss is not finite either, the model is at fault, not the samples."""
        undefined, diverged = {"score": None, "loss": 0.5}, {"score": None, "loss": None}
        known = rows(0.5, 0.4)
        assert rules(patience=1).evaluations_without_gain([undefined, undefined]) == 0
        assert rules(patience=1).evaluations_without_gain([known[0], undefined, known[1], undefined]) == 1
        assert rules(patience=1).evaluations_without_gain([known[0], diverged, known[1]]) == 2

    def test_small_gains_do_not_count_and_do_not_raise_the_bar(self):
        found = rules(patience=3, min_gain=0.1)
        assert found.evaluations_without_gain(rows(0.5, 0.55, 0.59)) == 2
        assert found.evaluations_without_gain(rows(0.5, 0.55, 0.61)) == 0  # more than 0.1 above 0.5
        assert found.patience_over(rows(0.5, 0.55, 0.59, 0.5)) == (
            "stop.patience: no gain of more than 0.1 in score in 3 evaluations"
        )

    def test_the_target_is_reached_from_the_right_side(self):
        assert rules(target=0.9).target_reached(rows(0.95, 0.89)) == ""
        assert rules(target=0.9).target_reached(rows(0.9)) == "stop.target: score is 0.9, the target is 0.9"
        assert rules(LOW, target=0.9).target_reached(rows(0.91)) == ""
        assert rules(LOW, target=0.9).target_reached(rows(0.5)) == "stop.target: score is 0.5, the target is 0.9"
        assert rules(target=0.9).target_reached(rows(None)) == ""
        assert rules().target_reached(rows(1.0)) == rules().patience_over(rows(1.0, 1.0)) == ""

    @pytest.mark.parametrize(
        ("limits", "reason"),
        [
            ({}, ""),
            ({"max_bytes": 1001, "max_updates": 11, "max_hours": 2.1, "max_wall": 6.0}, ""),
            ({"max_bytes": 1000}, "stop.max_bytes: 1,000 bytes were sent, the limit is 1,000"),
            ({"max_updates": 9}, "stop.max_updates: 10 client updates were done, the limit is 9"),
            ({"max_hours": 2}, "stop.max_hours: 2 hours of virtual time have passed, the limit is 2"),
            ({"max_wall": 0.5}, "stop.max_wall: 5 seconds have passed, the limit is 0.5"),
        ],
    )
    def test_limits(self, limits, reason):
        costs = {"bytes": 1000, "client_updates": 10, "virtual_seconds": 7200.0}
        assert rules(**limits).limit_reached(costs, seconds=5.0) == reason


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    owners = np.repeat(np.arange(6), 12)
    y = rng.integers(0, 3, len(owners))
    x = (rng.normal(size=(3, 4))[y] + 0.7 * rng.normal(size=(len(y), 4))).astype(np.float32)
    return fr.federate(x, y, x[::2], y[::2], client_ids=owners, partition="natural")


SETTINGS = {"fraction": 0.5, "batch_size": 4, "workers": 1, "lr": 0.4, "rounds": 30}


def network():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))


def run(data, **settings):
    return fr.run("fedseq+scaffold", data=data, model=network(), **(SETTINGS | settings))


def test_patience_looks_at_validation_samples(data, caplog):
    result = run(data, validation=0.3, patience=4)
    values = [row["validation_accuracy"] for row in result.history]
    best = int(np.argmax(values)) + 1
    assert result.rounds == best + 4 < 30
    assert result.stopped == "stop.patience: no gain in validation_accuracy in 4 evaluations"
    assert result.complete
    assert (result.best.round, result.best.metric, result.best.value) == (best, "validation_accuracy", max(values))
    assert "flatters" not in caplog.text


def test_patience_without_validation_samples_warns_once(data, caplog):
    result = run(data, patience=3)
    assert result.stopped == "stop.patience: no gain in accuracy in 3 evaluations"
    assert caplog.text.count("stop.patience: chooses the last round by test samples, which flatters the result") == 1
    assert "set data.validation, such as 0.1" in caplog.text
    caplog.clear()
    assert run(data, target=0.5).stopped.startswith("stop.target: accuracy is ")
    assert not caplog.text


def test_the_best_model_is_that_of_its_round(data, tmp_path):
    result = run(data, validation=0.3, rounds=12, out=tmp_path / "run")
    assert result.best.round < 12
    whole = run(data, validation=0.3, rounds=result.best.round)
    assert result.best.row == whole.history[-1] == result.history[result.best.round - 1]
    for found in (result.best.state_dict, load_file(tmp_path / "run" / "best.safetensors")):
        assert found.keys() == whole.model.keys()
        assert all(torch.equal(found[name], tensor) for name, tensor in whole.model.items())
    summary = json.loads((tmp_path / "run" / "result.json").read_bytes())
    assert summary["best"] == {"metric": "validation_accuracy", "value": result.best.value, **result.best.row}
    assert repr(result.best) == f"BestModel(round={result.best.round}, validation_accuracy={result.best.value:.4f})"
    again = fr.resume(tmp_path / "run", data=data, model=network())
    assert again.best.row == result.best.row


def test_there_is_no_best_model_without_validation_samples(data, tmp_path):
    result = run(data, rounds=2, out=tmp_path / "run")
    with pytest.raises(fr.SpecError, match=r"^result\.best: this run kept no validation samples, .*validation=0\.1$"):
        result.best  # noqa: B018
    assert result.best_found is None
    assert result.summary()["best"] is None
    assert not list((tmp_path / "run").glob("best*"))


def test_the_last_evaluation_may_be_the_best_wherever_it_is(data, tmp_path):
    """Rounds 4 and 5 are evaluated; the better one is the best, and a longer run chooses anew."""
    wanted = {"validation": 0.3, "every": 4}
    every = run(data, rounds=9, validation=0.3)
    values = [row["validation_accuracy"] for row in every.history]
    last = next(round for round in (5, 6, 7, 9) if values[round - 1] > values[3])
    result = run(data, rounds=last, **wanted, out=tmp_path / "run")
    assert result.best.round == last
    assert fr.resume(tmp_path / "run", data=data, model=network()).best.row == result.best.row
    longer = fr.resume(tmp_path / "run", rounds=12, data=data, model=network())
    whole = run(data, rounds=12, **wanted)
    assert longer.best.row == whole.best.row
    assert all(torch.equal(longer.best.state_dict[name], each) for name, each in whole.best.state_dict.items())


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(0, id="a checkpoint every round"),
        pytest.param(1000, id="no checkpoint at all", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    ("stop", "every"),
    [
        ({"patience": 4}, 1),
        ({"patience": 2}, 2),
        ({"target": 0.8}, 1),
        ({"max_updates": 25}, 4),
        ({"max_bytes": 9000}, 5),
    ],
)
def test_a_run_that_died_stops_at_the_same_round_with_the_same_bits(data, tmp_path, stop, every, seconds):
    wanted = {"validation": 0.3, "stop": stop, "every": every, "checkpoint": {"seconds": seconds}}
    whole = run(data, **wanted, out=tmp_path / "whole")
    assert 1 < whole.rounds < 30
    for after in {1, whole.rounds // 2, whole.rounds}:  # the last one dies when it has stopped, before it says so
        out = tmp_path / str(after)
        with pytest.raises(KeyboardInterrupt):
            run(data, **wanted, out=out, callbacks=Dies(after))
        found = fr.resume(out, data=data, model=network())
        assert (found.rounds, found.stopped) == (whole.rounds, whole.stopped)
        assert (found.weights_sha256, found.history) == (whole.weights_sha256, whole.history)
        assert found.best.row == whole.best.row
        for name in ("metrics.jsonl", "ledger.jsonl", "model.safetensors", "best.safetensors"):
            assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_stopping_does_not_change_the_rounds_before(data):
    stopped = run(data, max_updates=20, every=7)
    assert [row["round"] for row in stopped.history][-1] == stopped.rounds
    assert stopped.rounds % 7
    whole = run(data, rounds=stopped.rounds)
    assert stopped.weights_sha256 == whole.weights_sha256
    assert stopped.client_updates >= 20 > stopped.client_updates - 6


def test_a_criterion_that_is_met_in_the_last_round_is_no_early_stop(data):
    result = run(data, rounds=3, max_updates=run(data, rounds=3).client_updates)
    assert (result.rounds, result.stopped, result.complete) == (3, "", True)


def test_real_time_stops_a_run(data):
    result = run(data, max_wall=1e-6)
    assert result.rounds == 1
    assert result.stopped.startswith("stop.max_wall: ")


def test_the_folder_says_why_a_run_stopped(data, tmp_path):
    run(data, max_updates=10, out=tmp_path / "run")
    status = RunStatus.of(RunFolderReader.open(tmp_path / "run"))
    assert status.state == "complete"
    assert status.stopped.startswith("stop.max_updates: ")
    assert status.facts()["stopped"] == status.stopped


def test_a_run_that_learnt_nothing_is_no_success(data, tmp_path):
    nobody = [{"what": "dropout", "rate": 1.0}]
    with pytest.raises(fr.EngineError, match="no client update was accepted in any of the 3 rounds"):
        run(data, patience=2, faults=nobody, out=tmp_path / "run", validation=0.3)
    assert RunStatus.of(RunFolderReader.open(tmp_path / "run")).state == "untrained"


def test_lower_is_better_where_the_task_says_so():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2)).astype(np.float32)
    y = (x @ [1.0, -2.0] + 0.1 * rng.normal(size=60)).astype(np.float32)
    data = fr.federate(x, y, x, y, clients=3, partition="iid", task="regression")
    torch.manual_seed(0)
    seen = []

    class Rows(fr.Callback):
        def on_round_end(self, context):
            seen.append(context.row["validation_rmse"])

    wanted = {"data": data, "model": torch.nn.Linear(2, 1), "lr": 0.3, "workers": 1, "rounds": 40, "fraction": 1.0}
    result = fr.run("fedavg", **wanted, validation=0.2, patience=3, callbacks=Rows(), progress=False)
    assert result.best.metric == "validation_rmse"
    assert result.best.value == min(seen)
    assert result.rounds == seen.index(min(seen)) + 4


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ({"patience": 0}, r"stop\.patience: must be greater than or equal to 1, got 0"),
        ({"patience": 2.5}, r"stop\.patience: must be a whole number, got 2\.5"),
        ({"min_gain": 0.1}, r"stop\.min_gain: has no effect without patience"),
        ({"patience": 2, "min_gain": -1}, r"stop\.min_gain: must be greater than or equal to 0, got -1"),
        ({"target": 90}, r"stop\.target: accuracy lies between 0 and 1, got 90"),
        ({"target": 0}, r"stop\.target: accuracy lies between 0 and 1, got 0"),
        ({"target": "f1"}, r"stop\.target: must be a number, got 'f1'"),
        ({"max_bytes": 0}, r"stop\.max_bytes: must be greater than or equal to 1, got 0"),
        ({"max_updates": -1}, r"stop\.max_updates: must be .* got -1"),
        ({"max_hours": 0}, r"stop\.max_hours: must be greater than 0, got 0"),
        ({"max_wall": float("nan")}, r"stop\.max_wall: must be a finite number, got nan"),
        ({"patient": 3}, r"stop\.patient: unknown key 'patient' \(did you mean 'patience'\?\)"),
    ],
)
def test_impossible_settings_are_one_line(data, stop, message):
    with pytest.raises(fr.SpecError, match=f"^{message}") as refused:
        run(data, stop=stop)
    assert "\n" not in str(refused.value)
