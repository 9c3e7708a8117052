"""The subset of test and validation samples that rounds are evaluated on."""

from __future__ import annotations

import numpy as np
import pytest

import fedrelay as fr
from fedrelay.data.evaluation_samples import evaluation_samples, evaluation_subset
from fedrelay.data.validation_samples import with_validation


@pytest.fixture(scope="module")
def data():
    return with_validation(fr.load_data("digits", clients=10, partition="iid"), 0.2, seed=3)


@pytest.mark.parametrize("which", ["test", "validation"])
def test_classes_keep_their_proportions(data, which):
    rows, labels = evaluation_subset(data, which, 60, seed=1), evaluation_samples(data, which).targets().numpy()
    assert len(np.unique(rows)) == 60
    wanted = np.bincount(labels, minlength=10) * 60 / len(labels)
    assert np.abs(np.bincount(labels[rows], minlength=10) - wanted).max() <= 1


def test_the_subset_follows_from_the_seed_alone(data):
    first, again, other = (evaluation_subset(data, "test", 60, seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    assert (evaluation_subset(data, "validation", 60, 1) != first).any()


def test_a_set_with_no_more_samples_is_evaluated_whole(data):
    size = data.test.size
    assert evaluation_subset(data, "test", size, 1) is None
    assert len(evaluation_subset(data, "test", size - 1, 1)) == size - 1


def test_samples_without_classes_are_drawn_at_random():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 3)).astype(np.float32), rng.normal(size=60).astype(np.float32)
    numbers = fr.federate(x[:20], y[:20], x[20:], y[20:], clients=2, partition="iid", task="regression")
    rows = evaluation_subset(numbers, "test", 12, seed=1)
    assert len(np.unique(rows)) == 12
    assert rows.max() < 40
