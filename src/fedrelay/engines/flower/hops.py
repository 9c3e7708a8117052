"""Hops: what a node is asked when a model comes to its client, and what becomes of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedrelay.engines.base import Departure
from fedrelay.engines.flower.brief import brief_of
from fedrelay.engines.flower.gate import Gate, Return
from fedrelay.engines.flower.inquiries import SMALL, Inquiry
from fedrelay.engines.flower.parcel import Parcel, packed
from fedrelay.engines.flower.remote import RemoteFederation
from fedrelay.engines.flower.turns import Turns
from fedrelay.local.arrival import Arrival, Attempt, HopReport
from fedrelay.local.guard import Usual
from fedrelay.local.trainer import Job
from fedrelay.local.workshop import turn_of
from fedrelay.routes.plan import Hop, RoundPlan
from fedrelay.spec import Recovery

Accept = Callable[[int, int, int], None]
"""Told (client, route, number) of a turn whose model was let in."""


@dataclass
class Traveller:
    """A route under way."""

    number: int
    clients: tuple[int, ...]
    model: Tensor
    baggage: dict[str, Tensor]
    departure: Departure
    """With what it set off."""

    round: int
    attempt: int = 0
    first: int = 0
    """The index of its first hop; these three key all randomness of its hops."""

    reports: list[HopReport] = field(default_factory=list)
    sightings: dict[int, Tensor] = field(default_factory=dict)
    inquiry: Inquiry | None = None
    """The question that is under way for it."""

    given_up: bool = False
    """Whether answers that still come are ignored."""

    @property
    def home(self) -> bool:
        """Whether all clients had their turn."""
        return len(self.reports) == len(self.clients)

    def arrival(self) -> Arrival:
        """At home."""
        return Arrival(self.number, self.clients, self.model, tuple(self.reports), self.baggage, self.sightings)


class Hops:
    """Makes questions of hops."""

    def __init__(self, job: Job, federation: RemoteFederation, turns: Turns, gate: Gate, recovery: Recovery) -> None:
        self.job, self.federation, self.turns, self.gate, self.recovery = job, federation, turns, gate, recovery
        self.brief = brief_of(job)

    def setting_off(self, plan: RoundPlan, departure: Departure, number: int) -> Traveller:
        """A route at the server, about to begin."""
        usual = {name: departure.server[name] for name in self.job.names("baggage") if name in departure.server}
        own = departure.baggage.get(number, {}) if number in departure.starts else {}
        model, zeros = departure.starts.get(number, departure.weights), torch.zeros_like(departure.weights)
        baggage = {name: own.get(name, usual.get(name, zeros)) for name in self.job.names("baggage")}
        return Traveller(number, plan.routes[number].clients, model, baggage, departure, plan.round, plan.attempt)

    def inquiry(self, plan: RoundPlan, traveller: Traveller, accept: Accept, *, alone: bool = False) -> Inquiry:
        """The next turn of a route; `alone`: those after it wait until all others have had theirs."""
        index, departure = len(traveller.reports), traveller.departure
        client = traveller.clients[index]
        hop = Hop(traveller.round, traveller.number, traveller.first + index, client, traveller.attempt)
        number = self.turns.next()
        if (hop.route, hop.index) in plan.tapped:
            traveller.sightings[hop.index] = traveller.model

        def ask() -> Parcel:
            return packed(self._question(plan, hop, number, departure.usual), self._luggage(departure, traveller))

        def answered(answer: Parcel, seconds: float) -> Inquiry | None:
            if traveller.given_up:
                return None
            found, own = self.gate.opened(answer, number, self.federation.size(client))
            found = replace(found, report=replace(found.report, overhead=max(0.0, seconds - own)))
            found = self.gate.guarded(hop, traveller.model, found, departure.usual)
            return over(found, (*inquiry.failures, "answered"))

        def failed(reason: str) -> Inquiry | None:
            nothing = HopReport(0, 0, 0.0, refused=reason)
            return over(Return(traveller.model, traveller.baggage, nothing), tuple(inquiry.failures))

        def over(found: Return, attempts: tuple[Attempt, ...]) -> Inquiry | None:
            if traveller.given_up:
                return None
            if not found.report.refused:
                traveller.model, traveller.baggage = found.model, found.baggage
                accept(client, hop.route, number)
            traveller.reports.append(replace(found.report, attempts=attempts))
            traveller.inquiry = None
            return None if alone or traveller.home else self.inquiry(plan, traveller, accept)

        rows = 1 + len(traveller.baggage)
        tries = 1 + (self.recovery.retries if self.recovery.policy == "retry" else 0)
        inquiry = Inquiry(client, ask, answered, failed, rows * self.job.layout.bytes + SMALL, tries)
        traveller.inquiry = inquiry
        return inquiry

    def _question(self, plan: RoundPlan, hop: Hop, number: int, usual: Usual) -> dict[str, Any]:
        tamper = turn_of(plan, hop).tamper
        return {
            "kind": "turn",
            "brief": self.brief,
            "run": self.turns.keepsakes.run,
            "hop": [hop.round, hop.route, hop.index, hop.client, hop.attempt],
            "usual": usual.length,
            "tamper": None if tamper is None else {"what": tamper.what, "factor": tamper.factor},
            **self.turns.header(hop.client, number),
        }

    def _luggage(self, departure: Departure, traveller: Traveller) -> dict[str, Tensor]:
        """The model and all that goes with it; what is not sent is zero, or the same as the model."""
        models = {"recv": traveller.model}
        if any(term.needs_round_model for term in self.job.terms):
            models["round"] = departure.weights
        told = {name: departure.server[name] for name in self.job.names("server") if name in departure.server}
        models |= {f"server {name}": tensor for name, tensor in told.items()}
        return models | {f"baggage {name}": tensor for name, tensor in traveller.baggage.items() if tensor.any()}
