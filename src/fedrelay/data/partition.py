"""Partitions: how samples are divided among clients.

Every partition takes a NumPy generator and returns `ClientIndices` that are disjoint and complete; the two that leave
samples out (`natural`, `shards`) say so. No code loops over samples, and loops over clients are bounded by the number
of classes that run out.

Sources: McMahan et al. 2017 (shards); Hsu et al. 2019 (Dirichlet per client); Li et al. 2021, MOON, and
Zaccone et al. 2022, FedSeq (Dirichlet per class, one class per client).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import unknown

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PARTITIONS = ("iid", "dirichlet", "dirichlet-class", "shards", "natural", "quantity")
"""The names of all partitions."""

LABEL_FREE = ("iid", "natural", "quantity")
"""The partitions that do not use labels, so they also work with one label per position."""

WITHOUT_ALPHA = ("iid", "natural", "shards")
"""The partitions that do not use alpha."""

DEFAULT_CLIENTS = 100

_ALWAYS_POSSIBLE = tuple(name for name in PARTITIONS if name != "natural")
_NO_CLIENT = -1
_BLOCK = 1024  # clients that are drawn together
_MAX_REDRAWS = 100
_REDRAW_BUDGET = 20_000_000  # clients × classes over all redraws
_ALPHA_LIMITS = (1e-12, 1e12)  # beyond them a draw is one-hot, or the mean, up to rounding


@dataclass(frozen=True)
class ClientIndices:
    """The sample indices of all clients: client k has `indices[offsets[k]:offsets[k + 1]]`."""

    indices: Ints
    offsets: Ints

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    def span(self, client: int) -> slice:
        """The slice of `indices` that belongs to one client."""
        if not 0 <= client < self.clients:
            raise IndexError(f"client {client} does not exist; clients are 0 to {self.clients - 1}")
        return slice(self.offsets.item(client), self.offsets.item(client + 1))

    def of(self, client: int) -> Ints:
        """The sample indices of one client, ascending."""
        return self.indices[self.span(client)]

    def sample_counts(self) -> Ints:
        return np.diff(self.offsets)


def partition_samples(
    name: str,
    labels: Ints,
    owners: Ints | None,
    clients: int | None,
    rng: np.random.Generator,
    *,
    alpha: float,
    shards_per_client: int,
    shard_size: int | None,
    min_samples: int,
) -> ClientIndices:
    """Divide samples among clients by the partition of that name; it ignores settings of other partitions."""
    if name == "natural":
        if owners is None:
            raise SpecError(f"this data set has no natural clients; use one of: {', '.join(_ALWAYS_POSSIBLE)}")
        return natural(owners, clients, rng)
    count = DEFAULT_CLIENTS if clients is None else clients
    match name:
        case "iid":
            return iid(len(labels), count, rng)
        case "quantity":
            return quantity(len(labels), count, alpha, rng)
        case "dirichlet":
            return dirichlet_per_client(labels, count, alpha, rng)
        case "dirichlet-class":
            return dirichlet_per_class(labels, count, alpha, rng, min_samples)
        case "shards":
            return shards(labels, count, shards_per_client, shard_size, rng)
    raise SpecError(unknown("partition", name, PARTITIONS))


def iid(n: int, clients: int, rng: np.random.Generator) -> ClientIndices:
    """Random samples; sizes differ by at most one."""
    _check_clients(n, clients)
    return _assign_at_random(_even(n, clients), rng)


def quantity(n: int, clients: int, alpha: float, rng: np.random.Generator) -> ClientIndices:
    """Random samples; sizes ~ Dirichlet(alpha), at least one sample each."""
    _check_clients(n, clients)
    shares = _normalised(_log_gammas(np.full(clients, _bounded(alpha)), 1, rng))[0]
    return _assign_at_random(1 + _cut(n - clients, shares), rng)


def natural(owners: Ints, clients: int | None, rng: np.random.Generator) -> ClientIndices:
    """The natural clients of the data, renumbered 0, 1, …; or a random part of them, leaving out the others."""
    names, owners = np.unique(owners, return_inverse=True)
    if clients is None:
        return _indices_of(owners, len(names))
    _check_clients(len(names), clients, "natural clients")
    number = np.full(len(names), _NO_CLIENT)
    number[np.sort(rng.choice(len(names), clients, replace=False))] = np.arange(clients)
    return _indices_of(number[owners], clients)


def one_class(labels: Ints, clients: int, rng: np.random.Generator) -> ClientIndices:
    """One class per client (alpha = 0).

    Each class gets a number of clients by the largest-remainder method, at least one, and is split evenly among them.
    If all classes have the same size and their number divides the number of clients, this is FedSeq's rule: sort by
    label and cut into equal parts. With fewer clients than classes, that rule is used.
    """
    _check_labels(labels, clients, "dirichlet with alpha 0")
    order, stock = _shuffled_by_class(labels, rng)
    sizes = _even(len(labels), clients) if clients < len(stock) else _cut_by_class(stock, clients)
    return _assign(order, np.repeat(rng.permutation(clients), sizes), clients)


def shards(
    labels: Ints, clients: int, shards_per_client: int, shard_size: int | None, rng: np.random.Generator
) -> ClientIndices:
    """Shards of one class each; every client gets the same number of random shards.

    Without a size, all samples are used: each class gets its number of shards like the clients in `one_class`. With a
    size, each class is cut into shards of exactly that size; incomplete and unneeded shards are left out.
    """
    _check_labels(labels, clients, "shards")
    if shards_per_client < 1 or (shard_size is not None and shard_size < 1):
        raise SpecError(
            f"shards_per_client and shard_size must be at least 1, got {shards_per_client} and {shard_size}"
        )
    needed = clients * shards_per_client
    order, stock = _shuffled_by_class(labels, rng)
    if shard_size is None:
        if not len(stock) <= needed <= len(labels):
            raise DataError(
                f"cannot cut {len(labels)} samples of {len(stock)} classes into {needed} shards ({clients} clients × "
                f"{shards_per_client}): every class needs at least one shard, and every shard one sample"
            )
        owner = rng.permutation(needed) // shards_per_client
        return _assign(order, np.repeat(owner, _cut_by_class(stock, needed)), clients)
    available = stock // shard_size
    if available.sum() < needed:
        raise DataError(
            f"{clients} clients × {shards_per_client} need {needed} shards of {shard_size} samples, but the "
            f"{len(labels)} samples give only {available.sum()} shards of one class each"
        )
    position = rng.permutation(available.sum())
    owner = np.where(position < needed, position // shards_per_client, _NO_CLIENT)
    owners = np.full(len(labels), _NO_CLIENT)
    owners[_first_of_each(available * shard_size, stock)] = np.repeat(owner, shard_size)
    return _assign(order, owners, clients)


def dirichlet_per_client(labels: Ints, clients: int, alpha: float, rng: np.random.Generator) -> ClientIndices:
    """Equal sizes; the class shares of each client ~ Dirichlet, drawn without replacement (Hsu et al.).

    The shares are Dirichlet(alpha · classes · p), where p are the class shares of the whole data. For equal classes
    this is Dirichlet(alpha), and a large alpha is IID for unequal classes too. Clients draw one after another. When a
    class runs out, the shares of the other classes are renormalised, so the last clients get what is left.
    """
    _check_labels(labels, clients, "dirichlet")
    concentration = _bounded(alpha)
    if alpha == 0:
        return one_class(labels, clients, rng)
    order, stock = _shuffled_by_class(labels, rng)
    mean = stock / len(labels)
    owners = _draw_owners(_even(len(labels), clients), stock, concentration * len(stock) * mean, rng)
    return _assign(order, owners, clients)


def dirichlet_per_class(
    labels: Ints, clients: int, alpha: float, rng: np.random.Generator, min_samples: int = 1
) -> ClientIndices:
    """Each class is divided among the clients ~ Dirichlet(alpha) (FedSeq, MOON).

    A client that already has n / clients samples gets none of the following classes. The draw is repeated until every
    client has `min_samples`, at most 100 times and less often in very large federations. Then the best draw is
    repaired: the largest client gives up a random sample, again and again. Alpha 0 is `one_class`.
    """
    _check_labels(labels, clients, "dirichlet-class")
    if min_samples < 0:
        raise SpecError(f"min_samples must be at least 0, got {min_samples}")
    if min_samples * clients > len(labels):
        raise DataError(f"{len(labels)} samples are too few for {clients} clients: each needs at least {min_samples}")
    concentration = _bounded(alpha)
    if alpha == 0:
        return one_class(labels, clients, rng)
    order, stock = _shuffled_by_class(labels, rng)
    redraws = min(_MAX_REDRAWS, _REDRAW_BUDGET // (clients * len(stock)))
    best, fewest = _spread_classes(stock, clients, concentration, rng)
    for _ in range(redraws):
        if fewest >= min_samples:
            break
        owners, smallest = _spread_classes(stock, clients, concentration, rng)
        if smallest > fewest:
            best, fewest = owners, smallest
    return _assign(order, _raise_to_minimum(best, clients, min_samples, rng), clients)


def _check_clients(available: int, clients: int, what: str = "samples") -> None:
    if clients < 1:
        raise SpecError(f"the number of clients must be at least 1, got {clients}")
    if clients > available:
        raise DataError(f"{available} {what} are too few for {clients} clients")


def _check_labels(labels: Ints, clients: int, rule: str) -> None:
    if labels.ndim == 1 and labels.dtype.kind == "f" and rule.startswith("dirichlet"):
        raise SpecError(
            f"partition {rule!r} needs class labels, but these targets are numbers; use one of: "
            f"{', '.join((*LABEL_FREE, 'shards'))}"
        )
    if labels.ndim != 1:
        raise SpecError(
            f"partition {rule!r} needs one label per sample, but these samples have one label per position; "
            f"use one of: {', '.join(LABEL_FREE)}"
        )
    _check_clients(len(labels), clients)


def _bounded(alpha: float) -> float:
    if math.isnan(alpha) or alpha < 0:
        raise SpecError(f"alpha must be a number ≥ 0, got {alpha}")
    return float(np.clip(alpha, *_ALPHA_LIMITS))


def _indices_of(owners: Ints, clients: int) -> ClientIndices:
    """The indices of each client, from the owner of each sample."""
    sizes = np.bincount(owners[owners != _NO_CLIENT], minlength=clients)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    left_out = len(owners) - offsets[-1]
    return ClientIndices(np.argsort(owners, kind="stable")[left_out:], offsets)


def _assign(order: Ints, owners: Ints, clients: int) -> ClientIndices:
    """The indices of each client, where `owners[i]` owns sample `order[i]`."""
    owner_of_sample = np.empty_like(owners)
    owner_of_sample[order] = owners
    return _indices_of(owner_of_sample, clients)


def _assign_at_random(sizes: Ints, rng: np.random.Generator) -> ClientIndices:
    return _indices_of(rng.permutation(np.repeat(np.arange(len(sizes)), sizes)), len(sizes))


def _shuffled_by_class(labels: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Sample indices sorted by class and shuffled within each class, and the size of each class that occurs."""
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    shuffled = rng.permutation(len(labels))
    return shuffled[np.argsort(classes[shuffled], kind="stable")], sizes


def _first_of_each(wanted: Ints, sizes: Ints) -> NDArray[np.bool_]:
    """A mask of the first `wanted[i]` positions of each run i, for consecutive runs of these sizes."""
    rank = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank < np.repeat(wanted, sizes)


def _even(total: int, parts: int) -> Ints:
    return total // parts + (np.arange(parts) < total % parts)


def _cut(total: int, shares: Floats) -> Ints:
    """Integers in proportion to the shares, with this total."""
    edges = np.minimum(np.cumsum(shares)[:-1] * total, total).astype(np.int64)
    return np.diff(edges, prepend=0, append=total)


def _cut_by_class(stock: Ints, parts: int) -> Ints:
    """The sizes of the parts when each class is split evenly into its number of parts."""
    return np.concatenate([_even(size, share) for size, share in zip(stock, _apportion(parts, stock), strict=True)])


def _apportion(parts: int, weights: Ints) -> Ints:
    """The largest-remainder method with at least one part each, in integers, so that ties are exact."""
    shares = np.ones_like(weights)
    competing = np.ones(len(weights), dtype=bool)
    while True:
        left = parts - np.count_nonzero(~competing)
        quota, remainder = np.divmod(left * weights[competing], weights[competing].sum())
        quota[np.argsort(-remainder, kind="stable")[: left - quota.sum()]] += 1
        if quota.all():
            shares[competing] = quota
            return shares
        competing[competing] = quota > 0


def _log_gammas(concentration: Floats, rows: int, rng: np.random.Generator) -> Floats:
    """Rows of log-gamma draws; normalised they are Dirichlet. In logs, a tiny alpha does not underflow."""
    size = (rows, len(concentration))
    draws = np.log(rng.standard_gamma(concentration + 1, size))
    draws -= rng.standard_exponential(size) / concentration
    return draws


def _normalised(logs: Floats) -> Floats:
    """Shares along the last axis from their logarithms."""
    shares: Floats = np.exp(logs - logs.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def _draw_owners(sizes: Ints, stock: Ints, concentration: Floats, rng: np.random.Generator) -> Ints:
    """The owners of the samples in class order, when clients draw one after another until all are taken."""
    stock = stock.copy()
    owners, classes = [], []
    for start in range(0, len(sizes), _BLOCK):
        block = sizes[start : start + _BLOCK]
        counts = _draw_block(block, stock, _log_gammas(concentration, len(block), rng), rng)
        client, label = np.nonzero(counts)
        owners.append(np.repeat(start + client, counts[client, label]))
        classes.append(np.repeat(label, counts[client, label]))
    return np.concatenate(owners)[np.argsort(np.concatenate(classes), kind="stable")]


def _draw_block(sizes: Ints, stock: Ints, mixes: Floats, rng: np.random.Generator) -> Ints:
    """The number of samples of each class that each client draws, `[clients, classes]`; reduces `stock`.

    It draws for all clients at once, keeps the draws up to the first client for which a class runs short, and draws
    again for the clients after it. Each such interruption uses up a class, so there are at most as many as classes.
    """
    counts = np.zeros((len(sizes), len(stock)), dtype=np.int64)
    first = 0
    while first < len(sizes):
        live = np.flatnonzero(stock)
        drawn = rng.multinomial(sizes[first:], _normalised(mixes[first:, live]))
        short = np.flatnonzero((np.cumsum(drawn, axis=0) > stock[live]).any(axis=1))
        fitting = int(short[0]) if len(short) else len(drawn)
        counts[first : first + fitting, live] = drawn[:fitting]
        stock[live] -= drawn[:fitting].sum(axis=0)
        first += fitting
        if first < len(sizes):
            counts[first, live] = _draw_short(drawn[fitting], stock, live, mixes[first], rng)
            first += 1
    return counts


def _draw_short(wanted: Ints, stock: Ints, live: Ints, mix: Floats, rng: np.random.Generator) -> Ints:
    """Take the wanted samples as far as they are in stock, and draw the rest from the other classes."""
    taken = np.zeros_like(wanted)
    while True:
        got = np.minimum(wanted, stock[live])
        taken += got
        stock[live] -= got
        missing = (wanted - got).sum()
        if missing == 0:
            return taken
        left = np.flatnonzero(stock[live])
        wanted = np.zeros_like(wanted)
        wanted[left] = rng.multinomial(missing, _normalised(mix[live[left]]))


def _spread_classes(stock: Ints, clients: int, concentration: float, rng: np.random.Generator) -> tuple[Ints, int]:
    """One draw of `dirichlet_per_class`: the owners of the samples in class order, and the smallest client's size."""
    sizes = np.zeros(clients, dtype=np.int64)
    owners = []
    for size in stock:
        # While samples remain, some client is below the mean. A fixed order would always favour the same clients.
        open_clients = rng.permutation(np.flatnonzero(sizes * clients < stock.sum()))
        shares = _normalised(_log_gammas(np.full(len(open_clients), concentration), 1, rng))[0]
        counts = _cut(size, shares)
        sizes[open_clients] += counts
        owners.append(np.repeat(open_clients, counts))
    return np.concatenate(owners), int(sizes.min())


def _raise_to_minimum(owners: Ints, clients: int, least: int, rng: np.random.Generator) -> Ints:
    """The owners after the largest clients gave up random samples until all clients have `least`."""
    sizes = np.bincount(owners, minlength=clients)
    lacking = np.maximum(least - sizes, 0)
    given = _taken_from_largest(sizes, int(lacking.sum()))
    shuffled = rng.permutation(len(owners))
    grouped = shuffled[np.argsort(owners[shuffled], kind="stable")]
    result = owners.copy()
    result[grouped[_first_of_each(given, sizes)]] = np.repeat(np.arange(clients), lacking)
    return result


def _taken_from_largest(sizes: Ints, total: int) -> Ints:
    """How many samples each client gives if the currently largest client (the last of equals) gives one, `total`
    times."""
    ordered = np.sort(sizes)[::-1]
    # freed[m - 1]: samples that become free if the m largest clients shrink to the size of the m-th.
    freed = np.cumsum(ordered) - ordered * np.arange(1, len(sizes) + 1)
    givers = int(np.searchsorted(freed, total, side="right"))
    each, extra = divmod(int(ordered[:givers].sum()) - total, givers)
    given = np.maximum(sizes - each, 0)
    keeps_one_more = np.flatnonzero(given)[:extra]
    given[keeps_one_more] -= 1
    return given
