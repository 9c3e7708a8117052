from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fedrelay.experiment.spec import TrainSettings
from fedrelay.merge.base import MergeInput
from fedrelay.merge.mean import SUMMED_AT_ONCE, Mean, precise_mean, weighted_mean
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.arrival import Arrival, HopReport

LAYOUT = FlatLayout.of(nn.Linear(1, 1))


def merge(rule, current, found, layout):
    inputs = MergeInput(current, found, layout, len(found), TrainSettings(), lambda client: np.ones(2, dtype=np.int64))
    weights, state = rule.apply(inputs)
    assert state == {}
    return weights


def arrivals(models, samples):
    return [
        Arrival(i, (i,), torch.tensor(model), (HopReport(n, 1, 0.0),))
        for i, (model, n) in enumerate(zip(models, samples, strict=True))
    ]


def test_the_mean_is_weighted_by_samples():
    merged = merge(Mean(), torch.zeros(2), arrivals([[1.0, 0.0], [4.0, 3.0]], [1, 2]), LAYOUT)
    assert merged.tolist() == [3.0, 2.0]


def test_the_uniform_mean_is_not():
    merged = merge(Mean(weights="uniform"), torch.zeros(2), arrivals([[1.0, 0.0], [4.0, 3.0]], [1, 2]), LAYOUT)
    assert merged.tolist() == [2.5, 1.5]


def test_without_samples_the_model_stays():
    current = torch.tensor([7.0, 8.0])
    merged = merge(Mean(), current, arrivals([[1.0, 0.0]], [0]), LAYOUT)
    assert merged.tolist() == [7.0, 8.0]
    assert merged.data_ptr() != current.data_ptr()


@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=2),
    st.lists(st.integers(1, 500), min_size=1, max_size=9),
)
def test_the_mean_of_identical_models_is_that_model(model, samples):
    merged = merge(Mean(), torch.zeros(2), arrivals([model] * len(samples), samples), LAYOUT)
    assert merged.tolist() == pytest.approx(model, rel=1e-6)


def test_sums_are_taken_in_double_precision():
    models = [[1e8, 0.0], [1.0, 0.0], [-1e8, 0.0], [1.0, 0.0]]
    merged = merge(Mean(weights="uniform"), torch.zeros(2), arrivals(models, [1] * 4), LAYOUT)
    assert merged[0].item() == 0.5


def test_buffers_take_the_mean_and_counters_the_maximum():
    layout = FlatLayout.of(nn.BatchNorm1d(1))  # weight, bias | running_mean, running_var | num_batches_tracked
    models = [[1.0, 0.0, 2.0, 4.0, 3.0], [3.0, 0.0, 6.0, 8.0, 7.0]]
    merged = merge(Mean(), torch.zeros(5), arrivals(models, [1, 1]), layout)
    assert merged.tolist() == [2.0, 0.0, 4.0, 6.0, 7.0]


@pytest.mark.parametrize("size", [1, 17, SUMMED_AT_ONCE, SUMMED_AT_ONCE + 13, 3 * SUMMED_AT_ONCE + 5])
def test_large_models_have_the_bits_of_a_sum_over_the_whole(size):
    torch.manual_seed(size)
    models, weights = torch.randn(3, size), [0.1, 0.7, 1 / 3]
    total = torch.zeros(size, dtype=torch.float64)
    for model, weight in zip(models, weights, strict=True):
        total.add_(model, alpha=weight)
    total.div_(sum(weights))
    layout = FlatLayout.of(nn.Linear(size, 1, bias=False))
    assert torch.equal(precise_mean(list(models), weights), total)
    assert torch.equal(weighted_mean(list(models), weights, layout), total.float())
