"""What comes out of hops and routes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class HopReport:
    """What a client says of its turn: samples held, steps taken, mean loss, and whether the model is finite."""

    samples: int
    steps: int
    loss: float
    finite: bool


@dataclass(frozen=True)
class Arrival:
    """A model that came home from its route: all that a merge may look at."""

    route: int
    clients: tuple[int, ...]
    weights: Tensor
    samples: int
    steps: int
    loss: float


def arrival(route: int, clients: tuple[int, ...], weights: Tensor, hops: list[HopReport]) -> Arrival:
    """Sum up the hops of one route."""
    steps = sum(hop.steps for hop in hops)
    loss = sum(hop.loss * hop.steps for hop in hops) / max(1, steps)
    return Arrival(route, clients, weights, sum(hop.samples for hop in hops), steps, loss)
