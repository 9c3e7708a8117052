"""The relay: it sends models from node to node, all routes of a round at once, as answers come.

An answer is checked before anything is done with it. A node that is not there, does not answer in time or answers with
something else is passed over: its route goes on with the last good model, and the report of the hop says why.

What a client keeps stays at its node, in files under the number of the turn that wrote them. The server keeps that
number, with its own checkpoints: a round that is repeated or resumed reads what was there before it, and a turn that
the server never accepted leaves no trace. Where two routes visit a client in the same turn, the server names both
turns and the node adds up what they changed.
"""

from __future__ import annotations

import copy
import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedrelay.data.public import PublicFederation
from fedrelay.engines.base import Departure, News
from fedrelay.engines.crew import one_thread
from fedrelay.engines.flower.brief import brief_of
from fedrelay.engines.flower.errands import POLL, SMALL, Errand, Errands
from fedrelay.engines.flower.parcel import (
    BadParcel,
    Parcel,
    packed,
    report_of,
    unpacked,
    vector_of,
    verdict_of,
    whole,
)
from fedrelay.engines.flower.post import Post
from fedrelay.engines.flower.remote import remote_part
from fedrelay.engines.flower.turns import Turns
from fedrelay.errors import EngineError
from fedrelay.local.arrival import Arrival, Attempt, HopReport
from fedrelay.local.guard import fault_in, peaks, shorten
from fedrelay.local.judge import Verdict, chunks, judge, mean_loss
from fedrelay.local.keepsakes import Keepsakes
from fedrelay.local.portrait import Likeness, Portrait
from fedrelay.local.trainer import Job
from fedrelay.local.visit import Visit
from fedrelay.local.workshop import WORSE, diverged, turn_of
from fedrelay.models.layout import Workbench
from fedrelay.plain import described
from fedrelay.routes.plan import Hop, RoundPlan
from fedrelay.spec import Recovery

log = logging.getLogger(__name__)

ROUNDING = 1e-4
"""By so much an update may seem too long that was shortened elsewhere."""

BARREN = 8
"""So many attempts in a row that bring nothing home end the run: it would only pretend to go on."""


@dataclass
class Traveller:
    """A route under way."""

    number: int
    clients: tuple[int, ...]
    model: Tensor
    baggage: dict[str, Tensor]
    reports: list[HopReport] = field(default_factory=list)
    sightings: dict[int, Tensor] = field(default_factory=dict)

    @property
    def home(self) -> bool:
        """Whether all clients had their turn."""
        return len(self.reports) == len(self.clients)

    def arrival(self) -> Arrival:
        """At home."""
        return Arrival(self.number, self.clients, self.model, tuple(self.reports), self.baggage, self.sightings)


@dataclass(frozen=True)
class Return:
    """A good answer: what the client made of the model, not yet looked at by the guard."""

    model: Tensor
    baggage: dict[str, Tensor]
    report: HopReport


class FlowerEngine:
    """Plans in, arrivals out; nodes do the work."""

    def __init__(
        self,
        job: Job,
        post: Post,
        recovery: Recovery,
        keepsakes: Keepsakes | None = None,
        *,
        wait: float = 60.0,
        poll: float = POLL,
    ) -> None:
        federation = remote_part(job.federation)
        assert federation is not None
        self.job, self.post, self.recovery, self.wait = job, post, recovery, wait
        self.federation = federation
        self.errands = Errands(post, federation.nodes, recovery.timeout, poll, wait)
        self.turns = Turns(keepsakes or Keepsakes(), count=bool(job.names("state")))
        self.brief = brief_of(job)
        self.barren = 0
        self.notes: list[News] = []

    def travel(self, plan: RoundPlan, departure: Departure) -> list[Arrival]:
        """Carry out all routes of a round."""
        self._await_somebody({client for route in plan.routes for client in route.clients})
        self.turns.begin(plan.round)
        numbers = [number for number, route in enumerate(plan.routes) if route.clients]
        travellers = [self._setting_off(plan, departure, number) for number in numbers]
        waves = self.job.goes_in_waves(plan)
        for _ in range(plan.longest if waves else 1):
            under_way = [each for each in travellers if not each.home]
            self._carry_out(self._hop(plan, departure, each, alone=waves) for each in under_way)
            self.turns.join()
        arrivals = [each.arrival() for each in travellers]
        self._count_barren(arrivals)
        return arrivals

    def keep(self) -> None:
        """Have the turns of the round count."""
        self.turns.keep()

    def portray(self, portrait: Portrait, clients: Sequence[int], weights: Tensor) -> Iterator[tuple[int, Likeness]]:
        """Ask all clients at once; each must answer, because groups are formed of all."""
        found: deque[tuple[int, Likeness]] = deque()
        lengths: dict[str, tuple[int, ...]] = {}
        public = self.job.federation.public if isinstance(self.job.federation, PublicFederation) else None
        shown = {} if public is None else {"public x": public.x.numpy(), "public y": public.y.numpy()}

        def errand(place: int, client: int) -> Errand:
            header = {"kind": "portray", "brief": self.brief, "portrait": described(portrait), "client": client}

            def ask() -> Parcel:
                plain = packed(header, {"start": weights})
                return replace(plain, arrays={**plain.arrays, **shown})

            def answered(answer: Parcel, seconds: float) -> None:
                vector = vector_of(answer, self.job.layout.size + SMALL)
                if vector.shape != lengths.setdefault("first", vector.shape):
                    raise BadParcel("a description of another length than others'")
                found.append((place, vector))

            def failed(reason: str) -> None:
                raise EngineError(f"node {self.federation.nodes[client]!r} did not describe itself: {reason}")

            return Errand(client, ask, answered, failed, 2 * self.job.layout.bytes + SMALL, 1 + self.recovery.retries)

        self._await_somebody(set(clients))
        for _ in self.errands.run([errand(place, client) for place, client in enumerate(clients)]):
            while found:
                yield found.popleft()

    def evaluate(self, weights: Tensor) -> Verdict:
        """Judge a model here, where the server has test samples; else at the nodes, whose verdicts add up."""
        test = self.job.federation.test
        if len(test.y):
            with one_thread():
                return total([judge(self._bench, weights, test, chunk) for chunk in range(chunks(test))])
        judges = [client for client, facts in enumerate(self.federation.facts) if facts.tests]
        verdicts = self._verdicts(judges, weights)
        if not verdicts:
            raise EngineError("no node judged the model; the run can be resumed when nodes are back")
        return total([verdicts[client] for client in sorted(verdicts)])

    def _verdicts(self, judges: Sequence[int], weights: Tensor) -> dict[int, Verdict]:
        """Client → its verdict. Who fails is asked again; if nobody answers, more patiently."""
        verdicts: dict[int, Verdict] = {}
        reasons: dict[int, str] = {}

        def errand(client: int) -> Errand:
            header = {"kind": "judge", "brief": self.brief}

            def answered(answer: Parcel, seconds: float) -> None:
                verdicts[client] = verdict_of(answer, self.federation.classes, self.federation.facts[client].judged)

            def failed(reason: str) -> None:
                reasons[client] = reason

            return Errand(client, lambda: packed(header, {"model": weights}), answered, failed)

        missing, asked = list(judges), 0
        while missing and asked <= (self.recovery.retries if verdicts else self.recovery.repeats):
            if not verdicts:
                self._await_somebody(set(missing))
            self._carry_out(errand(client) for client in missing)
            missing, asked = [client for client in judges if client not in verdicts], asked + 1
        for client in missing if verdicts else ():
            log.warning("node %r did not judge the model: %s", self.federation.nodes[client], reasons[client])
            tests = self.federation.facts[client].tests
            self.notes.append(News("no verdict", f"judged without its {tests} samples: {reasons[client]}", client))
        return verdicts

    def news(self) -> list[News]:
        """Who could not be asked, and when nobody could."""
        told = [*(News("interrupted", said) for said in self.errands.interruptions), *self.notes]
        self.notes.clear()
        self.errands.interruptions.clear()
        return told

    def close(self) -> None:
        """Say good-bye to the SuperLink; nodes stay."""
        self.post.close()

    def _setting_off(self, plan: RoundPlan, departure: Departure, number: int) -> Traveller:
        usual = {name: departure.server[name] for name in self.job.names("baggage") if name in departure.server}
        own = departure.baggage.get(number, {}) if number in departure.starts else {}
        model, zeros = departure.starts.get(number, departure.weights), torch.zeros_like(departure.weights)
        baggage = {name: own.get(name, usual.get(name, zeros)) for name in self.job.names("baggage")}
        return Traveller(number, plan.routes[number].clients, model, baggage)

    def _hop(self, plan: RoundPlan, departure: Departure, traveller: Traveller, *, alone: bool) -> Errand:
        """The next turn of a route; `alone`: those after it wait until all others have had theirs."""
        index = len(traveller.reports)
        hop = Hop(plan.round, traveller.number, index, traveller.clients[index], plan.attempt)
        number = self.turns.next()
        if (hop.route, hop.index) in plan.tapped:
            traveller.sightings[hop.index] = traveller.model

        def ask() -> Parcel:
            return packed(self._question(plan, hop, number, departure.usual), self._luggage(departure, traveller))

        def answered(answer: Parcel, seconds: float) -> Errand | None:
            found, own = self._opened(answer, hop, number)
            found = replace(found, report=replace(found.report, overhead=max(0.0, seconds - own)))
            return over(self._guarded(hop, traveller, found, departure.usual), (*errand.failures, "answered"))

        def failed(reason: str) -> Errand | None:
            nothing = HopReport(0, 0, 0.0, refused=reason)
            return over(Return(traveller.model, traveller.baggage, nothing), tuple(errand.failures))

        def over(found: Return, attempts: tuple[Attempt, ...]) -> Errand | None:
            if not found.report.refused:
                traveller.model, traveller.baggage = found.model, found.baggage
                self.turns.accept(hop.client, hop.route, number)
                if not alone:
                    self.turns.join()
            traveller.reports.append(replace(found.report, attempts=attempts))
            return None if alone or traveller.home else self._hop(plan, departure, traveller, alone=alone)

        rows = 1 + len(traveller.baggage)
        tries = 1 + (self.recovery.retries if self.recovery.policy == "retry" else 0)
        errand = Errand(hop.client, ask, answered, failed, rows * self.job.layout.bytes + SMALL, tries)
        return errand

    def _question(self, plan: RoundPlan, hop: Hop, number: int, usual: float) -> dict[str, Any]:
        tamper = turn_of(plan, hop).tamper
        return {
            "kind": "turn",
            "brief": self.brief,
            "run": self.turns.keepsakes.run,
            "hop": [hop.round, hop.route, hop.index, hop.client, hop.attempt],
            "usual": usual,
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

    def _opened(self, answer: Parcel, hop: Hop, number: int) -> tuple[Return, float]:
        """What an answer holds, with the node's own seconds."""
        if whole(answer.header, "turn") != number:
            raise BadParcel("another turn's answer")
        report, seconds = report_of(answer, self.federation.size(hop.client))
        if report.refused:
            return Return(torch.empty(0), {}, report), seconds
        names = {f"baggage {name}": name for name in self.job.names("baggage")}
        models = unpacked(answer, self.job.layout, ["model", *names])
        return Return(models["model"], {name: models[row] for row, name in names.items()}, report), seconds

    def _guarded(self, hop: Hop, traveller: Traveller, found: Return, usual: float) -> Return:
        """The guard at the server: a node may be mistaken about its own model, or lie."""
        guard, layout, report = self.job.guard, self.job.layout, found.report
        if not report.refused:
            [peak] = peaks(found.model[: layout.counters])
            report = replace(report, peak=peak, refused=fault_in(guard, peak, found.baggage.values()))
        if report.refused and guard.on_divergence == "stop":
            raise diverged(hop, report.refused)
        if not report.refused:
            report = self._measured(report, found.model, traveller.model, usual)
            report = replace(report, refused=self._worsened(found.model, traveller.model))
        if report.refused:
            report = HopReport(0, 0, 0.0, refused=report.refused, overhead=report.overhead)
        return replace(found, report=report)

    def _measured(self, report: HopReport, model: Tensor, recv: Tensor, usual: float) -> HopReport:
        """An honest node shortens its own update; that of one that does not is shortened here."""
        if self.job.guard.norm is None:
            return report
        end, longest = self.job.layout.trainable, self.job.guard.norm * usual
        allowed = torch.tensor([longest * (1 + ROUNDING)], dtype=model.dtype)
        length = float(shorten(model[:end], Visit(recv[:end], recv[:end], longest=allowed)))
        if length > float(allowed):
            return replace(report, length=length, shortened=True)
        return report if report.shortened else replace(report, length=length)

    def _worsened(self, model: Tensor, recv: Tensor) -> str:
        tolerance, federation = self.job.guard.tolerance, self.job.federation
        if tolerance is None:
            return ""
        assert isinstance(federation, PublicFederation)
        with one_thread():
            after, before = (mean_loss(self._bench, each, federation.public) for each in (model, recv))
        return "" if after - before <= tolerance else WORSE

    @cached_property
    def _bench(self) -> Workbench:
        return Workbench(copy.deepcopy(self.job.module), self.job.layout)

    def _carry_out(self, errands: Iterable[Errand]) -> None:
        for _ in self.errands.run(errands):
            pass

    def _await_somebody(self, clients: Set[int]) -> None:
        """Wait until one of these clients' nodes is there: rounds without anybody would pass as if trained."""
        wanted, began = {self.federation.nodes[client] for client in clients}, time.monotonic()
        while wanted and not wanted & self.errands.present():
            if time.monotonic() - began > self.wait:
                raise EngineError(
                    f"no node is there (waited {self.wait:g} s for {', '.join(sorted(wanted))}); "
                    "the run can be resumed when nodes are back"
                )
            time.sleep(min(1.0, 5 * self.errands.poll))

    def _count_barren(self, arrivals: Sequence[Arrival]) -> None:
        self.barren = 0 if any(each.usable for each in arrivals) or not arrivals else self.barren + 1
        if self.barren >= BARREN:
            reasons = Counter(hop.refused for each in arrivals for hop in each.hops)
            raise EngineError(
                f"nothing came home from {self.barren} attempts in a row; most said: {reasons.most_common(1)[0][0]}"
            )


def total(verdicts: Sequence[Verdict]) -> Verdict:
    """All verdicts as one."""
    return sum(verdicts[1:], verdicts[0])
