"""A part of a data set, with the same proportions of classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.dataset import Dataset
from fedrelay.errors import SpecError
from fedrelay.rng import generator


def subset(dataset: Dataset, samples: int | None, test_samples: int | None, seed: int) -> Dataset:
    """Keep `samples` train and `test_samples` test samples, or all where None."""
    if samples is not None:
        kept = _indices(dataset.y_train, samples, seed, "samples")
        owner = dataset.client_train
        dataset = replace(
            dataset,
            x_train=dataset.x_train[kept],
            y_train=dataset.y_train[kept],
            client_train=None if owner is None else np.unique(owner[kept], return_inverse=True)[1],
        )
    if test_samples is not None:
        kept = _indices(dataset.y_test, test_samples, seed, "test_samples")
        cases = {name: column[kept] for name, column in dataset.test_cases.items()}
        dataset = replace(
            dataset, x_test=dataset.x_test[kept], y_test=dataset.y_test[kept], test_cases={"sample": kept, **cases}
        )
    return dataset


def _indices(labels: NDArray[np.int64], count: int, seed: int, what: str) -> NDArray[np.int64]:
    if count > len(labels):
        raise SpecError(f"data.{what}: must be at most {len(labels)}, got {count}")
    return stratified_indices(labels, count, generator(seed, "subset", what))


def stratified_indices(labels: NDArray[Any], count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sorted indices of `count` samples, with the same proportions of classes.

    Each class is shuffled and spread evenly over a line; the first samples are taken. Samples without a class of their
    own are drawn at random.
    """
    if labels.ndim > 1:  # one label per position: samples have no class
        return np.sort(rng.permutation(len(labels))[:count])
    position = np.empty(len(labels))
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        position[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return np.sort(np.argsort(position, kind="stable")[:count])
