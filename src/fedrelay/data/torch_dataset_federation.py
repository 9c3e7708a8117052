"""Federations of your own `torch.utils.data.Dataset`s, which may be larger than memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, default_collate

from fedrelay.data.federation import Kind, SampleKind, ShortRepr, class_counts, digest, own_kind, task_of_targets
from fedrelay.data.lazy_dataset_samples import (
    Collate,
    DatasetWithErrorContext,
    LazyDatasetSamples,
    first_and_last,
    offered_targets,
)
from fedrelay.data.partition import Ints
from fedrelay.data.samples import Samples
from fedrelay.errors import DataError
from fedrelay.models.nested_inputs import Inputs, InputShapes, map_inputs, shapes_of


@dataclass(frozen=True, repr=False)
class TorchDatasetFederation(ShortRepr):
    """Clients whose samples are read from datasets, batch by batch."""

    name: str
    client_names: tuple[str, ...]
    train: tuple[LazyDatasetSamples, ...]
    test: LazyDatasetSamples
    kind: SampleKind
    class_count: int
    task: str
    sample_shape: InputShapes
    target_shape: tuple[int, ...]

    @property
    def client_count(self) -> int:
        return len(self.train)

    @property
    def in_memory(self) -> bool:
        return False

    def sample_count(self, client: int) -> int:
        return self.train[client].size

    def sample_counts(self) -> Ints:
        return np.array([samples.size for samples in self.train], dtype=np.int64)

    def train_samples(self, client: int) -> LazyDatasetSamples:
        return self.train[client]

    def histogram(self, client: int) -> Ints:
        """Counted when first needed: from the dataset's `targets`, or by reading all samples once."""
        if client not in self._histograms:
            labels = self.train[client].targets().numpy() if self.train[client].size else np.zeros(0, np.int64)
            self._histograms[client] = class_counts(labels, self.class_count)
        return self._histograms[client]

    def fingerprint(self) -> str:
        """A hash of names, sizes, and the first and last sample of every dataset: hashing all would read all."""
        ends = [piece for samples in (*self.train, self.test) for piece in first_and_last(samples)]
        what = (self.name, self.client_names, self.kind, self.class_count, self.task)
        sizes = (self.sample_counts(), self.test.size)
        names = tuple(self.sample_shape) if isinstance(self.sample_shape, dict) else ()
        return digest("datasets", *what, *names, *sizes, *(part.numpy() for piece in ends for part in piece.tensors))

    @cached_property
    def _histograms(self) -> dict[int, Ints]:
        return {}


def federate_datasets(
    train: Mapping[str, Dataset[Any]] | Sequence[Dataset[Any]],
    test: Dataset[Any],
    *,
    collate_fn: Collate | None = None,
    classes: int | None = None,
    kind: Kind | None = None,
    task: str | None = None,
    name: str = "own data",
) -> TorchDatasetFederation:
    """Build a federation from map-style datasets. Samples are read as they are trained and may be larger than memory.

    A sample is a pair (input, target). An input is a tensor, or several: a dict of tensors, which a model takes by name
    (`model(**inputs)`), or a tuple, which it takes in order (`model(*inputs)`).

    Transforms run whenever a sample is read. Their randomness (PyTorch, NumPy, Python's `random`) is seeded for each
    batch of a hop, so results do not depend on the number of workers.

    Args:
        train: One dataset for each client, by name or in order.
        test: The test samples.
        collate_fn: Makes a batch (inputs, targets) of a list of samples; default PyTorch's. Several inputs may be
            padded to the longest sample of their batch.
        classes: The number of classes. By default found in the attribute `targets` of the train datasets, if all have
            one. Not for targets that are numbers.
        kind: image, tabular, tokens, signal or volume; default: what the samples look like. Not for several inputs.
        task: The task that the data are for; the default follows from the targets, as in `federate`.
        name: The name of the data, for tables.

    Returns:
        A federation, to pass as `data=` to `fr.run` and `fr.compare`.

    Raises:
        DataError: A dataset is empty, cannot be read, or its samples have the wrong shape or type.

    Example:
        >>> import torch
        >>> from torch.utils.data import TensorDataset
        >>> import fedrelay as fr
        >>> x, y = torch.randn(40, 4), torch.arange(40) % 2
        >>> clients = {"north": TensorDataset(x[:10], y[:10]), "south": TensorDataset(x[10:30], y[10:30])}
        >>> federation = fr.federate_datasets(clients, TensorDataset(x[30:], y[30:]))
        >>> federation.sample_counts().tolist(), federation.class_count
        ([10, 20], 2)
    """
    named = dict(train) if isinstance(train, Mapping) else {str(number): each for number, each in enumerate(train)}
    if not named:
        raise DataError("train: needs at least one dataset")
    collate: Collate = default_collate if collate_fn is None else collate_fn
    parts = [
        LazyDatasetSamples(
            DatasetWithErrorContext(f"client {client!r}", _map_style(dataset, f"train[{client!r}]")), collate
        )
        for client, dataset in named.items()
    ]
    tests = LazyDatasetSamples(DatasetWithErrorContext("test set", _map_style(test, "test")), collate)
    if not tests.size:
        raise DataError("test: has no samples")
    if not any(part.size for part in parts):
        raise DataError("train: no client has samples")
    x, y = _first(tests)
    sample_kind, targets = _kind(x, kind), y.numpy()
    if y.is_floating_point():
        if classes is not None:
            raise DataError("classes: has no effect, because targets are numbers, not class labels")
        classes = 0
    elif classes is None:
        classes = _classes([part for part in parts if part.size])
    if task == "binary" and classes != 2:
        raise DataError(f"classes: the task binary has 2, 0 and 1, got {classes}; set classes=2, or another task")
    of_kind = torch.int64 if sample_kind == "tokens" else torch.float32
    input_type = of_kind if isinstance(x, Tensor) else None
    federation = TorchDatasetFederation(
        name=name,
        client_names=tuple(map(str, named)),
        train=tuple(replace(part, input_type=input_type, classes=classes) for part in parts),
        test=replace(tests, input_type=input_type, classes=classes),
        kind=sample_kind,
        class_count=classes,
        task=task or task_of_targets(targets, sample_kind),
        sample_shape=shapes_of(x),
        target_shape=tuple(y.shape[1:]),
    )
    _check_first_samples(federation)
    return federation


def _check_first_samples(federation: TorchDatasetFederation) -> None:
    """Read one sample of every dataset, so that a mistake is found before anything is trained."""
    wanted = _first(federation.test)
    for client, samples in zip(federation.client_names, federation.train, strict=True):
        if not samples.size:
            continue
        found = _first(samples)
        if (_form(found.x), found.y.shape) != (_form(wanted.x), wanted.y.shape):
            (x, y), (test_x, test_y) = (map(shapes_of, each) for each in (found, wanted))
            raise DataError(
                f"client {client!r}: inputs and targets have the shapes {x} and {y} per sample, "
                f"those of the test set {test_x} and {test_y}"
            )


def _form(x: Inputs) -> object:
    """What all datasets must have in common: the shape, or the names and numbers of axes of several inputs."""
    return shapes_of(x) if isinstance(x, Tensor) else map_inputs(Tensor.dim, x)


def _kind(x: Inputs, wanted: Kind | None) -> SampleKind:
    if isinstance(x, Tensor):
        return own_kind(x.numpy(), wanted)
    if wanted is not None:
        raise DataError(f"kind: has no effect, because samples have several inputs, got {wanted!r}")
    return "multi-input"


def _map_style(dataset: Any, what: str) -> Dataset[Any]:
    if isinstance(dataset, IterableDataset) or not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
        raise DataError(f"{what}: must be a dataset with __getitem__ and __len__, got {type(dataset).__name__}")
    found: Dataset[Any] = dataset
    return found


def _first(samples: LazyDatasetSamples) -> Samples:
    return next(samples.pieces(range(1), 1, 0))


def _classes(parts: Sequence[LazyDatasetSamples]) -> int:
    if any(offered_targets(part.dataset) is None for part in parts):
        raise DataError("classes: give the number of classes; not all train datasets have the attribute 'targets'")
    return max(int(part.targets().max()) + 1 for part in parts)
