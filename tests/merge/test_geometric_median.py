from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import validate
from fedrelay.merge.geometric_median import GeometricMedian, geometric_median
from fedrelay.merge.robust_statistics import median

MODELS = np.random.default_rng(7).normal(size=(9, 4))


def apply(make_inputs, rule, models, **how):
    return rule.apply(make_inputs(np.asarray(models), **how)).weights.numpy()


def total_distance(point, models, counts):
    return float(np.asarray(counts) @ np.linalg.norm(models - point, axis=1))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("weights", ["samples", "uniform"])
def test_the_geometric_median_has_the_least_sum_of_distances(make_inputs, seed, weights):
    rng = np.random.default_rng(seed)
    models, samples = rng.normal(size=(7, 3)), rng.integers(1, 6, 7)
    counts = samples if weights == "samples" else np.ones(7)
    found = apply(make_inputs, GeometricMedian(weights=weights, iterations=2000), models, samples=samples.tolist())
    best = minimize(total_distance, models.mean(axis=0), args=(models, counts), method="Nelder-Mead", tol=1e-10)
    assert total_distance(found, models, counts) == pytest.approx(best.fun, rel=1e-7)
    assert found == pytest.approx(best.x, abs=1e-4)


def test_the_default_iterations_come_close(make_inputs):
    models = np.random.default_rng(5).normal(size=(12, 50))
    exact = geometric_median([torch.tensor(model) for model in models], [1] * 12, 1e-6, 5000).numpy()
    assert apply(make_inputs, GeometricMedian(), models) == pytest.approx(exact, abs=1e-5)


def test_every_iteration_comes_closer():
    models = [torch.tensor(model) for model in MODELS]
    totals = [total_distance(geometric_median(models, [1] * 9, 1e-6, n).numpy(), MODELS, [1] * 9) for n in range(1, 9)]
    assert all(after <= before + 1e-12 for before, after in pairwise(totals))


def test_a_start_on_one_of_the_models_is_no_trap():
    models = np.array([[0.0, 0.0], [-3.0, 1.0], [1.0, -3.0], [4.0, -0.5], [-0.5, 4.0]])
    tensors = [torch.tensor(model) for model in models]
    counts = [0.05, 1.0, 2.0, 1.0, 1.0]
    assert median(tensors).tolist() == [0.0, 0.0]
    best = minimize(total_distance, models.mean(axis=0), args=(models, counts), method="Nelder-Mead", tol=1e-10)
    assert geometric_median(tensors, counts, 1e-6, 2000).numpy() == pytest.approx(best.x, abs=1e-4)
    assert np.linalg.norm(best.x) > 0.1


def test_more_than_half_of_the_weight_decides(make_inputs):
    merged = apply(make_inputs, GeometricMedian(), [[0.0, 0.0], [9.0, 9.0], [9.0, -9.0]], samples=[60, 20, 19])
    assert merged == pytest.approx([0.0, 0.0], abs=1e-6)


def test_without_samples_the_geometric_median_leaves_the_model(make_inputs):
    inputs = make_inputs([[1.0], [np.nan]], samples=[0, 5], global_model=[7.0])
    assert GeometricMedian().apply(inputs).weights.tolist() == [7.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothing": 0}, "merge.smoothing: must be greater than 0, got 0"),
        ({"weigths": "uniform"}, "merge.weigths: unknown key 'weigths' (did you mean 'weights'?)"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(SpecError) as refused:
        validate(GeometricMedian, options, "merge.")
    assert message in str(refused.value)
