"""Partitions: the rules that say which client holds which samples.

Every rule takes a NumPy generator and returns `ClientIndices` that are disjoint and complete; the two that leave
samples out, because the rule itself demands it, say so. Nothing here loops over samples, or over clients
beyond what exhausted classes force.

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
"""The names of the rules in experiments."""

LABEL_FREE = ("iid", "natural", "quantity")
"""The rules that do not look at labels, hence the ones for a label at every position."""

DEFAULT_CLIENTS = 100

_DRAWN = tuple(name for name in PARTITIONS if name != "natural")
_NOBODY = -1
_BLOCK = 1024  # clients drawn for at once
_MAX_REDRAWS = 100
_REDRAW_BUDGET = 20_000_000  # clients × classes over all redraws
_ALPHA_LIMITS = (1e-12, 1e12)  # beyond them a draw is one-hot, or the mean, to the last bit that matters


@dataclass(frozen=True)
class ClientIndices:
    """Who holds what: the samples of client k are `indices[offsets[k]:offsets[k + 1]]`."""

    indices: Ints
    offsets: Ints

    @property
    def clients(self) -> int:
        """How many clients there are."""
        return len(self.offsets) - 1

    def span(self, client: int) -> slice:
        """Where the samples of one client lie when all are in the order of `indices`."""
        if not 0 <= client < self.clients:
            raise IndexError(f"client {client} does not exist, there are {self.clients} (0 to {self.clients - 1})")
        return slice(int(self.offsets[client]), int(self.offsets[client + 1]))

    def of(self, client: int) -> Ints:
        """The sample ids of one client, ascending."""
        return self.indices[self.span(client)]

    def sizes(self) -> Ints:
        """The number of samples of every client."""
        return np.diff(self.offsets)


def deal_out(
    name: str,
    labels: Ints,
    owner: Ints | None,
    clients: int | None,
    rng: np.random.Generator,
    *,
    alpha: float,
    shards_per_client: int,
    shard_size: int | None,
    min_samples: int,
) -> ClientIndices:
    """Follow the rule of that name; settings that it does not know are of no effect."""
    if name == "natural":
        if owner is None:
            raise SpecError(f"these samples have no natural holders; partitions that fit: {', '.join(_DRAWN)}")
        return natural(owner, clients, rng)
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
    """Samples dealt at random, sizes equal up to one."""
    _check_clients(n, clients)
    return _deal_at_random(_even(n, clients), rng)


def quantity(n: int, clients: int, alpha: float, rng: np.random.Generator) -> ClientIndices:
    """Samples dealt at random, sizes ~ Dirichlet(alpha) with at least one sample each."""
    _check_clients(n, clients)
    shares = _normalised(_log_gammas(np.full(clients, _bounded(alpha)), 1, rng))[0]
    return _deal_at_random(1 + _cut(n - clients, shares), rng)


def natural(owner: Ints, clients: int | None, rng: np.random.Generator) -> ClientIndices:
    """The data's own holders, renumbered 0, 1, …; or that many of them at random, the others left out."""
    holders, owner = np.unique(owner, return_inverse=True)
    if clients is None:
        return _held_by(owner, len(holders))
    _check_clients(len(holders), clients, "natural holders")
    number = np.full(len(holders), _NOBODY)
    number[np.sort(rng.choice(len(holders), clients, replace=False))] = np.arange(clients)
    return _held_by(number[owner], clients)


def one_class(labels: Ints, clients: int, rng: np.random.Generator) -> ClientIndices:
    """One class per client (alpha = 0).

    Clients are apportioned to classes by largest remainder, at least one each, and every class is cut evenly
    among its clients. Where the classes are equal and their number divides the clients', this is FedSeq's
    rule: sort by label, cut into equal parts. With fewer clients than classes only that rule is left.
    """
    _check_labels(labels, clients, "dirichlet with alpha 0")
    order, stock = _shuffled_by_class(labels, rng)
    sizes = _even(len(labels), clients) if clients < len(stock) else _cut_by_class(stock, clients)
    return _deal(order, np.repeat(rng.permutation(clients), sizes), clients)


def shards(
    labels: Ints, clients: int, shards_per_client: int, shard_size: int | None, rng: np.random.Generator
) -> ClientIndices:
    """Shards of one class each, dealt at random, the same number to every client.

    Without a size all samples are used: shards are apportioned to classes like clients in `one_class`.
    With a size every class is cut into shards of exactly that many; what does not fill a shard, and shards
    beyond those needed, are left out.
    """
    _check_labels(labels, clients, "shards")
    if shards_per_client < 1 or (shard_size is not None and shard_size < 1):
        raise SpecError(f"shards need positive numbers, got {shards_per_client} per client of size {shard_size}")
    needed = clients * shards_per_client
    order, stock = _shuffled_by_class(labels, rng)
    if shard_size is None:
        if not len(stock) <= needed <= len(labels):
            raise DataError(
                f"{needed} shards ({clients} clients × {shards_per_client}) do not fit {len(labels)} samples "
                f"of {len(stock)} classes: every class needs a shard and every shard a sample"
            )
        holder = rng.permutation(needed) // shards_per_client
        return _deal(order, np.repeat(holder, _cut_by_class(stock, needed)), clients)
    available = stock // shard_size
    if available.sum() < needed:
        raise DataError(
            f"{needed} shards of {shard_size} samples ({clients} clients × {shards_per_client}) are needed, "
            f"the {len(labels)} samples yield {available.sum()} of one class each"
        )
    dealt = rng.permutation(available.sum())
    holder = np.where(dealt < needed, dealt // shards_per_client, _NOBODY)
    owners = np.full(len(labels), _NOBODY)
    owners[_first_of_each(available * shard_size, stock)] = np.repeat(holder, shard_size)
    return _deal(order, owners, clients)


def dirichlet_per_client(labels: Ints, clients: int, alpha: float, rng: np.random.Generator) -> ClientIndices:
    """Equal sizes; every client's class mix ~ Dirichlet, drawn without replacement (Hsu et al.).

    The mix is Dirichlet(alpha · classes · p) with p the class shares of the whole data, which is
    Dirichlet(alpha) for equal classes; a large alpha is IID also for unequal ones. Clients draw in turn; a
    class that is used up drops out and the mix is renormalised, so late clients hold what is left.
    """
    _check_labels(labels, clients, "dirichlet")
    concentration = _bounded(alpha)
    if alpha == 0:
        return one_class(labels, clients, rng)
    order, stock = _shuffled_by_class(labels, rng)
    mean = stock / len(labels)
    owners = _draw_mixes(_even(len(labels), clients), stock, concentration * len(stock) * mean, rng)
    return _deal(order, owners, clients)


def dirichlet_per_class(
    labels: Ints, clients: int, alpha: float, rng: np.random.Generator, min_samples: int = 1
) -> ClientIndices:
    """Every class spread over the clients ~ Dirichlet(alpha) (FedSeq, MOON).

    Who already holds n / clients samples gets none of the classes that follow. The draw is repeated until
    every client has `min_samples`, at most 100 times and less often in very large federations. Then the best
    draw is repaired: always the largest client hands over a random sample. Alpha 0 is `one_class`, as it is.
    """
    _check_labels(labels, clients, "dirichlet-class")
    if min_samples < 0:
        raise SpecError(f"min_samples must be at least 0, got {min_samples}")
    if min_samples * clients > len(labels):
        raise DataError(f"{clients} clients cannot hold at least {min_samples} of {len(labels)} samples each")
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
    return _deal(order, _level(best, clients, min_samples, rng), clients)


def _check_clients(available: int, clients: int, what: str = "samples") -> None:
    if clients < 1:
        raise SpecError(f"the number of clients must be at least 1, got {clients}")
    if clients > available:
        raise DataError(f"{clients} clients cannot share {available} {what}: that is less than one each")


def _check_labels(labels: Ints, clients: int, rule: str) -> None:
    if labels.ndim != 1:
        raise SpecError(
            f"partition {rule!r} needs one label per sample, these samples have one at every position; "
            f"partitions that fit: {', '.join(LABEL_FREE)}"
        )
    _check_clients(len(labels), clients)


def _bounded(alpha: float) -> float:
    if math.isnan(alpha) or alpha < 0:
        raise SpecError(f"alpha must be a number ≥ 0, got {alpha}")
    return float(np.clip(alpha, *_ALPHA_LIMITS))


def _held_by(owners: Ints, clients: int) -> ClientIndices:
    """Holdings from the owner of every sample."""
    sizes = np.bincount(owners[owners != _NOBODY], minlength=clients)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    left_out = len(owners) - offsets[-1]
    return ClientIndices(np.argsort(owners, kind="stable")[left_out:], offsets)


def _deal(order: Ints, owners: Ints, clients: int) -> ClientIndices:
    """Holdings where `owners[i]` owns sample `order[i]`."""
    owner_of_sample = np.empty_like(owners)
    owner_of_sample[order] = owners
    return _held_by(owner_of_sample, clients)


def _deal_at_random(sizes: Ints, rng: np.random.Generator) -> ClientIndices:
    return _held_by(rng.permutation(np.repeat(np.arange(len(sizes)), sizes)), len(sizes))


def _shuffled_by_class(labels: Ints, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Sample ids sorted by class and shuffled within, and the size of every class that occurs."""
    _, classes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    shuffled = rng.permutation(len(labels))
    return shuffled[np.argsort(classes[shuffled], kind="stable")], sizes


def _first_of_each(wanted: Ints, sizes: Ints) -> NDArray[np.bool_]:
    """Where the first `wanted[i]` places of every run i are, when runs of these sizes follow each other."""
    rank = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return rank < np.repeat(wanted, sizes)


def _even(total: int, parts: int) -> Ints:
    return total // parts + (np.arange(parts) < total % parts)


def _cut(total: int, shares: Floats) -> Ints:
    """Whole numbers in proportion to the shares that add up to the total."""
    edges = np.minimum(np.cumsum(shares)[:-1] * total, total).astype(np.int64)
    return np.diff(edges, prepend=0, append=total)


def _cut_by_class(stock: Ints, parts: int) -> Ints:
    """Sizes of the parts when every class is cut evenly into its share of them."""
    return np.concatenate([_even(size, share) for size, share in zip(stock, _apportion(parts, stock), strict=True)])


def _apportion(parts: int, weights: Ints) -> Ints:
    """Parts by largest remainder, but at least one each. In whole numbers, so that ties are exact."""
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
    """Rows of log-gamma draws: Dirichlet once normalised, and in logs a tiny alpha does not underflow."""
    size = (rows, len(concentration))
    draws = np.log(rng.standard_gamma(concentration + 1, size))
    draws -= rng.standard_exponential(size) / concentration
    return draws


def _normalised(logs: Floats) -> Floats:
    """Shares along the last axis from their logarithms."""
    shares: Floats = np.exp(logs - logs.max(axis=-1, keepdims=True))
    shares /= shares.sum(axis=-1, keepdims=True)
    return shares


def _draw_mixes(sizes: Ints, stock: Ints, concentration: Floats, rng: np.random.Generator) -> Ints:
    """Owners of the samples in class order, when clients draw in turn until all stock is gone."""
    stock = stock.copy()
    owners, classes = [], []
    for start in range(0, len(sizes), _BLOCK):
        block = sizes[start : start + _BLOCK]
        counts = _draw_block(block, stock, _log_gammas(concentration, len(block), rng), rng)
        client, drawn = np.nonzero(counts)
        owners.append(np.repeat(start + client, counts[client, drawn]))
        classes.append(np.repeat(drawn, counts[client, drawn]))
    return np.concatenate(owners)[np.argsort(np.concatenate(classes), kind="stable")]


def _draw_block(sizes: Ints, stock: Ints, mixes: Floats, rng: np.random.Generator) -> Ints:
    """How many samples of every class each client draws, [clients, classes]; lowers `stock`.

    Draws for all clients at once, keeps the draws up to the first client that finds a class short, and draws
    again for those after it. Classes out of stock take no part, so every such stop uses up a class: there are
    at most as many stops as classes.
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
    """Take what there is of the wanted, and draw what is missing from the classes still in stock."""
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
    """One draw of `dirichlet_per_class`: owners of the samples in class order, and the least a client has."""
    held = np.zeros(clients, dtype=np.int64)
    owners = []
    for size in stock:
        # While samples remain someone is below the mean. A fixed order would round in favour of the same.
        open_clients = rng.permutation(np.flatnonzero(held * clients < stock.sum()))
        shares = _normalised(_log_gammas(np.full(len(open_clients), concentration), 1, rng))[0]
        counts = _cut(size, shares)
        held[open_clients] += counts
        owners.append(np.repeat(open_clients, counts))
    return np.concatenate(owners), int(held.min())


def _level(owners: Ints, clients: int, least: int, rng: np.random.Generator) -> Ints:
    """Owners after the largest client of the moment has given a sample until all clients hold the least."""
    sizes = np.bincount(owners, minlength=clients)
    lacking = np.maximum(least - sizes, 0)
    given = _shaved(sizes, int(lacking.sum()))
    shuffled = rng.permutation(len(owners))
    grouped = shuffled[np.argsort(owners[shuffled], kind="stable")]
    levelled = owners.copy()
    levelled[grouped[_first_of_each(given, sizes)]] = np.repeat(np.arange(clients), lacking)
    return levelled


def _shaved(sizes: Ints, total: int) -> Ints:
    """What each gives when the largest of the moment (the last of equals) gives one, `total` times."""
    ordered = np.sort(sizes)[::-1]
    # What lowering the m largest to the size of the m-th frees, m = 1, 2, …
    freed = np.cumsum(ordered) - ordered * np.arange(1, len(sizes) + 1)
    givers = int(np.searchsorted(freed, total, side="right"))
    each, extra = divmod(int(ordered[:givers].sum()) - total, givers)
    given = np.maximum(sizes - each, 0)
    keeps_one_more = np.flatnonzero(given)[:extra]
    given[keeps_one_more] -= 1
    return given
