from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from fedrelay.tasks import score_histogram
from fedrelay.tasks.score_histogram import MOST_BINS, ScoreHistogram

scored = st.lists(st.tuples(st.floats(-(2.0**100), 2.0**100, width=32), st.booleans()), min_size=2, max_size=60)
"""Scores of any size, with labels."""


def whole_and_in_parts(scores, labels, parts):
    pieces = np.array_split(np.arange(len(scores)), parts)
    return ScoreHistogram.of(scores, labels), reduce(add, (ScoreHistogram.of(scores[k], labels[k]) for k in pieces))


def assert_equal(found, wanted):
    np.testing.assert_array_equal(found.bins, wanted.bins)
    np.testing.assert_array_equal(found.counts, wanted.counts)
    assert found.dropped_bits == wanted.dropped_bits


@given(scored, st.integers(1, 5))
def test_curves_are_those_of_scikit_learn_however_the_samples_are_divided(samples, parts):
    scores, labels = (np.array(each) for each in zip(*samples, strict=True))
    whole, found = whole_and_in_parts(scores, labels, parts)
    assert_equal(found, whole)
    if labels.any() and not labels.all():
        assert found.auroc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    else:
        assert found.auroc is None
    if labels.any():
        assert found.average_precision == pytest.approx(average_precision_score(labels, scores), abs=1e-12)
    else:
        assert found.average_precision is None


@pytest.mark.parametrize(("scale", "shift"), [(1e-6, 0.0), (1.0, 0.0), (1e4, 0.0), (1e-4, 7.0), (1e-30, 0.0)], ids=str)
def test_the_scale_of_scores_does_not_matter(scale, shift):
    rng = np.random.default_rng(3)
    labels = rng.random(5000) < 0.2
    scores = (shift + scale * (rng.normal(size=5000) + labels)).astype(np.float32)
    whole, found = whole_and_in_parts(scores, labels, 7)
    assert_equal(found, whole)
    assert found.dropped_bits == 0
    assert found.auroc == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
    assert found.average_precision == pytest.approx(average_precision_score(labels, scores), abs=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4], ids=str)
def test_more_scores_than_bins_are_rounded_as_little_as_possible(scale):
    rng = np.random.default_rng(4)
    labels = rng.random(100_000) < 0.2
    scores = (scale * (rng.normal(size=100_000) + labels)).astype(np.float32)
    whole, found = whole_and_in_parts(scores, labels, 5)
    assert_equal(found, whole)
    assert found.is_possible
    assert MOST_BINS / 2 < len(found.bins) <= MOST_BINS
    assert found.auroc == pytest.approx(roc_auc_score(labels, scores), abs=1e-6)
    assert found.average_precision == pytest.approx(average_precision_score(labels, scores), abs=3e-4)


@given(st.lists(scored, min_size=2, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_adding_changes_nothing_even_with_few_bins(parts, random):
    """Each part may drop other bits than the whole does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(score_histogram, "MOST_BINS", 6)
        histograms = [ScoreHistogram.of(*zip(*part, strict=True)) for part in parts]
        whole = ScoreHistogram.of(*zip(*(sample for part in parts for sample in part), strict=True))
        random.shuffle(histograms)
        assert_equal(reduce(add, histograms), whole)
        assert whole.is_possible


def test_zero_has_no_sign_and_too_large_scores_are_infinite():
    found = ScoreHistogram.of([0.0, -0.0, 1e300, np.inf, -1e300], [0, 1, 1, 0, 0])
    assert found.counts.tolist() == [[1, 0], [1, 1], [1, 1]]


def test_no_samples():
    empty = ScoreHistogram.of(np.zeros(0), np.zeros(0, bool))
    assert empty.auroc is None
    assert (empty + ScoreHistogram.of([0.0, 1.0], [0, 1])).auroc == 1
    assert (empty + empty).average_precision is None
