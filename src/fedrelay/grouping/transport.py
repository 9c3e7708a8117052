"""Balanced assignment: points to clusters that take equally many each, at the least total squared distance.

This is the transportation problem. It is solved as a min-cost flow with integer costs; OR-Tools does that, and its
time grows with the number of arcs from points to clusters. With few clusters every pair is an arc. With many, a point
has arcs to the few clusters that are nearest once each cluster has a *price* that makes demand meet capacity; such
prices come from a sample by annealed Sinkhorn steps. The point's present cluster stays among its arcs, so that there is
always a solution and never a worse one.

The potentials of that flow then tell of every arc left out whether it could lower the cost. Arcs that could are added
and the flow is solved again, until there are none: the result is exact. Beyond `LARGE` pairs of point and cluster that
can take long where many points are nearly the same; there it stops as soon as duality proves the flow to be within
`GAP` of the optimum, and after `FLOWS` flows at the latest.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NEAREST = 8
"""Arcs for each point, and for each that needs more; with up to twice as many clusters, all of them."""

LARGE = 1 << 22
GAP = 5e-3
FLOWS = 4

_BITS = 40
"""How finely costs are told apart: to 2⁻⁴⁰ of their range."""

_BLOCK = 1 << 20
"""Pairs looked at together, which bounds memory."""

_SAMPLED_PAIRS = 1 << 26


@dataclass(frozen=True)
class PointSet:
    """Points around their mean; equal ones are held once and counted."""

    points: Floats
    counts: Ints
    which: Ints
    """The row in `points` of each of the vectors the cloud was made of."""

    @classmethod
    def of(cls, vectors: Floats) -> PointSet:
        """The cloud of the rows of a matrix."""
        points, which, counts = np.unique(vectors, axis=0, return_inverse=True, return_counts=True)
        return cls(points - vectors.mean(axis=0), counts, which.reshape(-1))

    def dealt(self, clusters: Ints) -> Ints:
        """The cluster of every vector, from the clusters of all points one after another, as often as they count."""
        labels = np.empty_like(clusters)
        labels[np.argsort(self.which, kind="stable")] = clusters
        return labels


def balanced_assignment(cloud: PointSet, centres: Floats, capacity: int, current: Ints) -> Ints:
    """The cluster of every vector, `capacity` in each, with Σ ½‖v − c‖² least. `current` is balanced too."""
    problem = _Problem(cloud.points, cloud.counts, centres, capacity)
    present = cloud.which * len(centres) + current
    arcs, flow = _solved(problem, present)
    return cloud.dealt(np.repeat(arcs % len(centres), flow))


@dataclass(frozen=True)
class _Problem:
    """Supplies, demands and costs. An arc is one number: point times the number of clusters plus cluster.

    The cost of a pair is ½‖p − c‖² without ½‖p‖², which is the same for all clusters.
    """

    points: Floats
    counts: Ints
    centres: Floats
    capacity: int

    @cached_property
    def offsets(self) -> Floats:
        """The part of the cost that depends on the cluster alone."""
        halves: Floats = np.square(self.centres).sum(axis=1) / 2
        return halves

    @cached_property
    def own_costs(self) -> float:
        """What the costs leave out."""
        return float(self.counts @ np.square(self.points).sum(axis=1)) / 2

    @property
    def pairs(self) -> int:
        """The number of all arcs there could be."""
        return len(self.points) * len(self.centres)

    def costs(self, arcs: Ints) -> Floats:
        """The cost of these arcs."""
        found = np.empty(len(arcs))
        for start in range(0, len(arcs), _BLOCK // 16):
            block = slice(start, start + _BLOCK // 16)
            points, clusters = np.divmod(arcs[block], len(self.centres))
            products = np.einsum("ij,ij->i", self.points[points], self.centres[clusters])
            found[block] = self.offsets[clusters] - products
        return found

    def reduced(self, prices: Floats) -> Iterator[tuple[Ints, Floats]]:
        """Costs minus prices of all pairs, some points at a time, with the numbers of these points."""
        by_cluster = self.offsets - prices
        for points in np.array_split(np.arange(len(self.points)), -(-self.pairs // _BLOCK)):
            products = self.points[points] @ self.centres.T
            yield points, np.subtract(by_cluster, products, out=products)


def _solved(problem: _Problem, present: Ints) -> tuple[Ints, Ints]:
    """Arcs in ascending order, and how many points take each."""
    clusters = len(problem.centres)
    if clusters > 2 * NEAREST:
        return _solved_on_few_arcs(problem, present)
    costs = np.concatenate([block.reshape(-1) for _, block in problem.reduced(np.zeros(clusters))])
    arcs = np.arange(problem.pairs)
    return arcs, _flow(problem, arcs, _whole(problem, costs)[0])


def _solved_on_few_arcs(problem: _Problem, present: Ints) -> tuple[Ints, Ints]:
    """The same from a few arcs for each point, and more where they are missed."""
    clusters = len(problem.centres)
    prices = _market_prices(problem)
    near, bound = _cheaper(problem, prices, np.full(len(problem.points), np.inf))
    arcs = _union(present, near)
    for flows in itertools.count(1):
        costs = problem.costs(arcs)
        whole, unit = _whole(problem, costs)
        flow = _flow(problem, arcs, whole)
        if _good_enough(problem, float(flow @ costs), bound, flows):
            break
        used = flow > 0
        steps = _potentials(arcs, whole, used, clusters, np.rint(prices / unit).astype(np.int64))
        prices = unit * steps.astype(np.float64)
        points, heads = np.divmod(arcs[used], clusters)
        paid = np.empty(len(problem.points))
        paid[points] = costs[used] - prices[heads]
        missed, proved = _cheaper(problem, prices, paid - 4 * unit)  # less than that is rounding
        bound, wider = max(bound, proved), _union(arcs, missed)
        if len(wider) == len(arcs) or _good_enough(problem, float(flow @ costs), bound, flows):
            break
        arcs = wider
    return arcs, flow


def _good_enough(problem: _Problem, cost: float, bound: float, flows: int) -> bool:
    """Whether a large problem may stop here; no assignment costs less than the bound."""
    close = cost - bound <= GAP * (bound + problem.own_costs)
    return problem.pairs > LARGE and (close or flows >= FLOWS)


def _whole(problem: _Problem, costs: Floats) -> tuple[Ints, float]:
    """Costs as multiples of a unit so small that none that matters becomes zero, and the unit."""
    lowest, highest = costs.min(), costs.max()
    bits = min(_BITS, 61 - (len(problem.points) + len(problem.centres)).bit_length())  # the solver scales by nodes
    unit = float(highest - lowest) / 2**bits or 1.0
    return np.rint((costs - lowest) / unit).astype(np.int64), unit


def _flow(problem: _Problem, arcs: Ints, costs: Ints) -> Ints:
    """How many of its points each arc takes, at the least cost."""
    from ortools.graph.python.min_cost_flow import SimpleMinCostFlow  # slow to import, seldom needed

    points, clusters = np.divmod(arcs, len(problem.centres))
    nodes = np.arange(len(problem.points) + len(problem.centres), dtype=np.int32)
    solver = SimpleMinCostFlow()
    numbers = solver.add_arcs_with_capacity_and_unit_cost(
        points.astype(np.int32), (len(problem.points) + clusters).astype(np.int32), problem.counts[points], costs
    )
    demands = np.full(len(problem.centres), -problem.capacity, dtype=np.int64)
    solver.set_nodes_supplies(nodes, np.concatenate([problem.counts, demands]))
    status = solver.solve()
    assert status == solver.OPTIMAL, status  # the present assignment is a solution
    flow: Ints = solver.flows(numbers)
    return flow


def _market_prices(problem: _Problem, halvings: int = 12, repeats: int = 2, per_cluster: int = 4) -> Floats:
    """Prices under which every cluster is asked for about equally often, from a sample.

    Sinkhorn steps: points choose softly, a cluster that is asked for too often becomes dearer, and the choice hardens.
    """
    clusters = len(problem.centres)
    wanted = min(len(problem.points), per_cluster * clusters, _SAMPLED_PAIRS // clusters)
    sample = np.unique(np.linspace(0, len(problem.points) - 1, wanted).astype(np.int64))
    counts = problem.counts[sample].astype(np.float32)
    costs = problem.offsets - problem.points[sample] @ problem.centres.T
    costs -= costs.min(axis=1, keepdims=True)
    spread = float(costs.max()) or 1.0
    scaled = (costs / spread).astype(np.float32)
    prices = np.zeros(clusters, dtype=np.float32)
    share = np.float32(counts.sum() / clusters)
    softness = np.float32(0.25)
    choice = np.empty_like(scaled)
    for step in range(halvings * repeats):
        np.subtract(prices, scaled, out=choice)
        choice -= choice.max(axis=1, keepdims=True)
        choice /= softness
        np.exp(choice, out=choice)
        asked = (counts / choice.sum(axis=1)) @ choice
        prices += softness * np.log(share / np.maximum(asked, 1e-6 * share))
        if step % repeats == repeats - 1:
            softness /= 2
    return spread * prices.astype(np.float64)


def _lowest(reduced: Floats, points: Ints, clusters: int) -> Ints:
    """The arcs of the `NEAREST` lowest entries of each row, which belongs to one of the points."""
    columns = np.argpartition(reduced, NEAREST - 1, axis=1)[:, :NEAREST]
    return (clusters * points[:, None] + columns).reshape(-1)


def _potentials(arcs: Ints, costs: Ints, used: NDArray[np.bool_], clusters: int, start: Ints) -> Ints:
    """Prices of the clusters that prove the flow optimal on these arcs: all used arcs are the cheapest of their point.

    Bellman-Ford, alternating between points (through used arcs) and clusters (through all arcs); it ends because an
    optimal flow leaves no cycle of negative cost.
    """
    points, heads = np.divmod(arcs, clusters)
    starts = np.flatnonzero(np.diff(points[used], prepend=-1))
    by_cluster = np.argsort(heads, kind="stable")
    cluster_starts = np.flatnonzero(np.diff(heads[by_cluster], prepend=-1))
    reached, tails, sorted_costs = heads[by_cluster][cluster_starts], points[by_cluster], costs[by_cluster]
    prices = start
    while True:
        at_points = np.minimum.reduceat(prices[heads[used]] - costs[used], starts)
        lower = prices.copy()
        lower[reached] = np.minimum(
            lower[reached], np.minimum.reduceat(at_points[tails] + sorted_costs, cluster_starts)
        )
        if np.array_equal(lower, prices):
            return prices
        prices = lower


def _cheaper(problem: _Problem, prices: Floats, paid: Floats) -> tuple[Ints, float]:
    """The best arcs of the points that could do better than what they pay, and a cost no assignment goes below."""
    found = []
    bound = problem.capacity * float(prices.sum())
    for points, reduced in problem.reduced(prices):
        cheapest = reduced.min(axis=1)
        bound += float(problem.counts[points] @ cheapest)
        better = cheapest < paid[points]
        found.append(_lowest(reduced[better], points[better], len(problem.centres)))
    return np.concatenate(found), bound


def _union(left: Ints, right: Ints) -> Ints:
    """All numbers of both, ascending, each once."""
    both = np.sort(np.concatenate([left, right]))
    return both[np.diff(both, prepend=-1) > 0]
