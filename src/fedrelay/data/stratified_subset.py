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
        owner, names = dataset.client_train, dataset.client_names
        dataset = replace(dataset, x_train=dataset.x_train[kept], y_train=dataset.y_train[kept])
        if owner is not None:
            left, renumbered = np.unique(owner[kept], return_inverse=True)
            dataset = replace(
                dataset, client_train=renumbered, client_names=tuple(names[each] for each in left) if names else ()
            )
    if test_samples is not None:
        kept = _indices(dataset.y_test, test_samples, seed, "test_samples")
        known = {name: column[kept] for name, column in dataset.test_sample_names.items()}
        dataset = replace(
            dataset,
            x_test=dataset.x_test[kept],
            y_test=dataset.y_test[kept],
            test_sample_names={"sample": kept, **known},
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
    by_label = np.argsort(labels, kind="stable")
    _, first = np.unique(labels[by_label], return_index=True)
    for same in np.split(by_label, first[1:]):
        members = rng.permutation(same)
        position[members] = (np.arange(len(members)) + rng.random()) / len(members)
    return np.sort(np.argsort(position, kind="stable")[:count])
