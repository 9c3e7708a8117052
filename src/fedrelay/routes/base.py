"""The base class of all routes: a planning context and a round number in, a round plan out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.experiment.spec import Sampling, Section
from fedrelay.rng import KeyedRandom, generator
from fedrelay.routes.async_progress import AsyncProgress, GroupLeg
from fedrelay.routes.passes import sample_in_passes
from fedrelay.routes.plan import Handover, RoundPlan

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class PlanningContext:
    """Everything a route may use to plan a round."""

    client_count: int
    """The number of clients."""

    fraction: float
    """The share of clients or groups that take part in a round."""

    seed: int
    groups: Groups = ()
    rounds: int = 1
    """The number of rounds of this phase: those of the method, or those of its warm-up."""

    has_samples: Callable[[int], bool] = lambda client: True
    """Whether a client has samples. The planner removes clients without samples from all routes."""

    sample_count: Callable[[int], int] = lambda client: 1
    """Client → its number of samples."""

    class_counts: Callable[[int], NDArray[np.int64]] = lambda client: np.ones(1, dtype=np.int64)
    """Client → its number of labels of each class. Only routes with `needs_class_counts` may call it: clients have to
    send these numbers."""

    client_names: Callable[[], Sequence[str]] = lambda: ()
    """The names of all clients, in the order of their numbers; empty where they have none."""

    regroup: Callable[[int, int], Groups] = lambda count, key: ()
    """(number of groups, key) → new groups. The same arguments give the same groups."""

    selected_clients: Callable[[int], tuple[int, ...]] = lambda round: ()
    """Round → the clients that were selected for a warm-up chain, in order."""

    route_seconds: Callable[[tuple[int, ...], Handover], float] = lambda clients, handover: float(len(clients))
    """How long a model takes through these clients and back, by the virtual clock; by default 1 per hop."""

    sampling: Sampling = "random"
    """Whether rounds are sampled independently of each other, or in passes over all clients or groups."""

    real_time: bool = False
    """Whether models arrive in real time, from nodes, instead of by the virtual clock."""

    def class_counts_of_all(self) -> NDArray[np.int64]:
        """The number of labels of each class that all clients have together."""
        counts: NDArray[np.int64] = sum(map(self.class_counts, range(self.client_count)))  # type: ignore[assignment]
        return counts

    def rng(self, purpose: str, *keys: int) -> np.random.Generator:
        """A generator for one random decision; the same purpose and keys give the same numbers."""
        return generator(self.seed, purpose, *keys)

    def order_rng(self, *keys: int) -> np.random.Generator:
        """The same as `rng("order", *keys)`, but much faster. Finish drawing before you call it again."""
        return self._orders.at(*keys)

    @cached_property
    def _orders(self) -> KeyedRandom:
        return KeyedRandom(self.seed, "order")


ChainHandover = Literal["direct", "server", "sealed"]
"""The handovers that a route through several clients may have."""

HANDOVER_HELP = (
    "how a model gets to the next client: direct, through the server, or sealed (through the server, encrypted)"
)


class Routing(Section, ABC):
    """Plans how models travel in a round.

    A subclass implements `plan`. It must be a pure function of context and round, so that any round can be planned at
    any time: draw random numbers only from `context.rng`. Its pydantic fields are settings: users set them as
    `route.NAME`.

    Example:
        >>> import fedrelay as fr
        >>> class Everyone(fr.Routing):
        ...     '''One model visits all clients in the order of their numbers.'''
        ...
        ...     def plan(self, context: fr.PlanningContext, round: int) -> fr.RoundPlan:
        ...         return fr.RoundPlan(round, (fr.Route(tuple(range(context.client_count))),))
        >>> Everyone().plan(fr.PlanningContext(client_count=3, fraction=1.0, seed=1), 1).routes[0].clients
        (0, 1, 2)
    """

    needs_groups: ClassVar[bool] = False
    """Whether models travel through groups of clients. Register such a route together with a grouping: clients are
    then grouped before round 1, and `plan` finds the groups in `context.groups`. Other routes refuse a grouping."""

    chooses_group_count: ClassVar[bool] = False
    """Whether the route determines the number of groups and calls `context.regroup`."""

    model_per_client: ClassVar[bool] = False
    """Whether every client has its own model from the start, in the slot with its number."""

    evaluates_own_models: ClassVar[bool] = False
    """With a model for every client: whether each of them is evaluated on the test samples, instead of their mean.
    Rows of metrics then have the means over clients."""

    @property
    def ever_merges(self) -> bool:
        """Whether models are ever merged."""
        return True

    @property
    def depends_on_arrival_times(self) -> bool:
        """Whether arrival times decide which model goes where."""
        return False

    @property
    def needs_class_counts(self) -> bool:
        """Whether plans depend on the class counts of clients (`context.class_counts`)."""
        return False

    @property
    def same_clients_last(self) -> bool:
        """Whether routes through the same clients always end at the same one."""
        return False

    @property
    def is_sealed(self) -> bool:
        """Whether models travel so that the server cannot read them between clients."""
        return getattr(self, "handover", None) == "sealed"

    @property
    def setting_that_needs_client_samples_at_server(self) -> str:
        """The setting that makes the server use samples of clients, or empty; a real federation refuses it."""
        return ""

    @property
    def setting_that_depends_on_rounds(self) -> str:
        """The setting that makes plans depend on `context.rounds`, or empty; such a run cannot be extended."""
        return ""

    @property
    def may_depend_on_rounds(self) -> bool:
        """Whether plans depend on `context.rounds` in some cases; a run is extended only if its plans stay the same."""
        return False

    @property
    def advice_for_longer_runs(self) -> str:
        """What to set so that a run can be extended, for the message that refuses it; empty if nothing helps."""
        return ""

    @property
    def regroups(self) -> bool:
        """Whether `plan` forms other groups with `context.regroup` than those that were formed before round 1."""
        return self.chooses_group_count

    def check_sampling(self, sampling: Sampling) -> None:
        """Refuse a way of sampling that does not go with this route.

        Raises:
            SpecError: It does not.
        """

    def planning_warning(self, context: PlanningContext) -> str | None:
        """A warning about settings that do not go well with this federation, or None."""
        return None

    def legs_for_free_models(self, context: PlanningContext, progress: AsyncProgress) -> tuple[GroupLeg, ...]:
        """Which free model goes to which idle group now. Only asynchronous routes implement this."""
        raise NotImplementedError

    @abstractmethod
    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        """Return the routes of round 1, 2, …"""


def sampled_count(population: int, fraction: float) -> int:
    """m = max(1, ⌊C·N⌋), guarded against rounding such as 0.29·100 = 28.999…"""
    return max(1, int(fraction * population + 1e-9))


def sample(context: PlanningContext, round: int, population: int) -> tuple[int, ...]:
    """The clients or groups that take part in a round, in random order: sampled without replacement, or in passes.

    Args:
        context: Gives the share of the population that takes part (`context.fraction`), the seed, and whether everybody
            takes part before anyone does again (`context.sampling`).
        round: The round. Every round has its own sample; asked again, it has the same one.
        population: How many there are: `context.client_count`, or `len(context.groups)`.

    Returns:
        max(1, ⌊fraction · population⌋) different numbers from 0 to population − 1.

    Example:
        >>> import fedrelay as fr
        >>> fr.sample(fr.PlanningContext(client_count=10, fraction=0.3, seed=1), round=1, population=10)
        (2, 6, 8)
    """
    return draw(context, round, population, sampled_count(population, context.fraction), turn=round)


def draw(context: PlanningContext, round: int, population: int, count: int, *, turn: int) -> tuple[int, ...]:
    """Draw `count` of a population for a round. `turn` counts the rounds of this population, for passes over it."""
    if context.sampling == "passes":
        return sample_in_passes(context.seed, population, count, turn)
    return tuple(context.rng("sample", round).choice(population, count, replace=False).tolist())
