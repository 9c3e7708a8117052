from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.data.dataset import Dataset
from fedrelay.data.open_federation import open_federation
from fedrelay.data.stratified_subset import subset
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import DataSettings


def numbered(counts: list[int], owner: np.ndarray | None = None) -> Dataset:
    """So many samples of every class; a sample is its own number."""
    labels = np.repeat(np.arange(len(counts)), counts)
    rows = np.arange(len(labels), dtype=np.float32)[:, None]
    return Dataset("numbered", "tabular", rows, labels, rows, labels, len(counts), client_train=owner)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.data())
def test_classes_keep_their_proportions(counts, data):
    whole = numbered(counts)
    count = data.draw(st.integers(1, sum(counts)))
    part = subset(whole, count, None, seed=3)
    assert len(part.y_train) == count
    assert len(part.y_test) == sum(counts)
    assert (part.y_train == whole.y_train[part.x_train[:, 0].astype(int)]).all()
    assert len(np.unique(part.x_train)) == count
    for label, before in enumerate(counts):
        assert abs((part.y_train == label).sum() - before * count / sum(counts)) <= len(counts)


def test_the_choice_depends_on_the_seed_alone():
    whole = numbered([50, 50])
    first, again, other = (subset(whole, 20, 10, seed) for seed in (1, 1, 2))
    assert (first.x_train == again.x_train).all()
    assert (first.x_test == again.x_test).all()
    assert (first.x_train != other.x_train).any()
    assert np.bincount(first.y_train).tolist() == [10, 10]


def test_holders_are_numbered_afresh():
    part = subset(numbered([4, 4], owner=np.array([5, 5, 5, 5, 9, 9, 9, 9])), 4, None, seed=1)
    assert sorted(np.unique(part.client_train)) == [0, 1]


def test_more_than_there_are_is_refused():
    with pytest.raises(SpecError, match=r"data\.samples: must be at most 5, got 6"):
        subset(numbered([5]), 6, None, seed=1)
    with pytest.raises(SpecError, match=r"data\.test_samples: must be at most 5, got 6"):
        subset(numbered([5]), None, 6, seed=1)


def test_in_an_experiment():
    federation = open_federation(DataSettings(samples=400, test_samples=100, clients=40, alpha=0), seed=1)
    assert federation.sample_counts().sum() == 400
    assert len(federation.test.y) == 100
    with pytest.raises(SpecError, match=r"data\.samples: has no effect with synthetic data"):
        open_federation(DataSettings(name="synthetic", samples=400), seed=1)
