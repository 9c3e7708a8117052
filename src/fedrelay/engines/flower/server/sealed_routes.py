"""Sealed routes: the server passes envelopes on that it cannot read, and sees only the end of each route.

Each request names the next node that is online, and its reply is an envelope for that node. If the next node fails, the
node that holds the model seals it again for another one. If a node refuses what it received, the hop before does not
count, and the model from before that hop is sealed again. A model that was sealed never comes back in the clear from
the same node: if no node is left for it, the route is lost, and the round repeats if too few routes arrive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedrelay.engines.base import RoundInputs
from fedrelay.engines.flower.messages import (
    ENVELOPE,
    SEALED,
    Array,
    BadMessage,
    Message,
    ModelEncoding,
    float_field,
    hop_report,
    int_field,
    pack_models,
    text_field,
    unpack_models,
)
from fedrelay.engines.flower.node_facts import NodeFacts
from fedrelay.engines.flower.server.dispatcher import OFFLINE, SMALL, Dispatcher, Request
from fedrelay.engines.flower.server.hop_request_builder import HopRequestBuilder
from fedrelay.engines.flower.server.reply_checks import ROUNDING
from fedrelay.engines.local.executor import one_thread
from fedrelay.local.hop_runner import apply_guard
from fedrelay.local.sealed_route_rules import least_clients
from fedrelay.local.terms.tensor_declarations import Payload
from fedrelay.robustness.guard import clip_updates, max_abs_weights
from fedrelay.routes.arrival import Arrival, HopReport
from fedrelay.routes.execution_overlay import ExecutionOverlay
from fedrelay.routes.plan import Hop, RoundPlan

LOST = "lost with its route: no node was left for the sealed model"
TOO_FEW = "too few clients to seal"
MOST_REFUSALS = 1
"""Models that a node may refuse on a route, so that one node cannot undo the work of all before it."""


@dataclass
class SealedRoute:
    """A route whose model travels sealed."""

    number: int
    clients: tuple[int, ...]
    start: Tensor
    payload: dict[str, Tensor]
    inputs: RoundInputs
    round: int
    overlay: ExecutionOverlay
    reports: dict[int, HopReport] = field(default_factory=dict)
    """Hop → its report, for hops that are over."""

    holders: list[int] = field(default_factory=list)
    """The hops whose work is in the model. The last one has it in its outbox."""

    envelope: tuple[int, Array] | None = None
    """The hop that it is sealed for, and the sealed model."""

    next_hop: int | None = None
    """The hop that the model goes to after the request in flight; None: to the server."""

    result: Tensor | None = None
    """The model at the end of the route."""

    refusals: Counter[int] = field(default_factory=Counter)
    """Hop → how many models it has refused."""

    def arrival(self) -> Arrival:
        """What came back. Without a result no hop counts, because nobody has its model."""
        reports = [self.reports.get(index, HopReport(0, 0, 0.0, refused=LOST)) for index in range(len(self.clients))]
        if self.result is None:
            reports = [each if each.refused else _refused(LOST, each.attempts) for each in reports]
        model = self.start if self.result is None else self.result
        return Arrival(self.number, self.clients, model, tuple(reports), self.payload)


class SealedRoutes:
    """Runs the sealed routes of a round.

    Args:
        hops: Builds what sealed and open requests have in common.
        dispatcher: Sends the requests.
        facts: What each node told about itself, with the key that models for it are sealed with.
    """

    def __init__(self, hops: HopRequestBuilder, dispatcher: Dispatcher, facts: Sequence[NodeFacts]) -> None:
        self.hops, self.dispatcher, self.facts = hops, dispatcher, facts
        self.job, self.versions, self.checker = hops.job, hops.versions, hops.checker
        self.least = least_clients(hops.job.terms)

    def run(self, plan: RoundPlan, overlay: ExecutionOverlay, inputs: RoundInputs) -> list[Arrival]:
        """Run all routes at once."""
        routes = [self._start(plan, overlay, inputs, number) for number, each in enumerate(plan.routes) if each.clients]
        first = [self._first_request(route) for route in routes]
        for _ in self.dispatcher.run(request for request in first if request is not None):
            pass
        for route in routes:
            self.versions.route_ended(set(route.clients), arrived=route.result is not None)
        return [route.arrival() for route in routes]

    def _start(self, plan: RoundPlan, overlay: ExecutionOverlay, inputs: RoundInputs, number: int) -> SealedRoute:
        found = self.hops.start_route(plan, overlay, inputs, number)
        return SealedRoute(number, found.clients, found.model, found.payload, inputs, plan.round, overlay)

    def _first_request(self, route: SealedRoute) -> Request | None:
        """The request for the first hop; none if too few nodes are online for a model that may be shown at the end."""
        online = self.dispatcher.online()
        present = {client for client in route.clients if self._node(client) in online}
        if len(present) < self.least:
            why = f"{TOO_FEW}: {len(present)} of this route are online, {self.least} are needed"
            for index, client in enumerate(route.clients):
                route.reports[index] = _refused(why, ()) if client in present else _refused(OFFLINE, ("away",))
            return None
        return self._to_next_online(route, 0)

    def _to_next_online(self, route: SealedRoute, begin: int) -> Request | None:
        """The request that brings the model to the first node from `begin` that is online."""
        index = self._next_online(route, begin)
        self._pass_over(route, begin, len(route.clients) if index is None else index)
        return None if index is None else self._bring_to(route, index)

    def _pass_over(self, route: SealedRoute, begin: int, end: int) -> None:
        """Nodes that were offline when the model went past them."""
        for index in range(begin, end):
            route.reports[index] = _refused(OFFLINE, ("away",))
            self.dispatcher.note_hop(route.clients[index], self._hop(route, index), None, OFFLINE)

    def _bring_to(self, route: SealedRoute, index: int) -> Request:
        """The request for a hop, or for an envelope that it needs first."""
        if not route.holders:
            return self._hop_request(route, index, {}, self.hops.first_models(route.start, route.payload))
        if route.envelope is not None and route.envelope[0] == index:
            return self._hop_request(route, index, {ENVELOPE: route.envelope[1]}, {})
        return self._seal_again_request(route, index)

    def _hop_request(
        self, route: SealedRoute, index: int, arrays: Mapping[str, Array], models: dict[str, Tensor]
    ) -> Request:
        client, inputs, id = route.clients[index], route.inputs, self.versions.new_id()
        hop = self._hop(route, index)
        guard = self.job.guard
        checked = guard.norm is not None or guard.tolerance is not None
        # All hops must get the same one; the first takes the model that it trains for it, unless it gets another.
        if (self.job.needs_round_model or checked) and (arrays or route.start is not inputs.weights):
            models = {**models, "round": inputs.weights}
        models = {**models, **self.hops.server_state(inputs)}

        def build() -> Message:
            route.next_hop = self._next_online(route, index + 1)
            from_hop = route.holders[-1] if route.holders else None
            sealed = {**self._place(route, from_hop, route.next_hop), "tolerance": guard.tolerance}
            header = {**self.hops.header(inputs, route.overlay, hop, id), SEALED: sealed}
            message = pack_models(header, models, self.hops.scalars, self.hops.encoding)
            return Message(message.header, {**message.arrays, **arrays})

        def on_reply(reply: Message, seconds: float) -> Request | None:
            if int_field(reply.header, "request") != id:
                raise BadMessage("it answers another request")
            if problem := text_field(reply.header, "refused_received"):
                request.refused = problem
                return self._take_back(route, index, problem, tuple(request.attempts))
            report = self._report(route, hop, reply, seconds, (*request.attempts, "answered"))
            route.reports[index] = report
            request.refused = report.refused
            if report.refused:
                return self._to_next_online(route, index + 1)
            if route.next_hop is not None:
                route.envelope = (route.next_hop, self._envelope(reply))
            self.versions.accept_on_arrival(client, route.number, id)
            route.holders.append(index)
            if route.next_hop is None:
                self._pass_over(route, index + 1, len(route.clients))
                return None
            self._pass_over(route, index + 1, route.next_hop)
            return self._bring_to(route, route.next_hop)

        def on_failure(reason: str) -> Request | None:
            route.reports[index] = _refused(reason, tuple(request.attempts))
            return self._to_next_online(route, index + 1)

        request = Request(client, build, on_reply, on_failure, self._largest(route), self.hops.tries, hop)
        return request

    def _seal_again_request(self, route: SealedRoute, index: int) -> Request:
        """Ask the node that holds the model to seal it for another node than before."""
        holder = route.holders[-1]
        client = route.clients[holder]
        hop = self._hop(route, holder)
        header = {
            "kind": "reseal",
            "job": self.hops.job_description,
            "typical_norm": route.inputs.typical_hop.update_norm,
            "run": self.versions.client_states.run_id,
            "hop": list(astuple(hop)),
            SEALED: self._place(route, None, index),
        }

        def on_reply(reply: Message, seconds: float) -> Request | None:
            route.envelope = (index, self._envelope(reply))
            return self._bring_to(route, index)

        def on_failure(reason: str) -> Request | None:
            return self._drop_holder(route, index, f"{reason} (asked to seal its model again)")

        return Request(client, lambda: Message(header), on_reply, on_failure, self._largest(route), self.hops.tries)

    def _take_back(self, route: SealedRoute, index: int, problem: str, attempts: tuple[Any, ...]) -> Request | None:
        """A node refuses the model it received: the hop before does not count; the second time the node is skipped."""
        if not route.holders:
            raise BadMessage("it refuses the server's own model")
        route.refusals[index] += 1
        if route.refusals[index] > MOST_REFUSALS:
            route.reports[index] = _refused(f"it refuses every model: {problem}", (*attempts, "answered"))
            return self._to_next_online(route, index + 1)
        node = self._node(route.clients[index])
        return self._drop_holder(route, index, f"refused by {node}: {problem}")

    def _drop_holder(self, route: SealedRoute, index: int, reason: str) -> Request | None:
        """Go back to the model before the last hop that counted, and bring that to the same node."""
        holder = route.holders.pop()
        route.envelope = None
        route.reports[holder] = _refused(reason, route.reports[holder].attempts)
        self.versions.route_ended({route.clients[holder]}, arrived=False)
        return self._bring_to(route, index)

    def _report(
        self, route: SealedRoute, hop: Hop, reply: Message, seconds: float, attempts: tuple[Any, ...]
    ) -> HopReport:
        """The report of a hop; the last one of a route has the model."""
        samples, steps = self.checker.expected_work(hop)
        report, worked = hop_report(reply, samples, steps, seconds)
        report = replace(report, attempts=attempts, overhead_seconds=max(0.0, seconds - worked))
        if not report.refused:
            report = replace(report, lr=self.job.learning_rate(hop))
        if report.refused or route.next_hop is not None:
            with one_thread():
                return apply_guard(
                    self.job, self.checker.module, hop, route.start, None, {}, report, route.inputs.typical_hop
                )
        return self._accept_end(route, hop, reply, report)

    def _accept_end(self, route: SealedRoute, hop: Hop, reply: Message, report: HopReport) -> HopReport:
        """Check the end of a route and take it over. Its losses and lengths are means over the route."""
        layout, names = self.job.layout, self.job.tensor_names(Payload)
        wanted, encoding = ["model", *(f"payload {name}" for name in names)], ModelEncoding.of_handover(self.job.codec)
        models = unpack_models(reply, layout, wanted, self.hops.scalars, encoding)
        model, payload = models["model"], {name: models[f"payload {name}"] for name in names}
        typical, hops = route.inputs.typical_hop, len(route.holders) + 1
        report = replace(report, max_abs_weight=max_abs_weights(model[: layout.float_size])[0])
        if self.job.guard.norm is not None:
            end = layout.trained_size
            most = hops * self.job.guard.norm * typical.update_norm * (1 + ROUNDING)
            clip_updates(model[:end], route.start[:end], torch.tensor([most], dtype=model.dtype))
            report = replace(report, update_norm=max(0.0, float_field(reply.header, "length")))
        with one_thread():
            others = {"payload": payload}
            attempts, start = report.attempts, route.start
            report = apply_guard(self.job, self.checker.module, hop, model, start, others, report, typical)
        if report.refused:
            return replace(report, attempts=attempts)
        route.result, route.payload = model, payload
        for index in route.holders:
            route.reports[index] = replace(route.reports[index], loss=report.loss, update_norm=report.update_norm)
        return report

    def _place(self, route: SealedRoute, from_hop: int | None, to_hop: int | None) -> dict[str, Any]:
        """Where a request is on its route, and the key of the next node."""
        receiver = None if to_hop is None else self.facts[route.clients[to_hop]].sealing
        return {
            "plan": [self._node(client) for client in route.clients],
            "from_hop": from_hop,
            "to_hop": to_hop,
            "receiver": None if receiver is None else receiver.model_dump(mode="json"),
        }

    def _next_online(self, route: SealedRoute, begin: int) -> int | None:
        online = self.dispatcher.connection.online()
        return next((i for i in range(begin, len(route.clients)) if self._node(route.clients[i]) in online), None)

    def _envelope(self, reply: Message) -> Array:
        envelope = reply.arrays.get(ENVELOPE)
        if envelope is None or envelope.dtype != np.uint8 or envelope.ndim != 1:
            raise BadMessage("it has no envelope")
        return envelope

    def _largest(self, route: SealedRoute) -> int:
        return (1 + len(route.payload)) * self.job.layout.bytes + SMALL

    def _hop(self, route: SealedRoute, index: int) -> Hop:
        return Hop(route.round, route.number, index, route.clients[index], route.overlay.attempt, len(route.clients))

    def _node(self, client: int) -> str:
        return self.dispatcher.nodes[client]


def _refused(reason: str, attempts: tuple[Any, ...]) -> HopReport:
    return HopReport(0, 0, 0.0, refused=reason, attempts=attempts)
