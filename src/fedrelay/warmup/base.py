"""What every warm-up has in common: phases that come before the method's own rounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from fedrelay.cost.ledger import SetupStep
from fedrelay.data.federation import Federation
from fedrelay.experiment.spec import Section
from fedrelay.local.arrival import Arrival
from fedrelay.local.terms.base import Term
from fedrelay.merge.base import Merge
from fedrelay.routes.base import Routing
from fedrelay.selection.base import Selector


@dataclass(frozen=True)
class Phase:
    """Some rounds that are alike. What terms and merge keep is forgotten when the phase ends; the model stays."""

    rounds: int
    route: Routing
    terms: tuple[Term, ...]
    merge: Merge
    first: int = 1
    """Its first round."""

    @property
    def last(self) -> int:
        """Its last round."""
        return self.first + self.rounds - 1


class Warmup(Section, ABC):
    """What happens before a method begins."""

    shares_samples: ClassVar[bool] = False
    """Whether clients give samples away."""

    length: ClassVar[str]
    """The option that says how many rounds it takes."""

    @abstractmethod
    def phases(self) -> tuple[Phase, ...]:
        """One after another, then the method follows."""

    def share(self, federation: Federation, seed: int) -> Federation:
        """The data with what clients share among them, if they do."""
        return federation

    def setup_steps(self, federation: Federation) -> tuple[SetupStep, ...]:
        """What clients do once before the first round, one step after another."""
        return ()

    def counted(self, arrival: Arrival, federation: Federation) -> Arrival:
        """An arrival with the samples that its hops count for in a mean."""
        return arrival

    @property
    def selector(self) -> Selector | None:
        """Who chooses the clients of its chains, if somebody does."""
        return None
