from __future__ import annotations

import pytest
import torch

from fedrelay.experiment.method import build_method
from fedrelay.experiment.spec import experiment
from fedrelay.merge.extrapolation import Extrapolation
from fedrelay.merge.mean import Mean

OPPOSED = [[3.0, 1.0], [-1.0, 1.0]]


def test_the_step_is_the_ratio_of_squared_lengths(make_inputs):
    # Squares 10 and 2, mean change (1, 1): η = 6 / (2 · (2 + 0.5)) = 1.2.
    merged = Extrapolation(epsilon=0.5).apply(make_inputs(OPPOSED)).weights
    assert merged.tolist() == pytest.approx([1.2, 1.2])
    from_elsewhere = make_inputs([[13.0, 1.0], [9.0, 1.0]], global_model=[10.0, 0.0])
    assert Extrapolation(epsilon=0.5).apply(from_elsewhere).weights.tolist() == pytest.approx([11.2, 1.2])


def test_routes_weigh_by_their_samples(make_inputs):
    # p = 1/4, 3/4: squares 10/4 + 6/4 = 4, mean change (0, 1): η = 4 / (2 · 1.25) = 1.6.
    rule = Extrapolation(epsilon=0.25)
    assert rule.apply(make_inputs(OPPOSED, samples=[1, 3])).weights.tolist() == pytest.approx([0, 1.6])
    equal = Extrapolation(epsilon=0.5, weights="uniform").apply(make_inputs(OPPOSED, samples=[1, 3]))
    assert equal.weights.tolist() == pytest.approx([1.2, 1.2])


def test_changes_that_agree_are_not_lengthened(make_inputs):
    inputs = make_inputs([[1.0, 2.0], [1.0, 2.0]], global_model=[0.5, 0.5])
    assert torch.equal(Extrapolation().apply(inputs).weights, Mean().apply(inputs).weights)


def test_buffers_take_the_plain_mean(make_inputs, batch_norm):
    models = [[3, 1, 4, 2, 7], [-1, 1, 0, 0, 9]]
    inputs = make_inputs(models, layout=batch_norm, dtype=torch.float32, global_model=[0.0] * 5)
    assert Extrapolation(epsilon=0.5).apply(inputs).weights.tolist() == pytest.approx([1.2, 1.2, 2, 1, 9])


def test_without_samples_nothing_changes(make_inputs):
    inputs = make_inputs([[9.0]], hops=[[]], global_model=[2.0])
    assert Extrapolation().apply(inputs).weights.tolist() == [2]


def test_the_last_two_models_are_evaluated():
    assert build_method(experiment("fedexp")).server.average.window == 2
