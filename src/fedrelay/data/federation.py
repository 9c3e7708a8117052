"""Federations: who holds what, and one way to look at it whatever the data are."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL, Dataset, Scaling
from fedrelay.data.partition import ClientIndices, Ints, deal_out
from fedrelay.data.shift import Range, apply_shift, check_shifts
from fedrelay.errors import DataError
from fedrelay.rng import generator

Kind = Literal["image", "tabular", "tokens"]
Values = Tensor | NDArray[Any] | Sequence[Any]

DEFAULT_ALPHA = 0.5
_HASHED_BYTES = 64 * 2**20
_CONVERTED_BYTES = 512 * 2**20


class Samples(NamedTuple):
    """Model inputs (float32, or int64 tokens) and their labels (int64)."""

    x: Tensor
    y: Tensor


class Federation(Protocol):
    """Clients 0 … clients-1 with their train samples, and one test set for all."""

    @property
    def name(self) -> str:
        """What tables call the data."""

    @property
    def kind(self) -> Kind:
        """What a sample is."""

    @property
    def clients(self) -> int:
        """How many clients there are."""

    @property
    def classes(self) -> int:
        """How many classes there are."""

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one model input."""

    def size(self, client: int) -> int:
        """The number of samples of one client."""

    def sizes(self) -> Ints:
        """The number of samples of every client."""

    def samples(self, client: int) -> Samples:
        """The samples of one client, the same at every visit; not to be written to."""

    def histogram(self, client: int) -> Ints:
        """How many labels of every class a client has."""

    @property
    def test(self) -> Samples:
        """The test samples; converted once and kept, so not to be written to."""

    def fingerprint(self) -> str:
        """A digest of what defines the data, to tell whether two federations are the same."""


class ShortRepr:
    """A federation that shows what it holds in one line instead of all its arrays."""

    def __repr__(self: Federation) -> str:
        samples = f"{int(self.sizes().sum()):,} train and {len(self.test.y):,} test samples"
        return f"{type(self).__name__}({self.name!r}: {self.clients:,} clients, {samples}, {self.classes} classes)"


@dataclass(frozen=True, repr=False)
class ArrayFederation(ShortRepr):
    """Clients that share the arrays of a data set.

    The arrays are only read. Data that take little room as model inputs are converted once; of larger data a visit
    converts the client's own samples, so that memory does not multiply.
    Client k takes the shift `shifts[k % len(shifts)]`. The test samples are divided evenly and at random
    among `test_shifts`, or left as they are.
    """

    dataset: Dataset
    holdings: ClientIndices
    seed: int
    shifts: tuple[str, ...] = ()
    test_shifts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check the shifts before the first visit."""
        check_shifts([*self.shifts, *self.test_shifts], self.dataset.kind)

    @property
    def name(self) -> str:
        """The name of the data set."""
        return self.dataset.name

    @property
    def kind(self) -> Kind:
        """What a sample is."""
        return self.dataset.kind

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return self.holdings.clients

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.dataset.classes

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.dataset.shape

    def size(self, client: int) -> int:
        """The number of samples of one client."""
        span = self.holdings.span(client)
        return int(span.stop - span.start)

    def sizes(self) -> Ints:
        """The number of samples of every client."""
        return self.holdings.sizes()

    def samples(self, client: int) -> Samples:
        """The samples of one client: a slice of what was converted once, or converted and shifted afresh."""
        if self._converted is not None:
            span = self.holdings.span(client)
            return Samples(self._converted.x[span], self._converted.y[span])
        held = self.holdings.of(client)
        x = _tensor(self.dataset, self.dataset.x_train[held])
        if self.shifts:
            shift = self.shifts[client % len(self.shifts)]
            x = apply_shift(shift, x, generator(self.seed, "shift", client), values=self._values)
        return Samples(_scaled(self.dataset, x), torch.from_numpy(self.dataset.y_train[held]))

    def histogram(self, client: int) -> Ints:
        """How many labels of every class a client has."""
        return class_counts(self.dataset.y_train[self.holdings.of(client)], self.classes)

    @cached_property
    def test(self) -> Samples:
        """The test samples."""
        x = _tensor(self.dataset, self.dataset.x_test.copy())
        if self.test_shifts:
            rng = generator(self.seed, "shift", "test")
            turn = rng.permutation(len(x)) % len(self.test_shifts)
            for position, shift in enumerate(self.test_shifts):
                chosen = torch.from_numpy(turn == position)
                x[chosen] = apply_shift(shift, x[chosen], rng, values=self._values)
        return Samples(_scaled(self.dataset, x), torch.from_numpy(self.dataset.y_test.copy()))

    def fingerprint(self) -> str:
        """A digest of arrays (every so many rows of very large ones), holdings, scaling and shifts."""
        data = self.dataset
        shifted = (self.shifts, self.test_shifts, self.seed) if self.shifts or self.test_shifts else ()
        arrays = (data.x_train, data.y_train, data.x_test, data.y_test)
        held = (self.holdings.indices, self.holdings.offsets)
        return digest(data.name, data.kind, data.classes, data.scaling, shifted, *arrays, *held)

    @cached_property
    def _converted(self) -> Samples | None:
        """All train samples as model inputs, client after client, where they fit into memory twice."""
        held = self.holdings.indices
        if self.shifts or 4 * len(held) * math.prod(self.sample_shape) > _CONVERTED_BYTES:
            return None
        x = _scaled(self.dataset, _tensor(self.dataset, self.dataset.x_train[held]))
        return Samples(x, torch.from_numpy(self.dataset.y_train[held]))

    @cached_property
    def _values(self) -> Range:
        return float(self.dataset.x_train.min()), float(self.dataset.x_train.max())


def build_federation(
    dataset: Dataset,
    *,
    clients: int | None = None,
    partition: str | None = None,
    alpha: float | None = None,
    seed: int = 1,
    shards_per_client: int = 2,
    shard_size: int | None = None,
    min_samples: int = 1,
    shifts: Sequence[str] = (),
    test_shifts: Sequence[str] = (),
) -> ArrayFederation:
    """Deal out a data set by a named rule; settings that the rule does not know are of no effect.

    Without a name the rule is that of `default_partition`; without a number there are 100 clients, or all
    natural holders; without an alpha it is 0.5.
    """
    holdings = deal_out(
        default_partition(dataset, clients, alpha) if partition is None else partition,
        dataset.y_train,
        dataset.client_train,
        clients,
        generator(seed, "partition"),
        alpha=DEFAULT_ALPHA if alpha is None else alpha,
        shards_per_client=shards_per_client,
        shard_size=shard_size,
        min_samples=min_samples,
    )
    return ArrayFederation(dataset, holdings, seed, tuple(shifts), tuple(test_shifts))


def default_partition(dataset: Dataset, clients: int | None, alpha: float | None) -> str:
    """`natural` where there are holders, enough for the clients wanted, and no alpha is; else `dirichlet`."""
    owner = dataset.client_train
    enough = owner is not None and (clients is None or clients <= len(np.unique(owner)))
    return "natural" if enough and alpha is None else "dirichlet"


def federate(
    x: Values,
    y: Values,
    x_test: Values,
    y_test: Values,
    *,
    clients: int | None = None,
    partition: str | None = None,
    alpha: float | None = None,
    seed: int = 1,
    client_ids: Values | None = None,
    classes: int | None = None,
    kind: Kind | None = None,
) -> ArrayFederation:
    """A federation over your own arrays or tensors, which are checked and not copied.

    Images are `[n, channels, height, width]`; rows `[n, length]` of whole numbers are tokens, other rows
    `[n, features]` are tabular, unless `kind` says otherwise. Inputs are taken as they are, but 8-bit images
    are scaled to 0 … 1. `client_ids` names the natural holder of every train sample. There are as many
    `classes` as the labels of `y` need, unless told. The rest is as in `build_federation`.
    """
    train, test = _own_inputs(x, "x"), _own_inputs(x_test, "x_test")
    if train.shape[1:] != test.shape[1:]:
        raise DataError(f"x and x_test: samples of different shape, {train.shape[1:]} and {test.shape[1:]}")
    kind = _own_kind(train, kind)
    labels, test_labels = _own_labels(y, train, kind, "y"), _own_labels(y_test, test, kind, "y_test")
    classes = int(labels.max()) + 1 if classes is None else classes
    for what, most in (("y", labels.max()), ("y_test", test_labels.max())):
        if not 0 <= most < classes:
            raise DataError(f"{what}: the greatest label is {most}, it must lie within the {classes} classes")
    dataset = Dataset(
        name="own data",
        kind=kind,
        x_train=train,
        y_train=labels,
        x_test=test,
        y_test=test_labels,
        classes=classes,
        scaling=Scaling((0.0,), (1 / 255,)) if kind == "image" and train.dtype == np.uint8 else None,
        client_train=None if client_ids is None else _own_holders(client_ids, len(train)),
    )
    return build_federation(dataset, clients=clients, partition=partition, alpha=alpha, seed=seed)


def class_counts(labels: NDArray[np.int64], classes: int) -> Ints:
    """How many labels of every class there are; ignored labels count nowhere."""
    return np.bincount(labels[labels >= 0], minlength=classes)


def digest(*parts: object) -> str:
    """The sha256 of arrays (every so many rows of huge ones) and of anything with a faithful `repr`."""
    state = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            state.update(f"{part.dtype.str}{part.shape}".encode())
            state.update(np.ascontiguousarray(part[:: 1 + part.nbytes // _HASHED_BYTES]).data)
        else:
            state.update(f"{part!r}\x1f".encode())
    return state.hexdigest()


def _array(values: Values, what: str) -> NDArray[Any]:
    if isinstance(values, Tensor):
        values = values.detach().cpu()
        return (values.float() if values.is_floating_point() else values).numpy()
    try:
        return np.asarray(values)
    except ValueError:
        raise DataError(f"{what}: an array is needed, got rows of different length") from None


def _own_inputs(values: Values, what: str) -> NDArray[Any]:
    """Inputs as an array with at least one sample, numeric and finite."""
    x = _array(values, what)
    if x.dtype.kind not in "biuf":
        raise DataError(f"{what}: numbers are needed, got {x.dtype}")
    if x.ndim < 2 or x.size == 0:
        raise DataError(f"{what}: at least one sample of at least one value is needed, got shape {x.shape}")
    if x.dtype.kind == "f":
        with np.errstate(over="ignore"):
            x = x.astype(np.float32, copy=False)
        if infinite := np.count_nonzero(~np.isfinite(x)):
            raise DataError(f"{what}: {infinite} of {x.size} values are not finite float32 numbers")
    return x


def _own_labels(values: Values, x: NDArray[Any], kind: Kind, what: str) -> NDArray[np.int64]:
    """Labels as an array that fits the inputs."""
    y = _array(values, what)
    if y.dtype.kind not in "iu":
        raise DataError(f"{what}: labels are whole numbers 0, 1, …, got {y.dtype}")
    per_position = kind == "tokens" and y.shape == x.shape
    if y.shape != (len(x),) and not per_position:
        shapes = f"[{len(x)}] or {list(x.shape)}" if kind == "tokens" else f"[{len(x)}]"
        raise DataError(f"{what}: labels of shape {shapes} are needed, got {list(y.shape)}")
    counted = y[y != IGNORED_LABEL] if per_position else y
    if counted.min(initial=0) < 0:
        raise DataError(f"{what}: labels are whole numbers 0, 1, …, got {counted.min()}")
    return y.astype(np.int64, copy=False)


def _own_holders(client_ids: Values, samples: int) -> Ints:
    """Client ids of any type as 0, 1, …"""
    owner = _array(client_ids, "client_ids")
    if owner.shape != (samples,):
        raise DataError(f"client_ids: one for each of {samples} samples is needed, got {list(owner.shape)}")
    return np.unique(owner, return_inverse=True)[1]


def _own_kind(x: NDArray[Any], kind: Kind | None) -> Kind:
    """The kind asked for, if the inputs can be that, or the one they look like."""
    whole = x.dtype.kind != "f"
    fitting: tuple[Kind, ...] = {2: ("tokens", "tabular") if whole else ("tabular",), 4: ("image",)}.get(x.ndim, ())
    if not fitting:
        raise DataError(f"x: [n, values] or [n, channels, height, width] is needed, got {list(x.shape)}")
    if fitting == ("image",) and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        raise DataError(f"x: {list(x.shape)} has channels last, [n, channels, height, width] is needed")
    if kind is not None and kind not in fitting:
        raise DataError(f"x: {x.dtype} of shape {list(x.shape)} can be {' or '.join(fitting)}, not {kind!r}")
    kind = kind or fitting[0]
    if kind == "tokens" and x.min() < 0:
        raise DataError(f"x: tokens are whole numbers 0, 1, …, got {x.min()}; tabular data need kind='tabular'")
    return kind


def _tensor(dataset: Dataset, x: NDArray[np.generic]) -> Tensor:
    """An array of which nobody else has a copy, as a tensor of the models' own type."""
    return torch.from_numpy(x.astype(np.int64 if dataset.kind == "tokens" else np.float32, copy=False))


def _scaled(dataset: Dataset, x: Tensor) -> Tensor:
    """Raw values as model inputs, contiguous; may write to `x`."""
    if dataset.scaling is None:
        return x.contiguous()
    per_channel = (-1, *(1 for _ in x.shape[2:]))
    shift = torch.tensor(dataset.scaling.shift).view(per_channel)
    scale = torch.tensor(dataset.scaling.scale).view(per_channel)
    return x.contiguous().sub_(shift).mul_(scale)
