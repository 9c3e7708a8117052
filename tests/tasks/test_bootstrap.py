"""A metric on resamples is the metric of the repeated samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrelay.tasks.binary import Binary
from fedrelay.tasks.bootstrap import resample_counts, resampled_scores, resamples_of_each
from fedrelay.tasks.classification import Classification
from fedrelay.tasks.regression import Regression


@pytest.mark.parametrize(
    ("task", "metric", "outputs", "targets"),
    [
        (Binary(), "auroc", torch.tensor([0.1, 0.1, 0.5, -1.0, 2.0, -3.0]), torch.tensor([0, 1, 1, 0, 1, 1])),
        (Binary(), "average_precision", torch.tensor([0.1, 0.4, 0.5, -1.0]), torch.tensor([0, 1, 1, 0])),
        (Classification(), "f1", torch.randn(7, 3, generator=torch.manual_seed(1)), torch.arange(7) % 3),
        (Regression(), "rmse", torch.randn(5, 1, generator=torch.manual_seed(1)), torch.arange(5.0)),
        (Classification(), "loss", torch.randn(7, 3, generator=torch.manual_seed(2)), torch.arange(7) % 3),
        (Classification(), "accuracy", torch.randn(7, 3, generator=torch.manual_seed(3)), torch.arange(7) % 3),
    ],
)
def test_resamples_are_repeated_samples(task, metric, outputs, targets):
    outputs = task.outputs_for_loss(outputs, targets)
    counts = resample_counts(3, len(targets), 20)
    found = resampled_scores(task, metric, outputs, targets, counts)
    for times, value in zip(counts, found, strict=True):
        rows = torch.from_numpy(np.repeat(np.arange(len(targets)), times))
        expected = task.scores(task._sums(outputs[rows], targets[rows]))[metric]
        assert value == (None if expected is None else pytest.approx(expected, rel=1e-6))


def test_equal_samples_have_equal_resamples_and_other_clients_others():
    first = resample_counts(1, 9, 50)
    assert first.sum(1).tolist() == [9] * 50
    assert (first == resample_counts(1, 9, 50)).all()
    assert (first != resample_counts(2, 9, 50)).any()


def test_outputs_that_are_not_finite_have_no_scores():
    outputs, targets = torch.tensor([float("nan"), 1.0]), torch.tensor([0, 1])
    assert resampled_scores(Binary(), "auroc", outputs, targets, resample_counts(0, 2, 3)) == [None] * 3


def test_many_clients_have_fewer_resamples_each():
    assert [resamples_of_each(clients) for clients in (1, 100, 400, 500, 501)] == [1000, 1000, 250, 200, 0]
