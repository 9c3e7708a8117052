"""The results of hops and routes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from torch import Tensor

Attempt = Literal["away", "silent", "failed", "answered"]
"""The outcome of one request to a client: it was offline; it received the model and never replied; it reported a
failure; it replied (the reply may still be refused)."""


@dataclass(frozen=True)
class HopReport:
    """What is known about one client's hop."""

    samples: int
    steps: int
    loss: float
    """The mean training loss over all steps."""

    max_abs_weight: float = 0.0
    """The largest absolute value in the model; NaN or infinite if any value is."""

    update_norm: float = 0.0
    """The norm of the update, if the guard or a term needs it."""

    update_clipped: bool = False
    """Whether the update was longer than allowed and was scaled down."""

    public_loss_increase: float | None = None
    """How much the loss on the public set increased, if the guard measures it and it is finite."""

    refused: str = ""
    """Why the model was refused, or empty. The route then continued with the model that the client had received."""

    overhead_seconds: float | None = None
    """Seconds between request and reply, without the client's own time; None if no message was sent."""

    accuracy_on_visited: tuple[float, ...] = ()
    """The accuracy on the samples of each client visited so far, on a route whose forgetting is measured."""

    lr: float | None = None
    """The learning rate of its steps; None if there were none."""

    attempts: tuple[Attempt, ...] = ()
    """Where hops are messages: the outcome of each request, until one was accepted or no more were sent."""

    @property
    def answered(self) -> bool:
        """Whether the client received the model and sent something back."""
        return not self.attempts or "answered" in self.attempts


@dataclass(frozen=True)
class Arrival:
    """A model that came back from its route, with everything a merge may use."""

    route: int
    clients: tuple[int, ...]
    weights: Tensor
    hops: tuple[HopReport, ...]
    """One report per client, in the order of `clients`."""

    payload: Mapping[str, Tensor] = field(default_factory=dict)
    received_models: Mapping[int, Tensor] = field(default_factory=dict)
    """Index of a hop that is observed → the model that its client received."""

    visited_groups: tuple[int, ...] = ()
    """The groups that the model went through, if this was decided during the round."""

    @property
    def usable(self) -> bool:
        """Whether at least one hop was accepted."""
        return any(not hop.refused for hop in self.hops)

    @property
    def contributors(self) -> tuple[int, ...]:
        """The clients of all accepted hops; a client with several hops appears several times."""
        return tuple(client for client, hop in zip(self.clients, self.hops, strict=True) if not hop.refused)

    @property
    def samples(self) -> int:
        return sum(hop.samples for hop in self.hops)

    @property
    def steps(self) -> int:
        return sum(hop.steps for hop in self.hops)

    @property
    def loss(self) -> float:
        """The mean training loss over all steps."""
        return sum(hop.loss * hop.steps for hop in self.hops) / max(1, self.steps)

    def extending(self, earlier: Arrival) -> Arrival:
        """This arrival and an earlier one of the same model, which it started from, as one long route."""
        return Arrival(
            self.route,
            earlier.clients + self.clients,
            self.weights,
            earlier.hops + self.hops,
            self.payload,
            visited_groups=earlier.visited_groups + self.visited_groups,
        )

    def with_summed_hops(self) -> Arrival:
        """The same with only its last client and one report for all hops, so that long routes do not grow."""
        largest = max((hop.max_abs_weight for hop in self.hops), default=0.0)
        return replace(self, clients=self.clients[-1:], hops=(HopReport(self.samples, self.steps, self.loss, largest),))
