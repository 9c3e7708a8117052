"""The samples that models are evaluated on: test samples, and validation samples where there are any."""

from __future__ import annotations

from typing import Literal

import numpy as np

from fedrelay.data.federation import Federation
from fedrelay.data.federation_wrapper import find_wrapper
from fedrelay.data.lazy_dataset_samples import LazyDatasetSamples
from fedrelay.data.partition import Ints
from fedrelay.data.samples import SampleSource
from fedrelay.data.stratified_subset import stratified_indices
from fedrelay.data.validation_samples import FederationWithValidationSamples
from fedrelay.rng import generator

EvaluationSet = Literal["test", "validation"]


def evaluation_samples(federation: Federation, which: EvaluationSet) -> SampleSource:
    """The samples of an evaluation set."""
    if which == "test":
        return federation.test
    part = find_wrapper(federation, FederationWithValidationSamples)
    assert part is not None, "there are no validation samples"
    return part.validation


def evaluation_subset(federation: Federation, which: EvaluationSet, count: int, seed: int) -> Ints | None:
    """The numbers of `count` samples of an evaluation set, with the same proportions of classes where there are any.

    They follow from the seed alone. None: the set has no more samples than that.
    """
    samples = evaluation_samples(federation, which)
    if samples.size <= count:
        return None
    one_class_each = federation.class_count > 0 and not federation.target_shape
    labels = samples.targets().numpy() if one_class_each else np.zeros(samples.size)
    return stratified_indices(labels, count, generator(seed, "evaluation subset", which))


def sample_place(federation: Federation, which: EvaluationSet, row: int) -> str:
    """A sample of an evaluation set, for messages: with its client, where one has it."""
    samples = evaluation_samples(federation, which)
    if isinstance(samples, LazyDatasetSamples) and (place := samples.place(row)):
        return place
    part = find_wrapper(federation, FederationWithValidationSamples)
    return part.place(row) if which == "validation" and part is not None else f"sample {row}"


def convert_now(federation: Federation) -> None:
    """Convert samples in this process, so that processes that inherit or receive the federation need not."""
    federation.test  # noqa: B018
    federation.train_samples(0)
    if find_wrapper(federation, FederationWithValidationSamples) is not None:
        evaluation_samples(federation, "validation")
