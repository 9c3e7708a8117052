from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.merge.ida import Ida, distances_to_mean, inverse_weights


def test_weights_fall_with_distance(make_inputs):
    inputs = make_inputs([[0.0], [0.0], [3.0]])
    assert distances_to_mean([arrival.weights for arrival in inputs.arrivals], 1) == [1, 1, 2]
    assert inverse_weights([1, 1, 2], [1, 1, 1], 1e-8) == pytest.approx([0.4, 0.4, 0.2])
    assert Ida().apply(inputs).weights.item() == pytest.approx(0.6)


def test_samples_count_too(make_inputs):
    inputs = make_inputs([[0.0], [0.0], [3.0]], samples=[1, 1, 4])
    assert Ida().apply(inputs).weights.item() == pytest.approx(0.6)
    assert Ida(weights="samples").apply(inputs).weights.item() == pytest.approx(3 * 0.5)


def test_norms_differ(make_inputs):
    models = np.array([[0.0, 0.0], [4.0, 2.0], [8.0, -5.0]])
    for norm, order in (("l1", 1), ("l2", 2)):
        weights = 1 / np.linalg.norm(models - models.mean(axis=0), order, axis=1)
        expected = weights @ models / weights.sum()
        assert Ida(norm=norm).apply(make_inputs(models)).weights.tolist() == pytest.approx(expected.tolist())


@settings(max_examples=60)
@given(st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 99)), min_size=1).filter(lambda x: sum(n for _, n in x)))
def test_weights_sum_to_one(found):
    distances, counts = zip(*found, strict=True)
    assert sum(inverse_weights(distances, counts, 1e-8)) == pytest.approx(1)


@settings(max_examples=60)
@given(st.lists(st.floats(-1, 1), min_size=3, max_size=8))
def test_an_outlier_weighs_least(values):
    distances = distances_to_mean([torch.tensor([value]) for value in [*values, 50.0]], 1)
    weights = inverse_weights(distances, [1] * len(distances), 1e-8)
    assert min(weights) == weights[-1] < 1 / len(weights)


@settings(max_examples=60)
@given(st.lists(st.floats(-9, 9), min_size=2, max_size=2))
def test_two_models_count_alike(make_inputs, values):
    merged = Ida().apply(make_inputs([[value] for value in values])).weights
    assert merged.item() == pytest.approx(sum(values) / 2, abs=1e-6)


@pytest.mark.parametrize("weights", ["uniform", "samples"])
def test_identical_models_are_a_fixed_point(make_inputs, weights):
    inputs = make_inputs([[0.1, -7.3]] * 3, samples=[1, 2, 3])
    assert Ida(weights=weights).apply(inputs).weights.tolist() == pytest.approx([0.1, -7.3])


def test_buffers_take_the_mean_by_samples_and_no_part_in_distances(make_inputs, batch_norm):
    models = [[0.0, 0.0, 2.0, 4.0, 3.0], [0.0, 0.0, 900.0, 8.0, 7.0], [3.0, 0.0, 2.0, 4.0, 5.0]]
    inputs = make_inputs(models, samples=[1, 2, 1], layout=batch_norm, dtype=torch.float32)
    assert Ida().apply(inputs).weights.tolist() == pytest.approx([0.6, 0.0, 451.0, 6.0, 7.0])


def test_without_samples_the_model_stays(make_inputs):
    inputs = make_inputs([[1.0], [2.0]], global_model=[7.0], samples=[0, 0])
    assert Ida(weights="samples").apply(inputs).weights.tolist() == [7.0]


def test_the_order_of_arrivals_does_not_matter(make_inputs):
    inputs = make_inputs(np.random.default_rng(0).normal(size=(7, 3)), samples=[3, 1, 4, 1, 5, 9, 2])
    turned = replace(inputs, arrivals=inputs.arrivals[::-1])
    rule = Ida(weights="samples")
    assert rule.apply(inputs).weights.tolist() == pytest.approx(rule.apply(turned).weights.tolist())


def test_sums_are_taken_in_double_precision(make_inputs):
    models = [torch.tensor([value]) for value in (1e8, 1.0, -1e8, 1.0)]
    assert distances_to_mean(models, 1) == [1e8 - 0.5, 0.5, 1e8 + 0.5, 0.5]
