from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import trim_mean

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import validate
from fedrelay.merge.trimmed import Trimmed, how_many


@settings(max_examples=60)
@given(st.integers(1, 12), st.floats(0, 0.499))
def test_the_trimmed_mean_is_that_of_scipy(make_home, count, share):
    models = np.random.default_rng(count).normal(size=(count, 3))
    merged = Trimmed(share=share).apply(make_home(models)).weights
    assert merged.numpy() == pytest.approx(trim_mean(models, share, axis=0))


def test_extreme_shares(make_home):
    models = np.random.default_rng(7).normal(size=(9, 4))
    home = make_home(models)
    assert Trimmed(share=0).apply(home).weights.numpy() == pytest.approx(models.mean(axis=0))
    assert Trimmed(share=0.49).apply(home).weights.numpy() == pytest.approx(np.median(models, axis=0))


def test_how_many_are_cut():
    assert how_many(0.29, 100) == 29
    assert [how_many(0.4999999999, count) for count in (1, 2, 3, 10)] == [0, 0, 1, 4]


def test_sums_are_taken_in_double_precision(make_home):
    home = make_home([[1e8], [1.0], [-1e8], [1.0]], dtype=torch.float32)
    assert Trimmed(share=0).apply(home).weights.tolist() == [0.5]


def test_half_is_too_much():
    with pytest.raises(SpecError, match=r"merge.share: must be less than 0.5, got 0.5"):
        validate(Trimmed, {"share": 0.5}, "merge.")


@pytest.mark.parametrize(
    ("share", "models", "message"),
    [
        (0.2, 4, "merge.share: 0.2 of 4 models cuts nobody off, which is the plain mean; allowed: at least 0.25 here"),
        (0.1, 7, "allowed: at least 0.143 here, or 0 to say so"),
        (0.49, 2, "trimmed-mean: cuts off both ends and needs at least 3 models in a round; here 2 come home"),
    ],
)
def test_a_share_that_cuts_nobody_off_is_refused(share, models, message):
    with pytest.raises(SpecError) as refused:
        Trimmed(share=share).check(lambda: models)
    assert message in str(refused.value)


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 500))
def test_the_least_share_that_is_named_is_enough(models):
    with pytest.raises(SpecError) as refused:
        Trimmed(share=1e-4).check(lambda: models)
    least = float(str(refused.value).split("at least ")[1].split()[0])
    assert Trimmed(share=least).check(lambda: models) is None


def test_nobody_is_cut_off_where_that_is_said():
    assert Trimmed(share=0).check(lambda: 2) is None
    assert Trimmed(share=0.2).check(lambda: 5) is None
