"""A random walk on a graph: one model goes from each client to a random neighbour.

Papers: G. Ayache, V. Dassari, S. El Rouayheb. Walk for Learning: A Random Walk Approach for Federated Learning from
Heterogeneous Data. IEEE Journal on Selected Areas in Communications 41, 2023; N. Metropolis et al. Equation of State
Calculations by Fast Computing Machines. 1953, and W. K. Hastings. Monte Carlo sampling methods using Markov chains and
their applications. 1970 (`steps: metropolis`).

Rule: the model is at client v. A neighbour u is drawn with equal probabilities. The model goes there with probability
min(1, deg v/deg u); otherwise v trains it once more. In the long run all clients train equally often, whatever the
graph. `steps: simple` always goes to u; then clients train in proportion to their neighbours. A round is the next
m = max(1, ⌊C·K⌋) hops of the walk; it goes on where the last round ended. There is nothing to average.

Deviations: the paper learns from whichever clients help most; here the walk does not depend on losses. A hop at the
same client counts as a transfer. Between rounds the model goes to the server and back, so that it is evaluated. It
starts at a random client. Clients without samples pass the model on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, model_validator

from fedrelay.errors import SpecError
from fedrelay.rng import generator
from fedrelay.routes.base import HANDOVER_HELP, ChainHandover, PlanningContext, Routing, sampled_count
from fedrelay.routes.plan import RoundPlan, Route

Edges = tuple[tuple[NonNegativeInt, NonNegativeInt], ...]
Steps = Literal["metropolis", "simple"]


class RandomWalk(Routing):
    """One route through the next clients of the walk."""

    graph: Literal["ring", "complete", "given"] = Field(
        "ring", description="which clients are neighbours: ring (by client number), complete (all), or given (`edges`)"
    )
    edges: Edges = Field(
        (), description="graph given: pairs of clients that hand models to each other: [[0, 1], [1, 2]]"
    )
    steps: Steps = Field(
        "metropolis", description="metropolis: all clients train equally often; simple: always on to a random neighbour"
    )
    handover: ChainHandover = Field("direct", description=HANDOVER_HELP)

    @model_validator(mode="after")
    def _edges_are_those_of_a_given_graph(self) -> Self:
        if bool(self.edges) != (self.graph == "given"):
            raise ValueError("edges: are needed with graph 'given', and only then")
        return self

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        hops = sampled_count(context.client_count, context.fraction)
        walk = _walk(self.graph, self.edges, self.steps, context.client_count, hops, context.seed)
        return RoundPlan(round, (Route(walk.clients(round)),), self.handover)


class _Walk:
    """A walk, as far as it was asked for. Every round has random numbers of its own, so it does not matter how far."""

    def __init__(self, neighbours: Sequence[Sequence[int]], steps: Steps, hops: int, seed: int) -> None:
        self.neighbours, self.steps, self.hops, self.seed = neighbours, steps, hops, seed
        self.rounds: list[tuple[int, ...]] = []

    def clients(self, round: int) -> tuple[int, ...]:
        """The clients of a round, from 1."""
        while len(self.rounds) < round:
            self.rounds.append(self._next_round())
        return self.rounds[round - 1]

    def _next_round(self) -> tuple[int, ...]:
        rng = generator(self.seed, "walk", len(self.rounds) + 1)
        here = self.rounds[-1][-1] if self.rounds else None
        visited = []
        for choice, chance in rng.random((self.hops, 2)).tolist():
            here = int(choice * len(self.neighbours)) if here is None else self._step(here, choice, chance)
            visited.append(here)
        return tuple(visited)

    def _step(self, here: int, choice: float, chance: float) -> int:
        others = self.neighbours[here]
        if not others:  # a single client
            return here
        there = others[int(choice * len(others))]
        goes = self.steps == "simple" or chance * len(self.neighbours[there]) < len(others)
        return there if goes else here


@lru_cache(maxsize=8)
def _walk(graph: str, edges: Edges, steps: Steps, count: int, hops: int, seed: int) -> _Walk:
    return _Walk(neighbours_of(graph, edges, count), steps, hops, seed)


class _AllOthers(Sequence[int]):
    """All clients but one, without a list of them."""

    def __init__(self, client: int, count: int) -> None:
        self.client, self.others = client, count - 1

    def __len__(self) -> int:
        return self.others

    def __getitem__(self, place: Any) -> Any:
        return place + (place >= self.client)


def neighbours_of(graph: str, edges: Edges, count: int) -> Sequence[Sequence[int]]:
    """The neighbours of each client.

    Args:
        graph: ring, complete, or given.
        edges: The pairs of neighbours, where they are given.
        count: The number of clients.

    Raises:
        SpecError: A client does not exist, or cannot be reached.
    """
    if graph == "complete":
        return [_AllOthers(client, count) for client in range(count)]
    if graph == "ring":
        edges = tuple((client, (client + 1) % count) for client in range(count))
    found: list[set[int]] = [set() for _ in range(count)]
    for one, other in edges:
        if max(one, other) >= count:
            raise SpecError(f"route.edges: there is no client {max(one, other)}; the last of {count} is {count - 1}")
        if one != other:
            found[one].add(other)
            found[other].add(one)
    reached, new = {0}, {0}
    while new:
        new = set().union(*(found[client] for client in new)) - reached
        reached |= new
    if left := sorted(set(range(count)) - reached):
        raise SpecError(f"route.edges: no way leads from client 0 to client {left[0]}; the graph must be connected")
    return [sorted(each) for each in found]
