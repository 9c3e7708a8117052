"""What holds for all robust merges."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedrelay.merge.geometric_median import GeometricMedian
from fedrelay.merge.krum import Krum
from fedrelay.merge.median import Median
from fedrelay.merge.trimmed_mean import TrimmedMean

RULES = [
    Median(),
    TrimmedMean(share=0.3),
    Krum(attackers=2),
    Krum(attackers=2, keep=3),
    GeometricMedian(),
    GeometricMedian(weights="uniform"),
]
MODELS = np.random.default_rng(7).normal(size=(9, 4))


def apply(make_inputs, rule, models, **how):
    return rule.apply(make_inputs(np.asarray(models), **how)).weights.numpy()


@pytest.mark.parametrize("rule", RULES, ids=repr)
class TestAllOfThem:
    @pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
    def test_a_model_that_is_not_finite_is_as_if_it_had_not_arrived(self, make_inputs, rule, poison):
        sick = MODELS.copy()
        sick[[2, 5], [0, 3]] = poison
        merged = apply(make_inputs, rule, sick)
        assert np.isfinite(merged).all()
        assert merged.tolist() == apply(make_inputs, rule, np.delete(MODELS, [2, 5], axis=0)).tolist()

    def test_when_none_is_finite_the_model_stays(self, make_inputs, rule):
        inputs = make_inputs([[np.nan, 1.0], [1.0, np.inf]], global_model=[3.0, 4.0])
        merged = rule.apply(inputs)
        assert (merged.weights.tolist(), merged.state) == ([3.0, 4.0], {})
        assert merged.weights.data_ptr() != inputs.global_model.data_ptr()

    @pytest.mark.parametrize("size", [1e3, 1e30, 1e300])
    def test_two_attackers_in_nine_do_no_harm(self, make_inputs, rule, size):
        attacked = MODELS.copy()
        attacked[3], attacked[8] = size, -size / 2
        merged = apply(make_inputs, rule, attacked)
        assert np.abs(merged).max() < 2

    def test_identical_models_are_a_fixed_point(self, make_inputs, rule):
        merged = apply(make_inputs, rule, [[0.1, -7.3, 1e-9]] * 5, samples=[1, 2, 3, 4, 5])
        assert merged.tolist() == pytest.approx([0.1, -7.3, 1e-9], rel=1e-14)

    def test_one_model_is_that_model(self, make_inputs, rule):
        assert apply(make_inputs, rule, [[0.25, -3.0]]).tolist() == [0.25, -3.0]

    def test_the_order_of_arrivals_does_not_matter(self, make_inputs, rule):
        inputs = make_inputs(MODELS, samples=[3, 1, 4, 1, 5, 9, 2, 6, 5])
        for order in (slice(None, None, -1), np.random.default_rng(1).permutation(9)):
            turned = replace(inputs, arrivals=np.array(inputs.arrivals)[order].tolist())
            assert rule.apply(turned).weights.tolist() == pytest.approx(rule.apply(inputs).weights.tolist())

    def test_it_moves_and_grows_with_the_models(self, make_inputs, rule):
        shift = np.array([5.0, -1.0, 0.5, 100.0])
        merged = apply(make_inputs, rule, MODELS)
        assert apply(make_inputs, rule, MODELS * 4 + shift) == pytest.approx(merged * 4 + shift, abs=1e-6)

    def test_poisoned_buffers_do_no_harm(self, make_inputs, rule, batch_norm):
        models = np.concatenate([MODELS[:, :2], 1 + MODELS[:, 2:] / 10, np.arange(9)[:, None]], axis=1)
        models[4, 2:4], models[7, 3] = 1e6, -1e6
        merged = apply(make_inputs, rule, models, layout=batch_norm, dtype=torch.float32)
        assert merged.dtype == np.float32
        assert np.abs(merged[2:4] - 1).max() < 0.5
        assert merged[4] in range(9)

    def test_long_models_are_looked_at_in_parts(self, make_inputs, rule):
        models = np.random.default_rng(3).normal(size=(5, 9001))
        one = apply(make_inputs, rule, models)
        other = apply(make_inputs, rule, models[:, ::-1].copy())
        assert one == pytest.approx(other[::-1], abs=1e-9)


def test_counters_take_the_lower_median(make_inputs, batch_norm):
    models = [[0.0, 0.0, 0.0, 1.0, count] for count in (3, 900, 5, 4)]
    for rule in (Median(), TrimmedMean(), GeometricMedian()):
        assert apply(make_inputs, rule, models, layout=batch_norm, dtype=torch.float32)[4] == 4
