"""What every route has in common: it turns a planning context and a round number into a plan."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedrelay.experiment.spec import Section
from fedrelay.rng import generator
from fedrelay.routes.async_state import AsyncState, Leg
from fedrelay.routes.plan import Handover, RoundPlan

Groups = tuple[tuple[int, ...], ...]


def _none(count: int, key: int) -> Groups:
    return ()


def _anybody(client: int) -> bool:
    return True


def _nobody(round: int) -> tuple[int, ...]:
    return ()


def _hops(clients: tuple[int, ...], handover: Handover) -> float:
    return float(len(clients))


@dataclass(frozen=True)
class PlanningContext:
    """What a route may look at."""

    clients: int
    fraction: float
    seed: int
    groups: Groups = ()
    rounds: int = 1
    """How many rounds the run, or its phase, has."""

    holds: Callable[[int], bool] = _anybody
    """Whether a client has samples; clients without samples are left out."""

    regroup: Callable[[int, int], Groups] = _none
    """(number of groups, key) → new groups; the same number and key give the same groups."""

    chosen: Callable[[int], tuple[int, ...]] = _nobody
    """Round → the clients chosen for a chain, in its order."""

    duration: Callable[[tuple[int, ...], Handover], float] = _hops
    """How long a model would take through these clients, from the server and back; by default one unit for each hop."""

    real: bool = False
    """Whether models arrive in real time, not by the virtual clock."""

    def rng(self, purpose: str, *keys: int) -> np.random.Generator:
        """The random generator for one decision of the route."""
        return generator(self.seed, purpose, *keys)


class Routing(Section, ABC):
    """How models travel. It is a pure function of context and round, so any round can be planned at any time."""

    needs_groups: ClassVar[bool] = False
    counts_groups: ClassVar[bool] = False
    """Whether the route decides how many groups there are."""

    model_per_client: ClassVar[bool] = False
    """Whether every client has a model of its own from the start, in the slot of its number."""

    @property
    def merges(self) -> bool:
        """Whether models are ever merged."""
        return True

    @property
    def asynchronous(self) -> bool:
        """Whether times of arrival decide which model goes where."""
        return False

    @property
    def needs_client_samples(self) -> str:
        """The setting that makes the server look at samples of clients, if there is one."""
        return ""

    def next_legs(self, context: PlanningContext, state: AsyncState) -> tuple[Leg, ...]:
        """Which free model goes to which idle group now; only an asynchronous route decides that."""
        raise NotImplementedError

    @abstractmethod
    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        """The plan of a round, counted from 1."""


def sampled_count(population: int, fraction: float) -> int:
    """m = max(1, ⌊C·N⌋), guarded against products such as 0.29·100 = 28.999…"""
    return max(1, int(fraction * population + 1e-9))


def sample(context: PlanningContext, round: int, population: int) -> tuple[int, ...]:
    """The clients or groups that take part in a round, without replacement, in random order."""
    rng = context.rng("sample", round)
    return tuple(rng.choice(population, sampled_count(population, context.fraction), replace=False).tolist())
