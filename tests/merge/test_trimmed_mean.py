from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import trim_mean

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import validate
from fedrelay.merge.trimmed_mean import TrimmedMean, cut_count


@settings(max_examples=60)
@given(st.integers(1, 12), st.floats(0, 0.499))
def test_the_trimmed_mean_is_that_of_scipy(make_inputs, count, share):
    models = np.random.default_rng(count).normal(size=(count, 3))
    merged = TrimmedMean(share=share).apply(make_inputs(models)).weights
    assert merged.numpy() == pytest.approx(trim_mean(models, share, axis=0))


def test_extreme_shares(make_inputs):
    models = np.random.default_rng(7).normal(size=(9, 4))
    inputs = make_inputs(models)
    assert TrimmedMean(share=0).apply(inputs).weights.numpy() == pytest.approx(models.mean(axis=0))
    assert TrimmedMean(share=0.49).apply(inputs).weights.numpy() == pytest.approx(np.median(models, axis=0))


def test_cut_count_are_cut():
    assert cut_count(0.29, 100) == 29
    assert [cut_count(0.4999999999, count) for count in (1, 2, 3, 10)] == [0, 0, 1, 4]


def test_sums_are_taken_in_double_precision(make_inputs):
    inputs = make_inputs([[1e8], [1.0], [-1e8], [1.0]], dtype=torch.float32)
    assert TrimmedMean(share=0).apply(inputs).weights.tolist() == [0.5]


def test_half_is_too_much():
    with pytest.raises(SpecError, match=r"merge.share: must be less than 0.5, got 0.5"):
        validate(TrimmedMean, {"share": 0.5}, "merge.")


@pytest.mark.parametrize(
    ("share", "models", "message"),
    [
        (0.2, 4, "merge.share: 0.2 of 4 models is less than one model, so nothing would be cut off; set at least 0.25"),
        (0.1, 7, "set at least 0.143, or 0 for the plain mean"),
        (0.49, 2, "trimmed-mean: needs at least 3 models in a round; this experiment has 2"),
    ],
)
def test_a_share_that_cuts_nobody_off_is_refused(share, models, message):
    with pytest.raises(SpecError) as refused:
        TrimmedMean(share=share).check_arrival_count(lambda: models)
    assert message in str(refused.value)


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 500))
def test_the_least_share_that_is_named_is_enough(models):
    with pytest.raises(SpecError) as refused:
        TrimmedMean(share=1e-4).check_arrival_count(lambda: models)
    least = float(str(refused.value).split("at least ")[1].split()[0].rstrip(","))
    assert TrimmedMean(share=least).check_arrival_count(lambda: models) is None


def test_nobody_is_cut_off_where_that_is_said():
    assert TrimmedMean(share=0).check_arrival_count(lambda: 2) is None
    assert TrimmedMean(share=0.2).check_arrival_count(lambda: 5) is None
