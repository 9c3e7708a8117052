"""What every merge has in common: arrivals in, the next global model out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.experiment.spec import Section, TrainSettings
from fedrelay.local.arrival import Arrival
from fedrelay.local.terms.base import Term
from fedrelay.models.layout import FlatLayout


@dataclass(frozen=True)
class MergeInput:
    """All that a merge may look at. Each route counts as if it were one client."""

    current: Tensor
    """The model from which the routes set off."""

    arrivals: Sequence[Arrival]
    """In the order of the plan; never empty."""

    layout: FlatLayout
    clients: int
    """The number of all clients, present or not."""

    train: TrainSettings
    """How clients trained in this round."""

    histogram: Callable[[int], NDArray[np.int64]]
    """How many labels of every class a client has; for rules that say they need it, because it has to be sent."""

    memory: Mapping[str, Tensor] = field(default_factory=dict)
    """What the rule kept from the last merge; nothing at first."""

    terms: Sequence[Term] = ()
    """What clients did beside plain training."""


class Merged(NamedTuple):
    """The next global model, a new tensor, and what the rule keeps for the next merge."""

    weights: Tensor
    memory: Mapping[str, Tensor] = {}


class Merge(Section, ABC):
    """A rule that joins arrivals."""

    needs_histograms: ClassVar[bool] = False
    """Whether clients have to tell the server how many samples of every class they hold."""

    def check(self, models: Callable[[], int]) -> None:
        """Refuse options that cannot be kept; `models` plans the last round and says how many models it brings home."""

    @abstractmethod
    def apply(self, home: MergeInput) -> Merged:
        """Join what came home."""
