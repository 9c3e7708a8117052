"""Hop requests: the request to a node for one hop, and the model that goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any

from torch import Tensor

from fedrelay.engines.base import RoundInputs
from fedrelay.engines.flower.job_description import describe_job
from fedrelay.engines.flower.messages import Message, ModelEncoding, pack_models, scalar_names
from fedrelay.engines.flower.server.client_state_versions import ClientStateVersions
from fedrelay.engines.flower.server.dispatcher import SMALL, Request
from fedrelay.engines.flower.server.reply_checks import ReplyChecker
from fedrelay.experiment.spec import RecoverySettings
from fedrelay.local.terms.tensor_declarations import Payload, ServerState
from fedrelay.local.trainer import TrainingJob
from fedrelay.routes.arrival import Arrival, HopReport
from fedrelay.routes.execution_overlay import AS_PLANNED, ExecutionOverlay
from fedrelay.routes.plan import Hop, RoundPlan

GIVEN_UP = "given up: the round went on without it"
"""Why the reply to a cancelled request is not used."""

Accept = Callable[[int, int, int], None]
"""Called with (client, route, request id) of a hop whose model was accepted."""


@dataclass
class ActiveRoute:
    """A route whose model is travelling."""

    number: int
    clients: tuple[int, ...]
    model: Tensor
    payload: dict[str, Tensor]
    inputs: RoundInputs
    round: int
    overlay: ExecutionOverlay = AS_PLANNED
    first: int = 0
    """The index of its first hop. Round, attempt and index key the randomness of a hop."""

    reports: list[HopReport] = field(default_factory=list)
    received_models: dict[int, Tensor] = field(default_factory=dict)
    request: Request | None = None
    """The request in flight."""

    given_up: bool = False
    """Whether replies that still arrive are ignored."""

    @property
    def done(self) -> bool:
        return len(self.reports) == len(self.clients)

    def arrival(self) -> Arrival:
        return Arrival(self.number, self.clients, self.model, tuple(self.reports), self.payload, self.received_models)


class HopRequestBuilder:
    """Builds the requests of routes, hop by hop."""

    def __init__(
        self, job: TrainingJob, versions: ClientStateVersions, checker: ReplyChecker, recovery: RecoverySettings
    ) -> None:
        self.job, self.versions, self.checker = job, versions, checker
        self.tries = 1 + (recovery.retries if recovery.policy == "retry" else 0)
        self.job_description, self.scalars = describe_job(job), scalar_names(job)
        self.encoding = ModelEncoding.of_request(job.codec)
        self.largest_model = max(job.layout.bytes, job.codec.bytes if job.codec is not None else 0)

    def start_route(self, plan: RoundPlan, overlay: ExecutionOverlay, inputs: RoundInputs, number: int) -> ActiveRoute:
        """A route before its first hop."""
        own = inputs.payload.get(number, {}) if number in inputs.starts else {}
        payload = {
            name: own.get(name, inputs.server.get(name, inputs.weights.new_zeros(size)))
            for name, size in self.job.tensor_sizes(Payload).items()
        }
        model = inputs.starts.get(number, inputs.weights)
        return ActiveRoute(number, plan.routes[number].clients, model, payload, inputs, plan.round, overlay)

    def next_request(self, route: ActiveRoute, accept: Accept, *, one_hop: bool = False) -> Request:
        """The request for the next hop of a route, which leads to all further hops unless `one_hop`."""
        index, typical = len(route.reports), route.inputs.typical_hop
        client = route.clients[index]
        first, length = route.first, route.first + len(route.clients)
        hop = Hop(route.round, route.number, first + index, client, route.overlay.attempt, length)
        id = self.versions.new_id()
        if (hop.route, hop.index) in route.overlay.taps:
            route.received_models[hop.index] = route.model

        def on_reply(message: Message, seconds: float) -> Request | None:
            if route.given_up:
                request.refused = GIVEN_UP
                return None
            report, model, payload = self.checker.check(hop, route.model, typical, id, message, seconds)
            if not report.refused:
                route.model, route.payload = model, payload
                accept(client, hop.route, id)
            request.refused = report.refused
            return finish(replace(report, attempts=(*request.attempts, "answered")))

        def on_failure(reason: str) -> Request | None:
            return finish(HopReport(0, 0, 0.0, refused=reason, attempts=tuple(request.attempts)))

        def finish(report: HopReport) -> Request | None:
            if route.given_up:
                return None
            route.reports.append(report)
            route.request = None
            return None if one_hop or route.done else self.next_request(route, accept)

        largest = (1 + len(route.payload)) * self.largest_model + SMALL
        build = partial(self._message, route, hop, id)
        request = Request(client, build, on_reply, on_failure, largest, self.tries, hop)
        route.request = request
        return request

    def _message(self, route: ActiveRoute, hop: Hop, id: int) -> Message:
        """The request on the wire. Tensors that are not sent are zero, or equal to the model."""
        inputs, models = route.inputs, self.first_models(route.model, route.payload)
        if route.model is not inputs.weights and self.job.needs_round_model:
            models["round"] = inputs.weights
        models |= self.server_state(inputs)
        return pack_models(self.header(inputs, route.overlay, hop, id), models, self.scalars, self.encoding)

    def first_models(self, model: Tensor, payload: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A model and its payload as a node receives them."""
        return {"recv": model} | {f"payload {name}": tensor for name, tensor in payload.items() if tensor.any()}

    def server_state(self, inputs: RoundInputs) -> dict[str, Tensor]:
        """What the server sends to every node."""
        names = self.job.tensor_names(ServerState)
        return {f"server {name}": inputs.server[name] for name in names if name in inputs.server}

    def header(self, inputs: RoundInputs, overlay: ExecutionOverlay, hop: Hop, id: int) -> dict[str, Any]:
        """What every request for a hop says."""
        tamper = overlay.tamper_at(hop.route, hop.index)
        return {
            "kind": "hop",
            "job": self.job_description,
            "run": self.versions.client_states.run_id,
            "hop": list(astuple(hop)),
            "merges": inputs.merges,
            "typical_norm": inputs.typical_hop.update_norm,
            "tamper": None if tamper is None else {"what": tamper.what, "factor": tamper.factor},
            **self.versions.request_fields(hop.client, id),
        }
