"""What every way of travelling has in common: it turns a scene and a round number into a plan."""

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
    """All that a route may look at."""

    clients: int
    fraction: float
    seed: int
    groups: Groups = ()
    rounds: int = 1
    """How many rounds the run has."""

    holds: Callable[[int], bool] = _anybody
    """Whether a client has samples; one without is passed over."""

    regroup: Callable[[int, int], Groups] = _none
    """(number of groups, key) → groups formed afresh; the same number and key give the same groups."""

    chosen: Callable[[int], tuple[int, ...]] = _nobody
    """Round → the clients chosen for a chain, in its order."""

    duration: Callable[[tuple[int, ...], Handover], float] = _hops
    """How long a model would take through these clients, from the server and back; by default one unit for each hop."""

    real: bool = False
    """Whether models really arrive at some time, instead of by the virtual clock."""

    def rng(self, purpose: str, *keys: int) -> np.random.Generator:
        """The generator for one decision of the route."""
        return generator(self.seed, purpose, *keys)


class Routing(Section, ABC):
    """A way of travelling. A pure function of scene and round, so any round can be planned at any time."""

    needs_groups: ClassVar[bool] = False
    counts_groups: ClassVar[bool] = False
    """Whether it says itself how many groups there are."""

    model_per_client: ClassVar[bool] = False
    """Whether every client has a model of its own from the start, in the slot of its number."""

    @property
    def merges(self) -> bool:
        """Whether models are ever merged."""
        return True

    @property
    def asynchronous(self) -> bool:
        """Whether it depends on times of arrival who goes where."""
        return False

    @property
    def needs_client_samples(self) -> str:
        """The setting by which the server would have to look at samples of clients, if there is one."""
        return ""

    def next_legs(self, scene: PlanningContext, state: AsyncState) -> tuple[Leg, ...]:
        """Which free model goes to which idle group now; only an asynchronous route decides that."""
        raise NotImplementedError

    @abstractmethod
    def plan(self, scene: PlanningContext, round: int) -> RoundPlan:
        """The routes of round 1, 2, …"""


def sampled_count(population: int, fraction: float) -> int:
    """m = max(1, ⌊C·N⌋), guarded against products such as 0.29·100 = 28.999…"""
    return max(1, int(fraction * population + 1e-9))


def sample(scene: PlanningContext, round: int, population: int) -> tuple[int, ...]:
    """The clients or groups that take part in a round, without replacement, in random order."""
    rng = scene.rng("sample", round)
    return tuple(rng.choice(population, sampled_count(population, scene.fraction), replace=False).tolist())
