"""What comes out of hops and routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

Attempt = Literal["away", "silent", "failed", "answered"]
"""What became of a message to a client: it was not reached at all; it was sent the model and never answered; it could
not answer, which showed at once; it answered, well or badly."""


@dataclass(frozen=True)
class HopReport:
    """What is known of a client's turn: samples held, steps taken, mean loss."""

    samples: int
    steps: int
    loss: float
    peak: float = 0.0
    """The largest absolute value of the model; not a number, or infinite, if any of its values is."""

    length: float = 0.0
    """The norm of the update, where anybody asks for it."""

    shortened: bool = False
    """Whether the update was longer than allowed, and so was shortened."""

    rise: float | None = None
    """By how much the loss on the public set rose, where anybody asks and it can be told."""

    refused: str = ""
    """Why the model was not accepted, if so: then its route went on with the model that the client had received."""

    overhead: float | None = None
    """Seconds between sending the model and having it back, without the client's own; None where nothing was sent."""

    recall: tuple[float, ...] = ()
    """On a route that is followed: the accuracy on the samples of every client visited so far."""

    attempts: tuple[Attempt, ...] = ()
    """Where turns are messages: what became of each, until one was accepted or no more were sent."""

    @property
    def visited(self) -> bool:
        """Whether the client had the model and sent something back."""
        return not self.attempts or "answered" in self.attempts


@dataclass(frozen=True)
class Arrival:
    """A model that came home from its route: all that a merge may look at."""

    route: int
    clients: tuple[int, ...]
    weights: Tensor
    hops: tuple[HopReport, ...]
    """One report for each client, in their order."""

    payload: Mapping[str, Tensor] = field(default_factory=dict)
    received_models: Mapping[int, Tensor] = field(default_factory=dict)
    """Index of a tapped turn → the model that its client received."""

    legs: tuple[int, ...] = ()
    """Groups that the model went through, where that was decided on the way."""

    @property
    def usable(self) -> bool:
        """Whether any client's work is in it."""
        return any(not hop.refused for hop in self.hops)

    @property
    def contributors(self) -> tuple[int, ...]:
        """The clients whose work is in it, as often as it is."""
        return tuple(client for client, hop in zip(self.clients, self.hops, strict=True) if not hop.refused)

    @property
    def samples(self) -> int:
        """The samples of all clients."""
        return sum(hop.samples for hop in self.hops)

    @property
    def steps(self) -> int:
        """The steps of all clients."""
        return sum(hop.steps for hop in self.hops)

    @property
    def loss(self) -> float:
        """The mean loss over all steps."""
        return sum(hop.loss * hop.steps for hop in self.hops) / max(1, self.steps)

    def after(self, earlier: Arrival) -> Arrival:
        """This arrival and an earlier one of the same model, with whose baggage it set off, as one long trip."""
        return Arrival(
            self.route,
            earlier.clients + self.clients,
            self.weights,
            earlier.hops + self.hops,
            self.payload,
            legs=earlier.legs + self.legs,
        )

    def summed(self) -> Arrival:
        """The same with its last client alone and one report for all hops, which takes no more room after more hops."""
        peak = max((hop.peak for hop in self.hops), default=0.0)
        return replace(self, clients=self.clients[-1:], hops=(HopReport(self.samples, self.steps, self.loss, peak),))
