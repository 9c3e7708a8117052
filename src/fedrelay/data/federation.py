"""Federations: clients with their samples, behind one interface for all kinds of data."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.data.dataset import IGNORED_LABEL, Dataset, Scaling
from fedrelay.data.domain_shift import Range, apply_shift, check_shifts
from fedrelay.data.partition import WITHOUT_ALPHA, ClientIndices, Ints, partition_samples
from fedrelay.data.samples import Samples, SampleSource
from fedrelay.errors import DataError, SpecError
from fedrelay.models.nested_inputs import InputShapes
from fedrelay.notebook_display import NotebookDisplay
from fedrelay.rng import generator

Kind = Literal["image", "tabular", "tokens", "signal", "volume"]
SampleKind = Kind | Literal["multi-input"]
Values = Tensor | NDArray[Any] | Sequence[Any]

DEFAULT_ALPHA = 0.5
_DIVIDE_ANEW = "or set a partition, such as dirichlet, which divides the samples anew"
_HASHED_BYTES = 64 * 2**20
_CONVERTED_BYTES = 512 * 2**20


class Federation(Protocol):
    """Clients 0 … clients-1 with their train samples, and one test set for all."""

    @property
    def name(self) -> str:
        """The name of the data, for tables."""

    @property
    def kind(self) -> SampleKind:
        """What a sample is: an image, a row of features, tokens, a signal, a volume, or several inputs."""

    @property
    def client_count(self) -> int:
        """The number of clients."""

    @property
    def class_count(self) -> int:
        """The number of classes; 0 where targets are numbers."""

    @property
    def task(self) -> str:
        """The name of the task that the data are for, unless the experiment names another one."""

    @property
    def sample_shape(self) -> InputShapes:
        """The shape of one model input; several inputs have a tuple or a dict of shapes."""

    @property
    def target_shape(self) -> tuple[int, ...]:
        """The shape of one target: () for one label or number per sample."""

    def sample_count(self, client: int) -> int:
        """The number of samples of one client."""

    def sample_counts(self) -> Ints:
        """The number of samples of every client."""

    @property
    def in_memory(self) -> bool:
        """Whether all samples are tensors in memory. If not, they are read batch by batch."""

    def train_samples(self, client: int) -> SampleSource:
        """The train samples of one client. Do not modify the tensors."""

    def histogram(self, client: int) -> Ints:
        """The number of labels of each class that a client has."""

    @property
    def test(self) -> SampleSource:
        """The test samples; tensors are converted once and cached. Do not modify them."""

    def fingerprint(self) -> str:
        """A hash of the data, to tell whether two federations are the same."""


class ShortRepr(NotebookDisplay):
    """A federation that shows what it holds in one line, in notebooks as a table, instead of all its arrays."""

    def __repr__(self: Federation) -> str:
        samples = f"{int(self.sample_counts().sum()):,} train and {self.test.size:,} test samples"
        counts = f"{self.client_count:,} clients, {samples}, {self.class_count} classes"
        return f"{type(self).__name__}({self.name!r}: {counts})"


@dataclass(frozen=True, repr=False)
class ArrayFederation(ShortRepr):
    """Clients whose samples are rows of the arrays of one data set.

    The arrays are only read. Small data sets are converted to model inputs once; for large ones, `samples` converts the
    samples of one client at a time, to save memory. Client k has the domain shift `shifts[k % len(shifts)]`. The test
    samples are split evenly and at random among `test_shifts`.
    """

    dataset: Dataset
    client_indices: ClientIndices
    seed: int
    shifts: tuple[str, ...] = ()
    test_shifts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_shifts([*self.shifts, *self.test_shifts], self.dataset.kind)

    @property
    def name(self) -> str:
        return self.dataset.name

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def kind(self) -> Kind:
        return self.dataset.kind

    @property
    def client_count(self) -> int:
        return self.client_indices.clients

    @property
    def class_count(self) -> int:
        return self.dataset.classes

    @property
    def task(self) -> str:
        return self.dataset.task

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return self.dataset.shape

    @property
    def target_shape(self) -> tuple[int, ...]:
        return tuple(self.dataset.y_train.shape[1:])

    def sample_count(self, client: int) -> int:
        span = self.client_indices.span(client)
        return int(span.stop - span.start)

    def sample_counts(self) -> Ints:
        return self.client_indices.sample_counts()

    def train_samples(self, client: int) -> Samples:
        """A slice of the converted samples; for large or shifted data, converted at each call."""
        if self._converted is not None:
            return self._converted.rows(self.client_indices.span(client))
        rows = self.client_indices.of(client)
        x = _tensor(self.dataset, self.dataset.x_train[rows])
        if self.shifts:
            shift = self.shifts[client % len(self.shifts)]
            x = apply_shift(shift, x, generator(self.seed, "shift", client), values=self._values)
        return Samples(_scaled(self.dataset, x), torch.from_numpy(self.dataset.y_train[rows]))

    def histogram(self, client: int) -> Ints:
        return class_counts(self.dataset.y_train[self.client_indices.of(client)], self.class_count)

    @cached_property
    def test(self) -> Samples:
        x = _tensor(self.dataset, self.dataset.x_test.copy())
        if self.test_shifts:
            rng = generator(self.seed, "shift", "test")
            part = rng.permutation(len(x)) % len(self.test_shifts)
            for number, shift in enumerate(self.test_shifts):
                rows = torch.from_numpy(part == number)
                x[rows] = apply_shift(shift, x[rows], rng, values=self._values)
        return Samples(_scaled(self.dataset, x), torch.from_numpy(self.dataset.y_test.copy()))

    def fingerprint(self) -> str:
        """A hash of arrays (of very large ones, every n-th row), partition, scaling and shifts."""
        data = self.dataset
        shifted = (self.shifts, self.test_shifts, self.seed) if self.shifts or self.test_shifts else ()
        arrays = (data.x_train, data.y_train, data.x_test, data.y_test)
        partition = (self.client_indices.indices, self.client_indices.offsets)
        return digest(data.name, data.kind, data.classes, data.scaling, shifted, *arrays, *partition)

    @cached_property
    def _converted(self) -> Samples | None:
        """All train samples as model inputs, client by client, if they are not too large."""
        rows = self.client_indices.indices
        if self.shifts or 4 * len(rows) * math.prod(self.sample_shape) > _CONVERTED_BYTES:
            return None
        x = _scaled(self.dataset, _tensor(self.dataset, self.dataset.x_train[rows]))
        return Samples(x, torch.from_numpy(self.dataset.y_train[rows]))

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
    """Partition a data set among clients.

    Args:
        dataset: The data set.
        clients: The number of clients; default 100, or all natural clients.
        partition: The name of a partition (`PARTITIONS`); default see `default_partition`.
        alpha: The concentration of Dirichlet partitions; default 0.5.
        seed: Seed of the partition and of the domain shifts.
        shards_per_client: Only for `shards`.
        shard_size: Only for `shards`.
        min_samples: Only for `dirichlet-class`: the least number of samples of a client.
        shifts: Domain shifts that clients take in turn.
        test_shifts: Domain shifts of the test samples.

    Raises:
        SpecError: A setting is unknown or does not fit the data.
        DataError: The samples cannot be partitioned this way.
    """
    one_label = dataset.classes > 0 and dataset.y_train.ndim == 1  # other partitions refuse such targets themselves
    if not one_label and alpha is not None and (partition is None or partition in WITHOUT_ALPHA):
        raise SpecError(
            "alpha: has no effect without one class label per sample; leave it out, or set partition='quantity', with "
            "which alpha says how much numbers of samples differ"
        )
    client_indices = partition_samples(
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
    return ArrayFederation(dataset, client_indices, seed, tuple(shifts), tuple(test_shifts))


def default_partition(dataset: Dataset, clients: int | None, alpha: float | None) -> str:
    """`natural` if the data set has enough natural clients and no alpha is given; else `dirichlet`.

    `iid` where samples have no single class label that clients could differ in.

    Raises:
        SpecError: The user named the clients, and asks for others.
    """
    known = 0 if dataset.client_train is None else len(np.unique(dataset.client_train))
    if dataset.clients_are_given and alpha is not None:
        raise SpecError(f"alpha: has no effect on clients that the data name; leave it out, {_DIVIDE_ANEW}")
    if dataset.clients_are_given and clients is not None and clients > known:
        raise SpecError(f"clients: the data name {known}, got {clients}; ask for at most {known}, {_DIVIDE_ANEW}")
    if known and alpha is None and (clients is None or clients <= known):
        return "natural"
    return "dirichlet" if dataset.classes > 0 and dataset.y_train.ndim == 1 else "iid"


def federate(
    x: Values,
    y: Values | None = None,
    x_test: Values | None = None,
    y_test: Values | None = None,
    *,
    clients: int | None = None,
    partition: str | None = None,
    alpha: float | None = None,
    seed: int = 1,
    client_ids: Values | None = None,
    client_ids_test: Values | None = None,
    classes: int | None = None,
    kind: Kind | None = None,
    task: str | None = None,
) -> ArrayFederation:
    """Build a federation from your own arrays or tensors. They are checked, not copied.

    Args:
        x: Train inputs: images `[n, channels, height, width]`, features `[n, features]`, tokens `[n, length]`, signals
            `[n, channels, length]` or volumes `[n, channels, depth, height, width]`. Inputs are used as they are,
            except that 8-bit images are scaled to 0 … 1, and that images `[n, height, width, channels]` with 1 or 3
            channels (8-bit images also with 4) are copied to the layout above.
        y: Train targets. Labels 0, 1, …: `[n]`, a label at each position of a token sequence `[n, length]`, or one for
            each pixel `[n, height, width]`. Numbers (floating point): `[n]` or `[n, numbers]`. Several labels per
            sample: 0 or 1 for each, `[n, labels]`.
        x_test: Test inputs of the same shape.
        y_test: Test targets.
        clients: The number of clients; default 100, or all natural clients.
        partition: How samples are divided: iid, dirichlet, dirichlet-class, shards, natural or quantity. The default is
            natural if `client_ids` is given, else dirichlet.
        alpha: The concentration of Dirichlet partitions; 0 means one class per client; default 0.5.
        seed: Seed of the partition.
        client_ids: The natural client of each train sample: numbers or names.
        client_ids_test: The natural client of each test sample; then clients are evaluated on their own test samples
            (`eval.per_client`).
        classes: The number of classes; default: the largest label of `y` plus 1.
        kind: image, tabular, tokens, signal or volume. By default, `[n, length]` integers are tokens and other rows are
            tabular.
        task: The task that the data are for. The default follows from `y`: numbers are for regression, labels for
            classification, several labels for multilabel, labels of pixels for segmentation.

    Returns:
        A federation, to pass as `data=` to `fr.run` and `fr.compare`.

    Raises:
        DataError: An array has the wrong shape, type or values, or cannot be partitioned this way.
        SpecError: A setting is unknown or does not fit the data.

    Example:
        >>> import numpy as np
        >>> import fedrelay as fr
        >>> x, y = np.random.default_rng(0).normal(size=(100, 4)), np.arange(100) % 2
        >>> federation = fr.federate(x[:80], y[:80], x[80:], y[80:], clients=8, partition="iid")
        >>> federation.client_count, federation.sample_count(0)
        (8, 10)
    """
    x_test, y, y_test = _check_arrays(x, y, x_test, y_test)
    train, test = (_with_channels_first(each) for each in (_own_inputs(x, "x"), _own_inputs(x_test, "x_test")))
    if train.shape[1:] != test.shape[1:]:
        raise DataError(f"x and x_test: samples must have the same shape, got {train.shape[1:]} and {test.shape[1:]}")
    kind = own_kind(train, kind)
    targets, test_targets = own_targets(y, train, kind, "y", task), own_targets(y_test, test, kind, "y_test", task)
    if targets.dtype != test_targets.dtype or targets.shape[1:] != test_targets.shape[1:]:
        raise DataError(
            f"y and y_test: must be of the same kind, got {targets.dtype} {list(targets.shape)} and "
            f"{test_targets.dtype} {list(test_targets.shape)}"
        )
    if targets.dtype.kind == "f":
        if classes is not None:
            raise DataError("classes: has no effect, because y holds numbers, not class labels")
        classes = 0
    if task == "binary" and classes not in (None, 2):
        raise DataError(f"classes: the task binary has 2, 0 and 1, got {classes}; for more use task='classification'")
    classes = (2 if task == "binary" else int(targets.max()) + 1) if classes is None else classes
    for what, largest in (("y", targets.max()), ("y_test", test_targets.max())) if classes else ():
        if not 0 <= largest < classes:
            of_task = " of the task binary; for more use task='classification'" if task == "binary" else ""
            raise DataError(f"{what}: the largest label is {largest}, but there are {classes} classes{of_task}")
    owners, names = (None, ()) if client_ids is None else _own_clients(client_ids, len(train))
    if client_ids_test is not None and client_ids is None:
        raise DataError("client_ids_test: needs client_ids, the client of each train sample")
    test_names = {} if client_ids_test is None else {"client": _test_clients(client_ids_test, names, len(test))}
    dataset = Dataset(
        name="own data",
        kind=kind,
        x_train=train,
        y_train=targets,
        x_test=test,
        y_test=test_targets,
        classes=classes,
        scaling=Scaling((0.0,), (1 / 255,)) if kind == "image" and train.dtype == np.uint8 else None,
        client_train=owners,
        client_names=names,
        clients_are_given=owners is not None,
        task=task or task_of_targets(targets, kind),
        test_sample_names=test_names,
    )
    return build_federation(dataset, clients=clients, partition=partition, alpha=alpha, seed=seed)


def class_counts(labels: NDArray[np.int64], classes: int) -> Ints:
    """The number of labels of each class. Ignored labels do not count."""
    if not classes:
        return np.zeros(0, np.int64)
    return np.bincount(labels[labels >= 0], minlength=classes)


def digest(*parts: object) -> str:
    """The SHA-256 of arrays (of huge ones, every n-th row) and of other values by their `repr`."""
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
        raise DataError(f"{what}: must be an array; its rows differ in length") from None


def _check_arrays(
    x: Values, y: Values | None, x_test: Values | None, y_test: Values | None
) -> tuple[Values, Values, Values]:
    """Refuse data sets of PyTorch, missing arrays, and several inputs; a tuple may also hold the samples of one input.

    Returns:
        `x_test`, `y` and `y_test`, which are all there.
    """
    if datasets := [each for each in (x, y, x_test) if _holds_torch_datasets(each)]:
        found = type(datasets[0]).__name__
        raise DataError(f"x: must be an array, got a {found}; for data sets of PyTorch use fr.federate_datasets")
    if y is None or x_test is None or y_test is None:
        missing = "y" if y is None else "x_test" if x_test is None else "y_test"
        raise DataError(f"{missing}: is missing; fr.federate needs x, y, x_test and y_test")
    columns = isinstance(x, tuple) and len(x) != len(y) and all(np.ndim(each) and len(each) == len(y) for each in x)
    if isinstance(x, Mapping) or columns:
        raise DataError(f"x: must be one array, got a {type(x).__name__}; for several inputs use fr.federate_datasets")
    return x_test, y, y_test


def _holds_torch_datasets(values: Any) -> bool:
    """Whether somebody gave a data set or a loader of PyTorch, or several of them."""
    kinds = (torch.utils.data.Dataset, torch.utils.data.DataLoader)
    several = list(values.values()) if isinstance(values, Mapping) else values
    first = several[0] if isinstance(several, list | tuple) and several else None
    return isinstance(values, kinds) or isinstance(first, kinds)


def _with_channels_first(x: NDArray[Any]) -> NDArray[Any]:
    """Images `[n, height, width, channels]` as `[n, channels, height, width]`; all else as it is.

    Channels are last if the last axis is as long as the channels of images are, and no other axis is. 4 counts for
    8-bit images only, because small maps of features have that size, too.
    """
    channels = (1, 3, 4) if x.dtype == np.uint8 else (1, 3)
    last = x.ndim == 4 and x.shape[3] in channels and not {*x.shape[1:3]} & {*channels}
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if last else x


def _own_inputs(values: Values, what: str) -> NDArray[Any]:
    """Inputs as an array: at least one sample, numeric and finite."""
    x = _array(values, what)
    if x.dtype.kind not in "biuf":
        raise DataError(f"{what}: must be numbers, got {x.dtype}")
    if x.ndim < 2 or x.size == 0:
        raise DataError(f"{what}: must have at least one sample with at least one value, got shape {x.shape}")
    if x.dtype.kind == "f":
        with np.errstate(over="ignore"):
            x = x.astype(np.float32, copy=False)
        wrong = ~np.isfinite(x)
        if bad := np.count_nonzero(wrong):
            row = int(wrong.reshape(len(x), -1).any(1).argmax())
            raise DataError(
                f"{what}: {bad} of {x.size} values are not finite float32 numbers, the first in sample {row}"
            )
    return x


def task_of_targets(targets: NDArray[Any], kind: SampleKind) -> str:
    """The task that targets look like."""
    if targets.dtype.kind == "f":
        zero_or_one = targets.ndim == 2 and bool(np.isin(targets, (0, 1)).all())
        return "multilabel" if zero_or_one else "regression"
    return "segmentation" if targets.ndim > 1 and kind in ("image", "signal", "volume") else "classification"


def own_targets(values: Values, x: NDArray[Any], kind: Kind, what: str, task: str | None = None) -> NDArray[Any]:
    """Targets as an array that matches the inputs: int64 labels, or float32 numbers.

    Raises:
        DataError: They have the wrong type, shape or values.
    """
    y = _array(values, what)
    if y.dtype.kind not in "biuf":
        number = "; give every text a number, the same one in y and y_test" if y.dtype.kind in "USTO" else ""
        raise DataError(f"{what}: must be labels (whole numbers) or numbers, got {y.dtype}{number}")
    if len(y) != len(x):
        raise DataError(f"{what}: needs a target for each of {len(x)} samples, got {len(y)}")
    labels_of_positions = {
        "tokens": y.shape[1:] == x.shape[1:],
        "tabular": False,
    }.get(kind, y.shape[1:] == x.shape[2:])  # images and the like: one label for each pixel, whatever the channels
    one_per_label = y.ndim == 2 and not labels_of_positions
    if task is None and y.dtype.kind == "f" and y.ndim == 1 and (y == np.floor(y)).all():
        raise DataError(
            f"{what}: are {y.dtype} but whole numbers: convert class labels to integers, or set task='regression'"
        )
    if y.dtype.kind == "f" or task == "regression" or one_per_label:
        return _own_numbers(y, what, zero_or_one=task == "multilabel" or (one_per_label and y.dtype.kind != "f"))
    if y.ndim > 1 and not labels_of_positions:
        shapes = [f"[{len(x)}]", *([str([len(x), *x.shape[2:]])] if x.ndim > 2 else [str(list(x.shape))])]
        raise DataError(f"{what}: labels must have shape {' or '.join(shapes)}, got {list(y.shape)}")
    counted = y[y != IGNORED_LABEL] if labels_of_positions else y
    if counted.min(initial=0) < 0:
        raise DataError(f"{what}: labels must be integers 0, 1, …, got {counted.min()}")
    return y.astype(np.int64, copy=False)


def _own_numbers(y: NDArray[Any], what: str, *, zero_or_one: bool) -> NDArray[np.float32]:
    if y.ndim > 2:
        whole = np.isfinite(y).all() and bool((y == np.floor(y)).all())
        hint = "; for segmentation convert the masks to whole numbers, such as y.astype(int)" if whole else ""
        raise DataError(f"{what}: numbers must have shape [n] or [n, numbers], got {list(y.shape)}{hint}")
    with np.errstate(over="ignore"):
        numbers = y.astype(np.float32)
    if bad := np.count_nonzero(~np.isfinite(numbers)):
        beyond = f"; numbers beyond {np.finfo(np.float32).max:.2g} are infinite" if np.isfinite(y).all() else ""
        raise DataError(f"{what}: {bad} of {y.size} values are not finite float32 numbers{beyond}")
    if zero_or_one and not np.isin(numbers, (0, 1)).all():
        raise DataError(f"{what}: several labels per sample must be 0 or 1 for each label, [n, labels]")
    return numbers


def _own_clients(client_ids: Values, samples: int) -> tuple[Ints, tuple[str, ...]]:
    """Client ids of any type, renumbered 0, 1, …, and the ids as names."""
    found, numbers = np.unique(_ids(client_ids, "client_ids", samples), return_inverse=True)
    return numbers, tuple(map(str, found.tolist()))


def _test_clients(client_ids: Values, names: Sequence[str], samples: int) -> NDArray[np.str_]:
    """The names of the clients of test samples."""
    found = _ids(client_ids, "client_ids_test", samples).astype(str)
    if unknown := sorted(set(found.tolist()) - set(names)):
        raise DataError(f"client_ids_test: client {unknown[0]!r} has no train samples; client_ids does not name it")
    return found


def _ids(client_ids: Values, what: str, samples: int) -> NDArray[Any]:
    ids = _array(client_ids, what)
    if ids.shape != (samples,):
        raise DataError(f"{what}: must have one entry for each of {samples} samples, got shape {list(ids.shape)}")
    return ids


def own_kind(x: NDArray[Any], kind: Kind | None) -> Kind:
    """The requested kind, if it fits the inputs; by default, the kind that they look like."""
    whole = x.dtype.kind != "f"
    fitting: tuple[Kind, ...] = {
        2: ("tokens", "tabular") if whole else ("tabular",),
        3: ("signal",),
        4: ("image",),
        5: ("volume",),
    }.get(x.ndim, ())
    if not fitting:
        raise DataError(
            f"x: must have shape [n, values] or [n, channels, …] with up to three axes, got {list(x.shape)}"
        )
    if fitting == ("image",) and x.shape[3] in (1, 3) and x.shape[1] not in (1, 3):
        raise DataError(f"x: {list(x.shape)} has its channels last; must be [n, channels, height, width]")
    if kind is not None and kind not in fitting:
        raise DataError(f"x: {x.dtype} of shape {list(x.shape)} can be {' or '.join(fitting)}, not {kind!r}")
    kind = kind or fitting[0]
    if kind == "tokens" and x.min() < 0:
        raise DataError(f"x: tokens must be integers 0, 1, …, got {x.min()}; for tabular data set kind='tabular'")
    return kind


def _tensor(dataset: Dataset, x: NDArray[np.generic]) -> Tensor:
    """An array that nobody else uses, as a tensor of the type that models expect."""
    return torch.from_numpy(x.astype(np.int64 if dataset.kind == "tokens" else np.float32, copy=False))


def _scaled(dataset: Dataset, x: Tensor) -> Tensor:
    """Raw values scaled to model inputs; may modify `x`."""
    if dataset.scaling is None:
        return x.contiguous()
    per_channel = (-1, *(1 for _ in x.shape[2:]))
    shift = torch.tensor(dataset.scaling.shift).view(per_channel)
    scale = torch.tensor(dataset.scaling.scale).view(per_channel)
    return x.contiguous().sub_(shift).mul_(scale)
