"""A data owner's own samples from a map-style `torch.utils.data.Dataset`: read as they are trained."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch.utils.data import Dataset, Subset

from fedrelay.data.held_out_rows import held_out_rows
from fedrelay.data.torch_dataset_federation import TorchDatasetFederation, federate_datasets
from fedrelay.errors import DataError

OWNER = "this node"


def as_datasets(value: Any) -> tuple[Dataset[Any], Dataset[Any] | None] | None:
    """The train and test dataset in what an owner's function returned; None if it returned something else."""
    if isinstance(value, Dataset):
        return value, None
    if isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(each, Dataset) for each in value):
        train, test = value
        return train, test
    return None


def owner_datasets(
    train: Dataset[Any],
    test: Dataset[Any] | None,
    *,
    hold_out: float = 0.0,
    classes: int | None = None,
) -> TorchDatasetFederation:
    """A federation with one client: a data owner whose samples may be larger than memory.

    Args:
        train: The samples: pairs (input, target).
        test: The test samples, if there are any.
        hold_out: Share of the samples to hold out as test samples, if there are no test samples.
        classes: The number of classes; default: what the attribute `targets` of `train` needs.

    Raises:
        DataError: A dataset cannot be used.
    """
    if test is not None and hold_out:
        raise DataError("--holdout: has no effect, because there are test samples already")
    if hold_out:
        rest, held_out = held_out_rows(len(train), hold_out)  # type: ignore[arg-type]
        train, test = Subset(train, rest.tolist()), Subset(train, held_out.tolist())
    # `federate_datasets` needs a test sample; without any, the train samples stand in and are removed again.
    federation = federate_datasets({OWNER: train}, train if test is None else test, classes=classes, name="own data")
    return federation if test is not None else replace(federation, test=federation.test.select(np.zeros(0, np.int64)))
