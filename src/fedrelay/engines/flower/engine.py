"""The Flower engine: it sends models from node to node, all routes of a round at once.

Every reply is checked before it is used. A node that is offline, does not reply in time or replies with something
wrong is skipped: its route goes on with the last good model, and the report of the hop says why.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

from torch import Tensor

from fedrelay.data.evaluation_samples import EvaluationSet
from fedrelay.data.public_samples import FederationWithPublicSamples
from fedrelay.data.samples import Rows
from fedrelay.engines.base import EngineEvent, RoundInputs
from fedrelay.engines.flower.messages import (
    FINE_TUNE,
    BadMessage,
    Message,
    evaluation_from,
    fine_tuned_part,
    pack_models,
    profile_vector,
)
from fedrelay.engines.flower.server.async_round_runner import AsyncRoundRunner
from fedrelay.engines.flower.server.audit_trail import AuditTrail
from fedrelay.engines.flower.server.client_state_versions import ClientStateVersions
from fedrelay.engines.flower.server.connection_interface import Connection
from fedrelay.engines.flower.server.dispatcher import POLL, SMALL, Dispatcher, Signatures
from fedrelay.engines.flower.server.frozen_parameter_delivery import FrozenParameterDelivery
from fedrelay.engines.flower.server.hop_request_builder import HopRequestBuilder
from fedrelay.engines.flower.server.remote_federation import remote_part
from fedrelay.engines.flower.server.reply_checks import ReplyChecker
from fedrelay.engines.flower.server.sealed_routes import SealedRoutes
from fedrelay.engines.local.executor import one_thread
from fedrelay.errors import EngineError
from fedrelay.experiment.part_serialization import to_plain
from fedrelay.experiment.spec import RecoverySettings
from fedrelay.local.client_evaluation import ClientEvaluation, ClientEvaluationSettings
from fedrelay.local.client_profiler import ClientProfiler, ProfileVector
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.evaluation import evaluate
from fedrelay.local.model_checks import example_batch
from fedrelay.local.terms.tensor_declarations import ClientState
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.frozen_parameter_serialization import frozen_bytes
from fedrelay.models.nested_inputs import named_tensors
from fedrelay.robustness.fault_events import UNDEFINED_METRIC, UNUSUAL_CLAIM
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.execution_overlay import ExecutionOverlay
from fedrelay.routes.plan import RoundPlan
from fedrelay.tasks.base import EvaluationSums

log = logging.getLogger(__name__)

MAX_EMPTY = 8
"""Attempts in a row without a usable model that end the run."""


class FlowerEngine:
    """Carries out plans on nodes."""

    def __init__(
        self,
        job: TrainingJob,
        connection: Connection,
        recovery: RecoverySettings,
        client_states: ClientStateStore | None = None,
        *,
        wait: float = 60.0,
        poll: float = POLL,
        signatures: Signatures | None = None,
        withdrawn: Collection[str] = (),
        audit: AuditTrail | None = None,
    ) -> None:
        federation = remote_part(job.federation)
        assert federation is not None
        self.job, self.connection, self.recovery, self.wait = job, connection, recovery, wait
        self.federation = federation
        self.members = [client for client, name in enumerate(federation.nodes) if name not in withdrawn]
        """All clients that have not left for good."""

        setup = FrozenParameterDelivery(frozen_bytes(job.module) if job.layout.frozen else None)
        self.dispatcher = Dispatcher(
            connection, federation.nodes, recovery.timeout, poll, wait, setup, signatures, audit
        )
        self.versions = ClientStateVersions(
            client_states or ClientStateStore(), enabled=bool(job.tensor_names(ClientState))
        )
        self.checker = ReplyChecker(job)
        self.hops = HopRequestBuilder(job, self.versions, self.checker, recovery)
        self.sealed = SealedRoutes(self.hops, self.dispatcher, federation.facts)
        self.async_rounds = AsyncRoundRunner(self.hops, self.dispatcher)
        self.empty = 0
        self.last_evaluated: tuple[Tensor, dict[int, EvaluationSums]] | None = None
        """The model that nodes evaluated last on their held-out samples, and their answers."""

        self.events = [
            EngineEvent(UNUSUAL_CLAIM, f"accepted: it {remark.text}", federation.nodes.index(remark.node))
            for remark in federation.remarks
        ]

    def run_round(self, plan: RoundPlan, overlay: ExecutionOverlay, inputs: RoundInputs) -> list[Arrival]:
        """Run all routes; where real arrivals decide, until the fastest model has finished one more group."""
        real = plan.real_arrivals
        clients = self.members if real else (c for route in plan.routes for c in route.clients)
        self._await_any_node(set(clients))
        self.versions.start_round(plan.round)
        if real:
            arrivals = self.async_rounds.run(plan, inputs)
        elif plan.handover == "sealed":
            arrivals = self.sealed.run(plan, overlay, inputs)
        else:
            arrivals = self._run_routes(plan, overlay, inputs)
        self._count_empty(arrivals)
        return arrivals

    def _run_routes(self, plan: RoundPlan, overlay: ExecutionOverlay, inputs: RoundInputs) -> list[Arrival]:
        """All routes at once; step by step if they share clients that keep state."""
        numbers = [number for number, route in enumerate(plan.routes) if route.clients]
        routes = [self.hops.start_route(plan, overlay, inputs, number) for number in numbers]
        stepwise = self.job.needs_waves(plan)
        accept = self.versions.accept if stepwise else self.versions.accept_now
        steps = self.job.steps(plan) if stepwise else ((0,),) * len(plan.routes)
        for step in sorted(set().union(*steps)):
            moving = [route for route in routes if step in steps[route.number]]
            for _ in self.dispatcher.run(self.hops.next_request(each, accept, one_hop=stepwise) for each in moving):
                pass
            self.versions.merge_accepted()
        return [route.arrival() for route in routes]

    def commit_client_state(self) -> None:
        """Make the hops of the round count."""
        self.versions.commit()

    def profile_clients(
        self, profiler: ClientProfiler, clients: Sequence[int], weights: Tensor
    ) -> Iterator[tuple[int, ProfileVector]]:
        """Ask clients for their profiles. All must reply, because groups are formed from all."""
        shapes: set[tuple[int, ...]] = set()
        public = self.job.federation.public if isinstance(self.job.federation, FederationWithPublicSamples) else None
        parts = {} if public is None else {**named_tensors(public.x), "targets": public.y}
        samples = {f"public {name}": part.numpy() for name, part in parts.items()}
        header = {"kind": "profile", "job": self.hops.job_description, "profiler": to_plain(profiler)}

        def build(client: int) -> Message:
            message = pack_models({**header, "client": client}, {"start": weights})
            return replace(message, arrays={**message.arrays, **samples})

        def parse(client: int, reply: Message) -> ProfileVector:
            vector = profile_vector(reply, self.job.layout.size + SMALL)
            if shapes and vector.shape not in shapes:
                raise BadMessage("its profile has another length than the others")
            shapes.add(vector.shape)
            return vector

        self._await_any_node(set(clients))
        largest, tries = 2 * self.job.layout.bytes + SMALL, 1 + self.recovery.retries
        for client, vector in self.dispatcher.ask(clients, build, parse, largest, tries):
            if isinstance(vector, str):
                raise EngineError(f"node {self.federation.nodes[client]!r} did not send its profile: {vector}")
            yield clients.index(client), vector

    def evaluate(self, weights: Tensor, on: EvaluationSet = "test", rows: Rows | None = None) -> EvaluationSums:
        """Evaluate at the server if it has test samples; otherwise add up the evaluations of the nodes."""
        test = self.job.federation.test
        if on == "test" and test.size:
            with one_thread():
                return evaluate(self.checker.module, weights, self.job.task, test, rows)
        clients = [client for client in self.members if self.federation.facts[client].reserved_samples(on)]
        sums = self._evaluate_at_nodes(clients, weights, on)
        if not sums:
            raise EngineError("no node evaluated the model; resume the run when nodes are back")
        return reduce(add, (sums[client] for client in sorted(sums)))

    def evaluate_models(
        self, models: Sequence[Tensor], on: EvaluationSet = "test", rows: Rows | None = None
    ) -> list[EvaluationSums]:
        return [self.evaluate(model, on, rows) for model in models]

    def evaluate_clients(
        self, models: Tensor | Mapping[int, Tensor], wanted: ClientEvaluationSettings
    ) -> dict[int, ClientEvaluation]:
        """Nodes send sums alone, so there are no resamples. What the whole evaluation has asked is not asked again."""
        holders = [client for client in self.members if self.federation.facts[client].tests]
        if isinstance(models, Tensor):
            if not wanted.fine_tune and self.last_evaluated is not None and self.last_evaluated[0] is models:
                return {client: ClientEvaluation(client, sums) for client, sums in self.last_evaluated[1].items()}
            models = dict.fromkeys(holders, models)
        clients = [client for client in holders if client in models]
        return self._ask_for_evaluations(clients, models, "test", wanted)

    def _evaluate_at_nodes(
        self, clients: Sequence[int], weights: Tensor, on: EvaluationSet
    ) -> dict[int, EvaluationSums]:
        """Client → its evaluation of a model."""
        found = self._ask_for_evaluations(clients, dict.fromkeys(clients, weights), on, ClientEvaluationSettings(0))
        sums = {client: each.sums for client, each in found.items()}
        if on == "test":
            self.last_evaluated = weights, sums
        return sums

    def _ask_for_evaluations(
        self, clients: Sequence[int], models: Mapping[int, Tensor], on: EvaluationSet, wanted: ClientEvaluationSettings
    ) -> dict[int, ClientEvaluation]:
        """Client → its evaluation. Nodes that fail are asked again; more often as long as none has replied."""
        found: dict[int, ClientEvaluation] = {}
        reasons: dict[int, str] = {}
        header: dict[str, Any] = {"kind": "evaluate", "on": on, "job": self.hops.job_description}
        if wanted.fine_tune:
            header |= {FINE_TUNE: wanted.fine_tune, "round": wanted.round}
        if not clients:
            return {}
        with one_thread():
            batch = example_batch(self.job.federation)
            example = evaluate(self.checker.module, models[clients[0]], self.job.task, batch)

        packed = {id(model): pack_models(header, {"model": model}) for model in models.values()}  # often all are one

        def build(client: int) -> Message:
            message = packed[id(models[client])]
            return replace(message, header={**message.header, "client": client}) if wanted.fine_tune else message

        def parse(client: int, reply: Message) -> ClientEvaluation:
            predictions = self.federation.facts[client].predictions(on)
            sums = evaluation_from(reply, self.job.task, example, predictions)
            if not wanted.fine_tune:
                return ClientEvaluation(client, sums)
            return ClientEvaluation(
                client, sums, evaluation_from(fine_tuned_part(reply), self.job.task, example, predictions)
            )

        missing, asked = list(clients), 0
        while missing and asked <= (self.recovery.retries if found else self.recovery.repeats):
            if not found:
                self._await_any_node(set(missing))
            for client, reply in self.dispatcher.ask(missing, build, parse):
                if isinstance(reply, str):
                    reasons[client] = reply
                else:
                    found[client] = reply
            missing, asked = [client for client in clients if client not in found], asked + 1
        for client in missing if found else ():
            log.warning("node %r did not evaluate the model: %s", self.federation.nodes[client], reasons[client])
            kept = self.federation.facts[client].reserved_samples(on)
            text = f"evaluated without its {kept} {on} samples: {reasons[client]}"
            self.events.append(EngineEvent("no evaluation", text, client))
        for client in sorted(client for client in found if found[client].sums.non_finite):
            text = f"all metrics on its {on} samples (the model's outputs are NaN or infinite)"
            self.events.append(EngineEvent(UNDEFINED_METRIC, text, client))
        return found

    def take_events(self) -> list[EngineEvent]:
        """Unusual claims, interruptions of the connection, missing and undefined evaluations since the last call."""
        interrupted = [EngineEvent("interrupted", line) for line in self.dispatcher.interruptions]
        events, self.events, self.dispatcher.interruptions = [*interrupted, *self.events], [], []
        return events

    def close(self) -> None:
        """End the run at the SuperLink; nodes stay connected."""
        self.connection.close()
        if self.dispatcher.audit is not None:
            self.dispatcher.audit.close()

    def _await_any_node(self, clients: Set[int]) -> None:
        """Wait until the node of one of these clients is online: a round without any would train nothing."""
        wanted, began = {self.federation.nodes[client] for client in clients}, time.monotonic()
        while wanted and not wanted & self.dispatcher.online():
            if time.monotonic() - began > self.wait:
                raise EngineError(
                    f"no node is online (waited {self.wait:g} s for {', '.join(sorted(wanted))}); "
                    "resume the run when nodes are back"
                )
            time.sleep(min(1.0, 5 * self.dispatcher.poll))

    def _count_empty(self, arrivals: Sequence[Arrival]) -> None:
        self.empty = 0 if any(arrival.usable for arrival in arrivals) or not arrivals else self.empty + 1
        if self.empty >= MAX_EMPTY:
            reasons = Counter(hop.refused for arrival in arrivals for hop in arrival.hops)
            [(reason, _)] = reasons.most_common(1)
            raise EngineError(
                f"no usable model arrived in {self.empty} attempts in a row; most common reason: {reason}"
            )
