from __future__ import annotations

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.tasks.base import LOSS, MetricInfo
from fedrelay.tasks.custom import CustomTask


def absolute_error(outputs, targets):
    return (outputs.flatten() - targets).abs().mean()


def within_one(outputs, targets):
    return ((outputs.flatten() - targets).abs() <= 1).float()


TASK = CustomTask(loss=absolute_error, metrics_of={"within_one": within_one}, higher_is_better=("within_one",))


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 3)).astype(np.float32)
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.01 * rng.normal(size=120)
    return fr.federate(x[:90], y[:90], x[90:], y[90:], clients=6, partition="iid", task="regression")


def test_metrics_are_means_over_samples():
    sums = TASK.evaluation_sums(torch.tensor([1.0, 5.0, 2.0]), torch.tensor([1.5, 3.0, 2.0]))
    assert TASK.metrics_from_sums(sums.values) == {"within_one": pytest.approx(2 / 3)}
    assert sums.mean_loss == pytest.approx(2.5 / 3)


def test_metrics_and_their_directions():
    assert TASK.headline == "within_one"
    assert TASK.metric_info("within_one") == MetricInfo(higher_is_better=True, percent=False)
    assert TASK.metric_info("loss") == LOSS
    assert CustomTask(loss=absolute_error).headline == "loss"
    both = {"within_one": within_one, "error": lambda outputs, targets: (outputs - targets).abs()}
    chosen = CustomTask(loss=absolute_error, metrics_of=both, headline_metric="error")
    assert chosen.headline == "error"
    assert not chosen.metric_info("error").higher_is_better


def test_it_is_trained_by_run_and_is_the_same_as_the_built_in_loss(numbers):
    settings = {"data": numbers, "rounds": 4, "lr": 0.1, "model": torch.nn.Linear(3, 1), "fraction": 1.0}
    settings["engine"] = {"workers": 1, "lanes": 1}  # losses of users are trained one at a time
    own, built_in = fr.run("fedseq", task=TASK, **settings), fr.run("fedseq", task={"loss": "mae"}, **settings)
    assert own.weights_sha256 == built_in.weights_sha256
    assert own.history[-1]["loss"] == pytest.approx(built_in.history[-1]["mae"], rel=1e-5)
    assert own.history[-1]["within_one"] > own.history[0]["within_one"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"higher_is_better": ("nope",)}, "higher_is_better: unknown metric 'nope'"),
        ({"headline_metric": "nope"}, "headline_metric: unknown metric 'nope'"),
        ({"metrics_of": {"loss": within_one}}, "metrics_of: 'loss' is always measured"),
        ({"loss": 3}, "loss: .*got 3"),
        ({"metric": {}}, "metric: unknown key 'metric'"),
    ],
)
def test_unknown_names_are_refused(options, message):
    with pytest.raises(SpecError, match=rf"^task\.{message}"):
        CustomTask(**{"loss": absolute_error, "metrics_of": {"within_one": within_one}, **options})


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (CustomTask(loss=lambda outputs, targets: 3.0), "the loss must return a tensor with one number, got float"),
        (CustomTask(loss=lambda outputs, targets: outputs), r"one number, got a tensor of shape \(2, 1\)"),
        (
            CustomTask(loss=absolute_error, metrics_of={"m": lambda outputs, targets: outputs}),
            r"the metric 'm' must return one number for each of 2 samples, got a tensor of shape \(2, 1\)",
        ),
        (CustomTask(loss=lambda outputs, targets: 1 / 0), "fails on the outputs of the model: ZeroDivisionError"),
    ],
)
def test_functions_that_cannot_work_are_refused_before_the_run(numbers, task, message):
    with pytest.raises(SpecError, match=message):
        fr.run("fedavg", data=numbers, task=task, model=torch.nn.Linear(3, 1), rounds=1, workers=1)
