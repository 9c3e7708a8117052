"""Metrics that samples do not determine: noted once, counted neither for nor against a run."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay.report.terminal.run_tables import comparison_advice
from fedrelay.runtime import round_evaluator
from fedrelay.runtime.round_evaluator import evaluation_advice
from fedrelay.tasks.metric_info import MetricInfo

SMALL = {"rounds": 4, "workers": 1, "lr": 0.1, "fraction": 1.0}
ONE_CLASS = "auroc on the test samples (it needs samples of both classes)"


def patients(test_labels) -> fr.Federation:
    """Two clients with patients of both classes, and four test patients."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(24, 3)).astype(np.float32), np.arange(24) % 2
    return fr.federate(x[:20], y[:20], x[20:], np.array(test_labels), clients=2, partition="iid", task="binary")


def test_an_undefined_metric_is_noted_once_and_does_not_use_up_patience(tmp_path, caplog):
    data = patients([1, 1, 1, 1])
    result = fr.run("fedavg", data=data, **SMALL, patience=2, out=tmp_path / "run")
    assert (result.rounds, result.stopped) == (4, "")
    assert [row["auroc"] for row in result.history] == [None] * 4
    assert repr(result).startswith("Result(method='fedavg', data='own data', auroc=undefined, ")
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert [(event["round"], event["what"], event["done"]) for event in events] == [
        (1, "undefined metric", ONE_CLASS),
        (1, "undefined metric", "specificity on the test samples (it needs samples of class 0)"),
    ]
    assert result.fault_events == {}  # nothing went wrong
    assert [line for line in caplog.messages if line.startswith("undefined")] == [
        f"undefined in round 1: {ONE_CLASS}; specificity on the test samples (it needs samples of class 0)"
    ]
    fr.resume(tmp_path / "run", rounds=6, data=data)
    assert len((tmp_path / "run" / "events.jsonl").read_text().splitlines()) == 2


def test_a_metric_of_the_users_own_that_is_no_number(caplog):
    task = fr.CustomTask(
        loss=lambda outputs, targets: nn.functional.cross_entropy(outputs, targets),
        metrics_of={"odd": lambda outputs, targets: torch.full((len(targets),), torch.nan)},
    )
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(48, 3)).astype(np.float32), np.arange(48) % 2
    data = fr.federate(x[:40], y[:40], x[40:], y[40:], clients=2, partition="iid")
    result = fr.run("fedavg", data=data, task=task, **SMALL, validation=0.2, patience=1)
    assert result.rounds == 4
    assert caplog.messages == [
        "undefined in round 1: odd on the test samples (its value is nan); "
        "odd on the validation samples (its value is nan)"
    ]
    with pytest.raises(fr.SpecError, match=r"^result\.best: validation_odd had no value in any evaluation; choose"):
        result.best  # noqa: B018


def test_a_comparison_says_that_its_metric_is_undefined(tmp_path):
    outcome = fr.compare(["fedavg", "fedseq"], data=patients([0, 0, 0, 0]), **SMALL, out=tmp_path / "both")
    note = "AUROC is undefined in 2 of 2 runs: it needs samples of both classes"
    assert outcome.notes == (note,)
    assert repr(outcome["fedavg"]) == "MethodResults('fedavg': auroc undefined over 1 seeds)"
    assert "nan" not in repr(outcome) + outcome._repr_html_()
    assert note in json.loads((tmp_path / "both" / "results.json").read_text())["notes"]
    assert "next" not in comparison_advice(outcome).columns[0]._cells  # no method is the best


def test_why_a_metric_is_undefined():
    assert MetricInfo(needs="targets that differ").why_undefined == "it needs targets that differ"
    assert MetricInfo().why_undefined == "the samples do not determine it"


class BrokenInEvaluation(nn.Linear):
    """A linear model whose outputs are NaN in evaluation for samples whose first value is at least 1."""

    def forward(self, x):
        outputs = super().forward(x)
        return outputs if self.training else outputs.masked_fill(x[:, :1] >= 1, torch.nan)


OUTPUTS = "all metrics on the test samples (the model's outputs are NaN or infinite, first for sample 2)"


@pytest.mark.parametrize(("task", "outputs"), [("classification", 2), ("binary", 1), ("regression", 1)])
def test_outputs_that_are_not_finite_leave_all_metrics_undefined(tmp_path, caplog, task, outputs):
    x = np.zeros((24, 3), np.float32)
    x[:20, 1], x[[22, 23], 0] = np.arange(20) / 20, 1  # the third and the fourth test sample
    y = np.arange(24) % 2 if task != "regression" else np.arange(24, dtype=np.float32)
    data = fr.federate(x[:20], y[:20], x[20:], y[20:], clients=2, partition="iid", task=task)
    result = fr.run("fedavg", data=data, model=BrokenInEvaluation(3, outputs), **SMALL, out=tmp_path / "run")
    names = [name for name in result.history[0] if name in (*result.task.metrics, "loss")]
    assert len(names) >= 4
    assert all(row[name] is None for row in result.history for name in names)
    assert np.isnan(result.score)
    assert caplog.messages == [f"undefined in round 1: {OUTPUTS}"]  # once, and not in every round
    [event] = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert (event["what"], event["done"]) == ("undefined metric", OUTPUTS)


def test_a_validation_sample_without_finite_outputs_is_named_with_its_client(caplog):
    x, y = np.zeros((48, 3), np.float32), np.arange(48) % 2
    x[:40, 0] = 1
    data = fr.federate(x[:40], y[:40], x[40:], y[40:], clients=2, partition="iid")
    result = fr.run("fedavg", data=data, model=BrokenInEvaluation(3, 2), **SMALL, validation=0.2)
    assert result.history[-1]["validation_accuracy"] is None
    assert result.history[-1]["accuracy"] == 0.5
    [message] = caplog.messages
    assert message.startswith("undefined in round 1: all metrics on the validation samples (")
    assert ", first for client 0, sample " in message
    with pytest.raises(fr.SpecError, match=r"no value in any evaluation \(the loss was never finite\); correct"):
        result.best  # noqa: B018


@pytest.mark.parametrize(
    ("evaluation_seconds", "seconds", "every", "wanted"),
    [(300, 500, 1, 14), (300, 500, 3, 41), (125, 500, 1, 3), (500, 500, 1, 900)],
)
def test_advice_for_long_runs_that_mostly_evaluate(evaluation_seconds, seconds, every, wanted):
    advice = evaluation_advice(evaluation_seconds, seconds, every)
    assert f"with eval.every: {wanted} it would take about 10 %" in advice


@pytest.mark.parametrize(("evaluation_seconds", "seconds"), [(124, 500), (100, 110), (0, 0)])
def test_no_advice_for_short_runs_or_little_evaluation(evaluation_seconds, seconds):
    assert evaluation_advice(evaluation_seconds, seconds, every=1) is None


def test_a_run_that_mostly_evaluates_says_so_once(monkeypatch, caplog):
    monkeypatch.setattr(round_evaluator, "LONG_RUN", 0.0)
    monkeypatch.setattr(round_evaluator, "LARGE_SHARE", 0.0)
    fr.run("fedavg", data=patients([0, 1, 1, 0]), **SMALL)
    assert [line.partition(" took ")[0] for line in caplog.messages] == ["evaluation"]
