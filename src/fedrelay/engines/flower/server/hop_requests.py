"""HopRequests: what a node is asked when a model comes to its client, and what becomes of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from fedrelay.engines.base import RoundInputs
from fedrelay.engines.flower.job_description import describe_job
from fedrelay.engines.flower.messages import Message, packed
from fedrelay.engines.flower.server.dispatcher import SMALL, Request
from fedrelay.engines.flower.server.remote_federation import RemoteFederation
from fedrelay.engines.flower.server.reply_checks import HopReply, ReplyChecker
from fedrelay.engines.flower.server.state_versions import StateVersions
from fedrelay.experiment.spec import RecoverySettings
from fedrelay.local.arrival import Arrival, Attempt, HopReport
from fedrelay.local.trainer import TrainingJob
from fedrelay.robustness.guard import TypicalHop
from fedrelay.routes.overlay import ExecutionOverlay
from fedrelay.routes.plan import Hop, RoundPlan

Accept = Callable[[int, int, int], None]
"""Told (client, route, number) of a turn whose model was let in."""


@dataclass
class ActiveRoute:
    """A route under way."""

    number: int
    clients: tuple[int, ...]
    model: Tensor
    payload: dict[str, Tensor]
    departure: RoundInputs
    """With what it set off."""

    round: int
    attempt: int = 0
    first: int = 0
    """The index of its first hop; these three key all randomness of its hops."""

    reports: list[HopReport] = field(default_factory=list)
    received_models: dict[int, Tensor] = field(default_factory=dict)
    request: Request | None = None
    """The question that is under way for it."""

    given_up: bool = False
    """Whether answers that still come are ignored."""

    @property
    def home(self) -> bool:
        """Whether all clients had their turn."""
        return len(self.reports) == len(self.clients)

    def arrival(self) -> Arrival:
        """At home."""
        return Arrival(self.number, self.clients, self.model, tuple(self.reports), self.payload, self.received_models)


class HopRequests:
    """Makes questions of hops."""

    def __init__(
        self,
        job: TrainingJob,
        federation: RemoteFederation,
        versions: StateVersions,
        gate: ReplyChecker,
        recovery: RecoverySettings,
    ) -> None:
        self.job, self.federation, self.versions, self.gate, self.recovery = job, federation, versions, gate, recovery
        self.brief = describe_job(job)

    def setting_off(
        self, plan: RoundPlan, overlay: ExecutionOverlay, departure: RoundInputs, number: int
    ) -> ActiveRoute:
        """A route at the server, about to begin."""
        usual = {name: departure.server[name] for name in self.job.names("payload") if name in departure.server}
        own = departure.payload.get(number, {}) if number in departure.starts else {}
        model, zeros = departure.starts.get(number, departure.weights), torch.zeros_like(departure.weights)
        payload = {name: own.get(name, usual.get(name, zeros)) for name in self.job.names("payload")}
        return ActiveRoute(number, plan.routes[number].clients, model, payload, departure, plan.round, overlay.attempt)

    def request(self, overlay: ExecutionOverlay, route: ActiveRoute, accept: Accept, *, alone: bool = False) -> Request:
        """The next turn of a route; `alone`: those after it wait until all others have had theirs."""
        index, departure = len(route.reports), route.departure
        client = route.clients[index]
        hop = Hop(route.round, route.number, route.first + index, client, route.attempt)
        number = self.versions.next()
        if (hop.route, hop.index) in overlay.taps:
            route.received_models[hop.index] = route.model

        def ask() -> Message:
            return packed(self._question(overlay, hop, number, departure.usual), self._luggage(departure, route))

        def answered(answer: Message, seconds: float) -> Request | None:
            if route.given_up:
                return None
            found, own = self.gate.opened(answer, number, self.federation.size(client))
            found = replace(found, report=replace(found.report, overhead=max(0.0, seconds - own)))
            found = self.gate.guarded(hop, route.model, found, departure.usual)
            return over(found, (*request.failures, "answered"))

        def failed(reason: str) -> Request | None:
            nothing = HopReport(0, 0, 0.0, refused=reason)
            return over(HopReply(route.model, route.payload, nothing), tuple(request.failures))

        def over(found: HopReply, attempts: tuple[Attempt, ...]) -> Request | None:
            if route.given_up:
                return None
            if not found.report.refused:
                route.model, route.payload = found.model, found.payload
                accept(client, hop.route, number)
            route.reports.append(replace(found.report, attempts=attempts))
            route.request = None
            return None if alone or route.home else self.request(overlay, route, accept)

        rows = 1 + len(route.payload)
        tries = 1 + (self.recovery.retries if self.recovery.policy == "retry" else 0)
        request = Request(client, ask, answered, failed, rows * self.job.layout.bytes + SMALL, tries)
        route.request = request
        return request

    def _question(self, overlay: ExecutionOverlay, hop: Hop, number: int, usual: TypicalHop) -> dict[str, Any]:
        tamper = overlay.tamper_at(hop.route, hop.index)
        return {
            "kind": "turn",
            "brief": self.brief,
            "run": self.versions.client_states.run,
            "hop": [hop.round, hop.route, hop.index, hop.client, hop.attempt],
            "usual": usual.length,
            "tamper": None if tamper is None else {"what": tamper.what, "factor": tamper.factor},
            **self.versions.header(hop.client, number),
        }

    def _luggage(self, departure: RoundInputs, route: ActiveRoute) -> dict[str, Tensor]:
        """The model and all that goes with it; what is not sent is zero, or the same as the model."""
        models = {"recv": route.model}
        fresh = route.model is departure.weights
        if not fresh and any(term.needs_round_model for term in self.job.terms):
            models["round"] = departure.weights
        told = {name: departure.server[name] for name in self.job.names("server") if name in departure.server}
        models |= {f"server {name}": tensor for name, tensor in told.items()}
        return models | {f"payload {name}": tensor for name, tensor in route.payload.items() if tensor.any()}
