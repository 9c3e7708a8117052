"""Samples of a client or a test set: tensors in memory, or a source that reads them batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.errors import DataError
from fedrelay.models.nested_inputs import Inputs, map_inputs, rows_of, tensors_of

Rows = range | NDArray[np.int64]
"""The indices of samples, in the order in which they are wanted."""


class SampleSource(Protocol):
    """Samples that are read as they are needed. Reading the same rows with the same seed gives the same samples."""

    @property
    def size(self) -> int:
        """The number of samples."""

    def pieces(self, rows: Rows, batch_size: int, seed: int) -> Iterator[Samples]:
        """Read samples in as few pieces as memory allows.

        Args:
            rows: Which samples, in which order.
            batch_size: The size of each piece, except the last, is a multiple of it.
            seed: Seed of random transforms.
        """

    def targets(self) -> Tensor:
        """The targets of all samples."""

    def select(self, rows: NDArray[np.int64]) -> SampleSource:
        """Some of the samples."""

    def load(self) -> Samples:
        """All samples in memory. Only what cannot work batch by batch asks for them."""


class Samples(NamedTuple):
    """Samples in memory: model inputs (float32, or int64 tokens) and targets (int64 labels, or float32 numbers)."""

    x: Inputs
    y: Tensor

    @property
    def single_input(self) -> Tensor:
        """The inputs, for parts that need one tensor.

        Raises:
            DataError: Samples have several inputs.
        """
        if isinstance(self.x, Tensor):
            return self.x
        raise DataError("samples must have one input tensor here; these have several")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All inputs, then the targets."""
        return *tensors_of(self.x), self.y

    def map(self, change: Callable[[Tensor], Tensor]) -> Samples:
        """The same samples with `change` applied to every tensor."""
        return Samples(map_inputs(change, self.x), change(self.y))

    def rows(self, rows: slice) -> Samples:
        """Some of the samples, in the same memory."""
        return Samples(rows_of(self.x, rows), self.y[rows])

    @property
    def size(self) -> int:
        return len(self.y)

    def pieces(self, rows: Rows, batch_size: int, seed: int) -> Iterator[Samples]:
        """All rows in one piece."""
        if isinstance(rows, range):
            yield self.rows(slice(rows.start, rows.stop, rows.step))
        else:
            # index_select is several times faster than x[index].
            index = torch.from_numpy(rows)
            yield self.map(lambda tensor: tensor.index_select(0, index))

    def targets(self) -> Tensor:
        return self.y

    def select(self, rows: NDArray[np.int64]) -> Samples:
        index = torch.from_numpy(rows)
        return self.map(lambda tensor: tensor[index])

    def load(self) -> Samples:
        return self
