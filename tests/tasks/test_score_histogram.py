from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from fedrelay.tasks.score_histogram import BINS_PER_UNIT, LIMIT, ScoreHistogram

scored = st.lists(
    st.tuples(st.integers(int(-LIMIT * BINS_PER_UNIT), int(LIMIT * BINS_PER_UNIT)), st.booleans()),
    min_size=2,
    max_size=60,
)
"""Scores on the edges of bins, where the histogram loses nothing, with labels."""


@given(scored, st.integers(1, 5))
def test_curves_are_those_of_scikit_learn_however_the_samples_are_divided(samples, parts):
    bins, labels = np.array([number for number, _ in samples]), np.array([label for _, label in samples])
    logits = bins / BINS_PER_UNIT
    pieces = np.array_split(np.arange(len(samples)), parts)
    found = reduce(add, (ScoreHistogram.of(logits[piece], labels[piece]) for piece in pieces))
    whole = ScoreHistogram.of(logits, labels)
    np.testing.assert_array_equal(found.bins, whole.bins)
    np.testing.assert_array_equal(found.counts, whole.counts)
    if labels.any() and not labels.all():
        assert found.auroc == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)
    else:
        assert found.auroc is None
    if labels.any():
        assert found.average_precision == pytest.approx(average_precision_score(labels, logits), abs=1e-12)
    else:
        assert found.average_precision is None


@given(st.lists(st.tuples(st.floats(-15, 15), st.booleans()), min_size=2, max_size=40))
def test_scores_between_bins_change_the_area_by_ties_alone(samples):
    logits, labels = np.array([score for score, _ in samples]), np.array([label for _, label in samples])
    if labels.all() or not labels.any():
        return
    rounded = np.floor(logits * BINS_PER_UNIT)
    assert ScoreHistogram.of(logits, labels).auroc == pytest.approx(roc_auc_score(labels, rounded), abs=1e-12)


def test_scores_beyond_the_limit_are_equal():
    found = ScoreHistogram.of([-1e9, -LIMIT, LIMIT, np.inf], [False, True, False, True])
    assert found.counts.tolist() == [[1, 1], [1, 1]]
    assert found.auroc == 0.5


def test_no_samples():
    empty = ScoreHistogram.of(np.zeros(0), np.zeros(0, bool))
    assert empty.auroc is None
    assert (empty + ScoreHistogram.of([0.0, 1.0], [0, 1])).auroc == 1
