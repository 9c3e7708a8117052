"""Balanced assignment of points to clusters of equal size with the smallest total squared distance.

This is the transportation problem. OR-Tools solves it as a min-cost flow with integer costs; its time grows with the
number of arcs from points to clusters. With few clusters, every pair is an arc. With many, each point has arcs to a few
nearest clusters only, where each cluster has a *price* so that demand matches capacity. The prices come from annealed
Sinkhorn steps on a sample. A point's current cluster is always among its arcs, so there is always a solution, and never
a worse one.

The dual potentials of the flow show which missing arcs could lower the cost. Those arcs are added and the flow is
solved again until there are none, so the result is exact. With more than `LARGE` pairs of points and clusters this can
take long if many points are nearly equal. Then it stops when duality proves the flow to be within `GAP` of the optimum,
or after `FLOWS` flows.
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
"""Arcs per point, and additional arcs per point that needs more. With at most twice as many clusters, all arcs."""

LARGE = 1 << 22
GAP = 5e-3
FLOWS = 4

_BITS = 40
"""Costs are rounded to 2⁻⁴⁰ of their range."""

_BLOCK = 1 << 20
"""Pairs that are processed together, to bound memory."""

_SAMPLED_PAIRS = 1 << 26


@dataclass(frozen=True)
class DistinctPoints:
    """Points relative to their mean; equal points are stored once, with their count."""

    points: Floats
    counts: Ints
    row_of: Ints
    """For each vector, its row in `points`."""

    @classmethod
    def of(cls, vectors: Floats) -> DistinctPoints:
        """The distinct rows of a matrix."""
        points, row_of, counts = np.unique(vectors, axis=0, return_inverse=True, return_counts=True)
        return cls(points - vectors.mean(axis=0), counts, row_of.reshape(-1))

    def labels_of_vectors(self, clusters: Ints) -> Ints:
        """The cluster of each vector, from a list of clusters point by point, with each point repeated by its count."""
        labels = np.empty_like(clusters)
        labels[np.argsort(self.row_of, kind="stable")] = clusters
        return labels


def balanced_assignment(points: DistinctPoints, centres: Floats, capacity: int, current: Ints) -> Ints:
    """The cluster of each vector with the smallest Σ ½‖v − c‖², where every cluster has `capacity` vectors.

    Args:
        points: The vectors.
        centres: The centre of each cluster.
        capacity: The number of vectors in each cluster.
        current: A balanced assignment to improve.
    """
    problem = _Problem(points.points, points.counts, centres, capacity)
    present = points.row_of * len(centres) + current
    arcs, flow = _solve(problem, present)
    return points.labels_of_vectors(np.repeat(arcs % len(centres), flow))


@dataclass(frozen=True)
class _Problem:
    """Supplies, demands and costs. An arc is one number: point · (number of clusters) + cluster.

    The cost of a pair is ½‖p − c‖² − ½‖p‖²; the second part is the same for all clusters.
    """

    points: Floats
    counts: Ints
    centres: Floats
    capacity: int

    @cached_property
    def offsets(self) -> Floats:
        """The part of the cost that depends only on the cluster."""
        halves: Floats = np.square(self.centres).sum(axis=1) / 2
        return halves

    @cached_property
    def own_costs(self) -> float:
        """The sum of ½‖p‖², which the costs leave out."""
        return float(self.counts @ np.square(self.points).sum(axis=1)) / 2

    @property
    def pairs(self) -> int:
        """The number of all possible arcs."""
        return len(self.points) * len(self.centres)

    def costs(self, arcs: Ints) -> Floats:
        found = np.empty(len(arcs))
        for start in range(0, len(arcs), _BLOCK // 16):
            block = slice(start, start + _BLOCK // 16)
            points, clusters = np.divmod(arcs[block], len(self.centres))
            products = np.einsum("ij,ij->i", self.points[points], self.centres[clusters])
            found[block] = self.offsets[clusters] - products
        return found

    def reduced_costs(self, prices: Floats) -> Iterator[tuple[Ints, Floats]]:
        """Yield (points, costs minus prices for all clusters), some points at a time."""
        by_cluster = self.offsets - prices
        for points in np.array_split(np.arange(len(self.points)), -(-self.pairs // _BLOCK)):
            products = self.points[points] @ self.centres.T
            yield points, np.subtract(by_cluster, products, out=products)


def _solve(problem: _Problem, present: Ints) -> tuple[Ints, Ints]:
    """Sorted arcs, and the number of points that use each."""
    clusters = len(problem.centres)
    if clusters > 2 * NEAREST:
        return _solve_on_few_arcs(problem, present)
    costs = np.concatenate([block.reshape(-1) for _, block in problem.reduced_costs(np.zeros(clusters))])
    arcs = np.arange(problem.pairs)
    return arcs, _flow(problem, arcs, _integer_costs(problem, costs)[0])


def _solve_on_few_arcs(problem: _Problem, present: Ints) -> tuple[Ints, Ints]:
    """Start with a few arcs per point, and add arcs that could lower the cost."""
    clusters = len(problem.centres)
    prices = _market_prices(problem)
    near, bound = _cheaper(problem, prices, np.full(len(problem.points), np.inf))
    arcs = _union(present, near)
    for flows in itertools.count(1):
        costs = problem.costs(arcs)
        costs_in_units, unit = _integer_costs(problem, costs)
        flow = _flow(problem, arcs, costs_in_units)
        if _good_enough(problem, float(flow @ costs), bound, flows):
            break
        used = flow > 0
        steps = _potentials(arcs, costs_in_units, used, clusters, np.rint(prices / unit).astype(np.int64))
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
    """Whether a large problem may stop here. `bound` is a lower bound of the cost."""
    close = cost - bound <= GAP * (bound + problem.own_costs)
    return problem.pairs > LARGE and (close or flows >= FLOWS)


def _integer_costs(problem: _Problem, costs: Floats) -> tuple[Ints, float]:
    """Costs as integer multiples of a small unit, and the unit."""
    lowest, highest = costs.min(), costs.max()
    bits = min(_BITS, 61 - (len(problem.points) + len(problem.centres)).bit_length())  # the solver scales by nodes
    unit = float(highest - lowest) / 2**bits or 1.0
    return np.rint((costs - lowest) / unit).astype(np.int64), unit


def _flow(problem: _Problem, arcs: Ints, costs: Ints) -> Ints:
    """The min-cost flow: how many points use each arc."""
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
    assert status == solver.OPTIMAL, status  # the current assignment is a solution
    flow: Ints = solver.flows(numbers)
    return flow


def _market_prices(problem: _Problem, halvings: int = 12, repeats: int = 2, per_cluster: int = 4) -> Floats:
    """Prices for which about equally many points prefer each cluster, computed on a sample.

    Sinkhorn steps: points choose clusters by a softmax, clusters that are chosen too often become more expensive, and
    the temperature falls.
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
    temperature = np.float32(0.25)
    choice = np.empty_like(scaled)
    for step in range(halvings * repeats):
        np.subtract(prices, scaled, out=choice)
        choice -= choice.max(axis=1, keepdims=True)
        choice /= temperature
        np.exp(choice, out=choice)
        demand = (counts / choice.sum(axis=1)) @ choice
        prices += temperature * np.log(share / np.maximum(demand, 1e-6 * share))
        if step % repeats == repeats - 1:
            temperature /= 2
    return spread * prices.astype(np.float64)


def _lowest(reduced: Floats, points: Ints, clusters: int) -> Ints:
    """The arcs of the `NEAREST` lowest entries of each row; row i belongs to `points[i]`."""
    columns = np.argpartition(reduced, NEAREST - 1, axis=1)[:, :NEAREST]
    return (clusters * points[:, None] + columns).reshape(-1)


def _potentials(arcs: Ints, costs: Ints, used: NDArray[np.bool_], clusters: int, start: Ints) -> Ints:
    """Prices that prove the flow optimal on these arcs: each used arc is the cheapest of its point.

    Bellman-Ford, alternating between points (through used arcs) and clusters (through all arcs). It terminates because
    an optimal flow has no cycle of negative cost.
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
    """The best arcs of points that could pay less than now, and a lower bound of the total cost."""
    found = []
    bound = problem.capacity * float(prices.sum())
    for points, reduced in problem.reduced_costs(prices):
        cheapest = reduced.min(axis=1)
        bound += float(problem.counts[points] @ cheapest)
        better = cheapest < paid[points]
        found.append(_lowest(reduced[better], points[better], len(problem.centres)))
    return np.concatenate(found), bound


def _union(left: Ints, right: Ints) -> Ints:
    """The sorted union of both."""
    both = np.sort(np.concatenate([left, right]))
    return both[np.diff(both, prepend=-1) > 0]
