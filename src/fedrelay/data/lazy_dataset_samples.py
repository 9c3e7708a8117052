"""Samples that a `torch.utils.data.Dataset` reads as they are trained: only the batches in use are in memory."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, default_collate

from fedrelay.data.samples import Rows, Samples, SampleSource
from fedrelay.errors import DataError
from fedrelay.models.flat_layout import TORCH_GLOBALS
from fedrelay.models.nested_inputs import Inputs, concatenate, named_tensors
from fedrelay.rng import torch_seed

READ_AT_ONCE = 64
"""Samples that are in memory at once where no batch size is given."""

Collate = Callable[[list[Any]], Any]
"""Makes a batch (inputs, targets) of a list of samples."""


class CollateError(DataError):
    """The function that makes a batch raised an error."""


class DatasetWithErrorContext(Dataset[Any]):
    """A dataset whose errors name its owner and the sample."""

    def __init__(self, owner: str, dataset: Dataset[Any]) -> None:
        self.owner, self.dataset = owner, dataset

    def __len__(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        try:
            return self.dataset[index]
        except Exception as error:  # a dataset of the user may raise anything
            raise DataError(f"{self.owner}, sample {index}: {_one_line(error)}") from None


@dataclass(frozen=True, repr=False)
class LazyDatasetSamples:
    """The samples of a dataset, read batch by batch."""

    dataset: Dataset[Any]
    collate: Collate = default_collate
    input_type: torch.dtype | None = None
    """The type of inputs that are one tensor; None for int64 where they are whole numbers, else float32."""

    classes: int | None = None
    """Labels must be below this number; 0 for targets that are numbers, None where it is not known."""

    @property
    def size(self) -> int:
        return len(self.dataset)  # type: ignore[arg-type]

    def pieces(self, rows: Rows, batch_size: int, seed: int) -> Iterator[Samples]:
        """One piece for each batch."""
        for begin in range(0, len(rows), batch_size):
            with seeded(torch_seed(seed, "transforms", begin)):
                read = [int(row) for row in rows[begin : begin + batch_size]]
                samples = [self.dataset[row] for row in read]
                try:
                    batch = self._batch(samples)
                except DataError as error:
                    raise self._located(error, read, samples) from None
            yield batch

    def targets(self) -> Tensor:
        """What the dataset offers as `targets`, or the targets of all samples, read one batch after another."""
        offered = offered_targets(self.dataset)
        if offered is not None:
            return _tensor(offered, "targets")
        return torch.cat([piece.y for piece in self.pieces(range(self.size), READ_AT_ONCE, 0)])

    def select(self, rows: NDArray[np.int64]) -> LazyDatasetSamples:
        return replace(self, dataset=Subset(self.dataset, rows.tolist()))

    def load(self) -> Samples:
        pieces = list(self.pieces(range(self.size), READ_AT_ONCE, 0))
        return Samples(concatenate([piece.x for piece in pieces]), torch.cat([piece.y for piece in pieces]))

    def place(self, row: int) -> str:
        """The owner and the number of a sample in the owner's own dataset; empty where it is not known."""
        return _place(self.dataset, row)

    def _located(self, error: DataError, rows: list[int], samples: list[Any]) -> DataError:
        """The error of a batch with the sample that is its cause, if there is one."""
        places = [self.place(row) or f"sample {row}" for row in rows]
        for place, sample in zip(places, samples, strict=True):
            try:
                self._batch([sample])
            except DataError as cause:
                # A function of the user's own may need more than one sample.
                if self.collate is default_collate or not isinstance(cause, CollateError):
                    return DataError(f"{place}: {cause}")
        if self.collate is default_collate:
            forms = [_sample_form(sample) for sample in samples]
            usual = max(forms, key=forms.count)
            for place, form in zip(places, forms, strict=True):
                if form != usual:
                    return DataError(
                        f"{place}: is {form}, but other samples are {usual}; make all alike, or give collate_fn"
                    )
        return error

    def _batch(self, samples: list[Any]) -> Samples:
        """A batch in memory, checked."""
        try:
            batch = self.collate(samples)
        except Exception as error:  # a function of the user may raise anything
            what = "cannot be put into a batch" if self.collate is default_collate else "collate_fn"
            raise CollateError(f"{what}: {_one_line(error)}") from None
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise DataError(f"a batch must be a pair (inputs, targets), got {_describe(batch)}")
        x, y = _inputs(batch[0], self.input_type), _tensor(batch[1], "targets")
        for what, values in (*named_tensors(x).items(), ("targets", y)):
            if values.dim() == 0 or len(values) != len(samples):
                raise DataError(f"{what}: a batch of {len(samples)} samples has the shape {list(values.shape)}")
        self._check_labels(y)
        return Samples(x, y)

    def _check_labels(self, y: Tensor) -> None:
        if self.classes is None:
            return
        if self.classes == 0 and not y.is_floating_point():
            raise DataError("targets: some are labels, others numbers")
        if self.classes and (y.is_floating_point() or int(y.max()) >= self.classes or (y.dim() == 1 and y.min() < 0)):
            wrong = (y != y.round()) | (y >= self.classes) | (y < 0)
            value = (y[wrong] if wrong.any() else y).flatten()[0].item()
            raise DataError(f"targets: labels must be 0, 1, … {self.classes - 1}, got {value}")


def first_and_last(samples: SampleSource) -> list[Samples]:
    """The first and the last sample; none if there are no samples."""
    rows = (0, samples.size - 1) if samples.size else ()
    return [next(samples.pieces(range(row, row + 1), 1, 0)) for row in rows]


def join(parts: Sequence[SampleSource]) -> SampleSource:
    """The samples of several sources, one after another; in memory, unless all are read from datasets."""
    read = [part for part in parts if isinstance(part, LazyDatasetSamples)]
    if len(read) == len(parts):
        return replace(read[0], dataset=ConcatDataset([part.dataset for part in read]))
    loaded = [part.load() for part in parts]
    return Samples(concatenate([part.x for part in loaded]), torch.cat([part.y for part in loaded]))


def offered_targets(dataset: Dataset[Any]) -> Any | None:
    """The targets that a dataset offers without reading its samples; None if it does not."""
    if isinstance(dataset, DatasetWithErrorContext):
        return offered_targets(dataset.dataset)
    if isinstance(dataset, Subset):
        whole = offered_targets(dataset.dataset)
        return None if whole is None else _tensor(whole, "targets")[list(dataset.indices)]
    if isinstance(dataset, ConcatDataset):
        parts = [offered_targets(part) for part in dataset.datasets]
        return None if any(part is None for part in parts) else torch.cat([_tensor(part, "targets") for part in parts])
    if isinstance(dataset, TensorDataset):
        return dataset.tensors[-1]
    return getattr(dataset, "targets", None)


def _place(dataset: Dataset[Any], row: int) -> str:
    if isinstance(dataset, DatasetWithErrorContext):
        return f"{dataset.owner}, sample {row}"
    if isinstance(dataset, Subset):
        return _place(dataset.dataset, dataset.indices[row])
    if isinstance(dataset, ConcatDataset):
        part = bisect_right(dataset.cumulative_sizes, row)
        return _place(dataset.datasets[part], row - (dataset.cumulative_sizes[part - 1] if part else 0))
    return ""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators of PyTorch, NumPy and Python, which transforms draw from, and restore them."""
    with TORCH_GLOBALS:
        states = torch.get_rng_state(), np.random.get_state(), random.getstate()
        torch.default_generator.manual_seed(seed)
        np.random.seed(seed % 2**32)
        random.seed(seed)
        try:
            yield
        finally:
            torch.set_rng_state(states[0])
            np.random.set_state(states[1])
            random.setstate(states[2])


def _inputs(values: Any, wanted: torch.dtype | None) -> Inputs:
    """Inputs as tensors: a mapping as a dict, a tuple or a list of tensors as a tuple, everything else as one tensor.

    PyTorch's `default_collate` makes a list of a tuple.
    """
    if isinstance(values, Mapping) and values and all(isinstance(name, str) for name in values):
        return {name: _part(each, f"inputs[{name!r}]") for name, each in values.items()}
    if isinstance(values, tuple | list) and values and all(isinstance(each, Tensor) for each in values):
        return tuple(_part(each, f"inputs[{place}]") for place, each in enumerate(values))
    return _tensor(values, "inputs", wanted)


def _part(values: Any, what: str) -> Tensor:
    """One of several inputs. Masks stay masks: a model may tell them from numbers."""
    mask = isinstance(values, Tensor) and values.dtype == torch.bool
    return _tensor(values, what, torch.bool if mask else None)


def _tensor(values: Any, what: str, wanted: torch.dtype | None = None) -> Tensor:
    """A tensor of the wanted type; by default int64 for whole numbers, else float32."""
    try:
        tensor = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError):
        several = "a tensor, or a tuple or a dict of tensors"
        allowed = {"inputs": several, "targets": "numbers or a tensor"}.get(what, "a tensor")
        raise DataError(f"{what}: must be {allowed}, got {_describe(values)}") from None
    return tensor.to(wanted or (torch.float32 if tensor.is_floating_point() else torch.int64))


def _sample_form(sample: Any) -> str:
    """What samples of a batch must have in common: their structure, and the shapes of their tensors."""
    if isinstance(sample, Mapping):
        return "{" + ", ".join(f"{name!r}: {_sample_form(each)}" for name, each in sorted(sample.items())) + "}"
    if isinstance(sample, tuple | list):
        return "(" + ", ".join(map(_sample_form, sample)) + ")"
    shape = getattr(sample, "shape", None)
    return type(sample).__name__ if shape is None else f"{type(sample).__name__} of shape {list(shape)}"


def _describe(value: Any) -> str:
    if isinstance(value, tuple | list) and value and isinstance(value[0], str):
        return f"text, such as {value[0]!r}"
    return f"{type(value).__name__} of {len(value)}" if isinstance(value, tuple | list) else type(value).__name__


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
