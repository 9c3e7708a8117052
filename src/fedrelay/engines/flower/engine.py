"""The relay: it sends models from node to node, all routes of a round at once, as answers come.

An answer is checked before anything is done with it. A node that is not there, does not answer in time or answers with
something else is passed over: its route goes on with the last good model, and the report of the hop says why.

What a client keeps stays at its node, in files under the number of the turn that wrote them. The server keeps that
number, with its own checkpoints: a round that is repeated or resumed reads what was there before it, and a turn that
the server never accepted leaves no trace. Where two routes visit a client in the same turn, the server names both
turns and the node adds up what they changed.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace

from torch import Tensor

from fedrelay.data.public import PublicFederation
from fedrelay.engines.base import EngineEvent, RoundInputs
from fedrelay.engines.flower.messages import BadMessage, Message, packed, vector_of, verdict_of
from fedrelay.engines.flower.server.async_rounds import AsyncRoundRunner
from fedrelay.engines.flower.server.connection import Connection
from fedrelay.engines.flower.server.dispatcher import POLL, SMALL, Dispatcher, Request
from fedrelay.engines.flower.server.hop_requests import HopRequests
from fedrelay.engines.flower.server.remote_federation import remote_part
from fedrelay.engines.flower.server.reply_checks import ReplyChecker
from fedrelay.engines.flower.server.state_versions import StateVersions
from fedrelay.engines.local.executor import one_thread
from fedrelay.errors import EngineError
from fedrelay.experiment.serialize import to_plain
from fedrelay.experiment.spec import RecoverySettings
from fedrelay.local.arrival import Arrival
from fedrelay.local.client_profile import ClientProfiler, ProfileVector
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.evaluation import EvaluationSums, chunks, evaluate_chunk
from fedrelay.local.trainer import TrainingJob
from fedrelay.routes.overlay import ExecutionOverlay
from fedrelay.routes.plan import RoundPlan

log = logging.getLogger(__name__)

BARREN = 8
"""So many attempts in a row that bring nothing home end the run: it would only pretend to go on."""


class FlowerEngine:
    """Plans in, arrivals out; nodes do the work."""

    def __init__(
        self,
        job: TrainingJob,
        connection: Connection,
        recovery: RecoverySettings,
        client_states: ClientStateStore | None = None,
        *,
        wait: float = 60.0,
        poll: float = POLL,
    ) -> None:
        federation = remote_part(job.federation)
        assert federation is not None
        self.job, self.connection, self.recovery, self.wait = job, connection, recovery, wait
        self.federation = federation
        self.dispatcher = Dispatcher(connection, federation.nodes, recovery.timeout, poll, wait)
        self.versions = StateVersions(client_states or ClientStateStore(), count=bool(job.names("state")))
        self.gate = ReplyChecker(job)
        self.hops = HopRequests(job, federation, self.versions, self.gate, recovery)
        self.course = AsyncRoundRunner(self.hops, self.dispatcher)
        self.barren = 0
        self.notes: list[EngineEvent] = []

    def run_round(self, plan: RoundPlan, overlay: ExecutionOverlay, inputs: RoundInputs) -> list[Arrival]:
        """Run all routes; where real arrivals decide, until the fastest model has finished one more group."""
        real = plan.real_arrivals
        self._await_somebody(
            set(range(self.federation.clients) if real else (c for r in plan.routes for c in r.clients))
        )
        self.versions.begin(plan.round)
        arrivals = self.course.run(plan, inputs) if real else self._run_routes(plan, overlay, inputs)
        self._count_barren(arrivals)
        return arrivals

    def _run_routes(self, plan: RoundPlan, overlay: ExecutionOverlay, inputs: RoundInputs) -> list[Arrival]:
        """All routes side by side; in waves, where they share clients that keep something."""
        numbers = [number for number, route in enumerate(plan.routes) if route.clients]
        routes = [self.hops.setting_off(plan, overlay, inputs, number) for number in numbers]
        waves = self.job.goes_in_waves(plan)
        accept = self.versions.accept if waves else self.versions.accept_alone
        steps = plan.steps if waves else ((0,),) * len(plan.routes)
        for step in sorted(set().union(*steps)):
            moving = [each for each in routes if step in steps[each.number]]
            self._carry_out(self.hops.request(overlay, each, accept, alone=waves) for each in moving)
            self.versions.join()
        return [each.arrival() for each in routes]

    def commit_client_state(self) -> None:
        """Have the turns of the round count."""
        self.versions.keep()

    def profile_clients(
        self, profiler: ClientProfiler, clients: Sequence[int], weights: Tensor
    ) -> Iterator[tuple[int, ProfileVector]]:
        """Ask all clients at once; each must answer, because groups are formed of all."""
        found: deque[tuple[int, ProfileVector]] = deque()
        lengths: dict[str, tuple[int, ...]] = {}
        public = self.job.federation.public if isinstance(self.job.federation, PublicFederation) else None
        shown = {} if public is None else {"public x": public.x.numpy(), "public y": public.y.numpy()}

        def request(place: int, client: int) -> Request:
            header = {"kind": "portray", "brief": self.hops.brief, "portrait": to_plain(profiler), "client": client}

            def ask() -> Message:
                plain = packed(header, {"start": weights})
                return replace(plain, arrays={**plain.arrays, **shown})

            def answered(answer: Message, seconds: float) -> None:
                vector = vector_of(answer, self.job.layout.size + SMALL)
                if vector.shape != lengths.setdefault("first", vector.shape):
                    raise BadMessage("a description of another length than others'")
                found.append((place, vector))

            def failed(reason: str) -> None:
                raise EngineError(f"node {self.federation.nodes[client]!r} did not describe itself: {reason}")

            return Request(client, ask, answered, failed, 2 * self.job.layout.bytes + SMALL, 1 + self.recovery.retries)

        self._await_somebody(set(clients))
        for _ in self.dispatcher.run([request(place, client) for place, client in enumerate(clients)]):
            while found:
                yield found.popleft()

    def evaluate(self, weights: Tensor) -> EvaluationSums:
        """Judge a model here, where the server has test samples; else at the nodes, whose verdicts add up."""
        test = self.job.federation.test
        if len(test.y):
            with one_thread():
                return total([evaluate_chunk(self.gate.bench, weights, test, chunk) for chunk in range(chunks(test))])
        judges = [client for client, facts in enumerate(self.federation.facts) if facts.tests]
        verdicts = self._verdicts(judges, weights)
        if not verdicts:
            raise EngineError("no node judged the model; the run can be resumed when nodes are back")
        return total([verdicts[client] for client in sorted(verdicts)])

    def _verdicts(self, judges: Sequence[int], weights: Tensor) -> dict[int, EvaluationSums]:
        """Client → its verdict. Who fails is asked again; if nobody answers, more patiently."""
        verdicts: dict[int, EvaluationSums] = {}
        reasons: dict[int, str] = {}

        def request(client: int) -> Request:
            header = {"kind": "judge", "brief": self.hops.brief}

            def answered(answer: Message, seconds: float) -> None:
                verdicts[client] = verdict_of(answer, self.federation.classes, self.federation.facts[client].judged)

            def failed(reason: str) -> None:
                reasons[client] = reason

            return Request(client, lambda: packed(header, {"model": weights}), answered, failed)

        missing, asked = list(judges), 0
        while missing and asked <= (self.recovery.retries if verdicts else self.recovery.repeats):
            if not verdicts:
                self._await_somebody(set(missing))
            self._carry_out(request(client) for client in missing)
            missing, asked = [client for client in judges if client not in verdicts], asked + 1
        for client in missing if verdicts else ():
            log.warning("node %r did not judge the model: %s", self.federation.nodes[client], reasons[client])
            tests = self.federation.facts[client].tests
            self.notes.append(
                EngineEvent("no verdict", f"judged without its {tests} samples: {reasons[client]}", client)
            )
        return verdicts

    def take_events(self) -> list[EngineEvent]:
        """Who could not be asked, and when nobody could."""
        told = [*(EngineEvent("interrupted", said) for said in self.dispatcher.interruptions), *self.notes]
        self.notes.clear()
        self.dispatcher.interruptions.clear()
        return told

    def close(self) -> None:
        """Say good-bye to the SuperLink; nodes stay."""
        self.connection.close()

    def _carry_out(self, dispatcher: Iterable[Request]) -> None:
        for _ in self.dispatcher.run(dispatcher):
            pass

    def _await_somebody(self, clients: Set[int]) -> None:
        """Wait until one of these clients' nodes is there: rounds without anybody would pass as if trained."""
        wanted, began = {self.federation.nodes[client] for client in clients}, time.monotonic()
        while wanted and not wanted & self.dispatcher.present():
            if time.monotonic() - began > self.wait:
                raise EngineError(
                    f"no node is there (waited {self.wait:g} s for {', '.join(sorted(wanted))}); "
                    "the run can be resumed when nodes are back"
                )
            time.sleep(min(1.0, 5 * self.dispatcher.poll))

    def _count_barren(self, arrivals: Sequence[Arrival]) -> None:
        self.barren = 0 if any(each.usable for each in arrivals) or not arrivals else self.barren + 1
        if self.barren >= BARREN:
            reasons = Counter(hop.refused for each in arrivals for hop in each.hops)
            raise EngineError(
                f"nothing came home from {self.barren} attempts in a row; most said: {reasons.most_common(1)[0][0]}"
            )


def total(verdicts: Sequence[EvaluationSums]) -> EvaluationSums:
    """All verdicts as one."""
    return sum(verdicts[1:], verdicts[0])
