"""The base class of all warm-ups: phases before the method's own rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fedrelay.cost.ledger import SetupCost
from fedrelay.data.federation import Federation
from fedrelay.experiment.spec import Section
from fedrelay.local.terms.base import Term
from fedrelay.merge.base import Merge
from fedrelay.merge.server_stage import NO_STAGE, ServerStage
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.base import Routing
from fedrelay.selection.warmup_selector import WarmupSelector


@dataclass(frozen=True)
class Phase:
    """A number of rounds with the same route, terms, merge and server stage.

    Only the model passes from one phase to the next: client state, server state and merge state are dropped.
    """

    rounds: int
    route: Routing
    terms: tuple[Term, ...]
    merge: Merge
    first: int = 1
    """Its first round."""

    server: ServerStage = NO_STAGE
    """What the server does after each merge."""

    @property
    def last(self) -> int:
        """Its last round."""
        return self.first + self.rounds - 1

    def check(self) -> None:
        """Refuse parts of the wrong kind, such as a class instead of an object.

        Raises:
            TypeError: A part is not what it should be.
            ValueError: The number of rounds is less than 1.
        """
        kinds: list[tuple[object, type]] = [(self.route, Routing), (self.merge, Merge), (self.server, ServerStage)]
        for part, kind in kinds + [(term, Term) for term in self.terms]:
            if not isinstance(part, kind):
                raise TypeError(f"a Phase needs a {kind.__name__}, got {part!r}")
        if not isinstance(self.rounds, int):
            raise TypeError(f"rounds of a Phase must be a whole number, got {self.rounds!r}")
        if self.rounds < 1:
            raise ValueError(f"a Phase has at least 1 round, got {self.rounds}")


class Warmup(Section, ABC):
    """Rounds before those of the method. They count among the rounds of the run.

    A subclass implements `phases` and sets `length`. Its pydantic fields are settings: users set them as `warmup.NAME`.

    Example:
        >>> from typing import ClassVar
        >>> import fedrelay as fr
        >>> from fedrelay.merge.last_route import LastRoute
        >>> from fedrelay.routes.ring import Ring
        >>> from fedrelay.warmup.base import Phase
        >>> class RingFirst(fr.Warmup):
        ...     '''Rounds of FedCyclic before the method.'''
        ...
        ...     length: ClassVar[str] = "rounds"
        ...     rounds: int = 5
        ...
        ...     def phases(self) -> tuple[Phase, ...]:
        ...         return (Phase(self.rounds, Ring(), (), LastRoute()),)
    """

    shares_samples: ClassVar[bool] = False
    """Whether clients share samples, which private methods refuse."""

    length: ClassVar[str]
    """The name of the field with the number of rounds."""

    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """The phases of the warm-up, in order."""

    def with_samples_shared_by_clients(self, federation: Federation, seed: int) -> Federation:
        """The federation with the samples that clients share, if they do."""
        return federation

    def setup_costs(self, federation: Federation) -> tuple[SetupCost, ...]:
        """The work and transfers before the first round, in order."""
        return ()

    def arrival_with_sample_count_for_merge(self, arrival: Arrival, federation: Federation) -> Arrival:
        """The arrival with the number of samples by which a merge should weight it."""
        return arrival

    @property
    def selector(self) -> WarmupSelector | None:
        """Selects the clients of its chains; None if all routes sample their own clients."""
        return None
