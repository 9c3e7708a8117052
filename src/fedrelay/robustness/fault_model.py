"""Simulated faults: what goes wrong at clients, decided before a round begins, and what is done about it.

A fault is an entry of the spec: what, how often, at which clients, in which rounds. Whether it occurs depends on (seed,
round, attempt, route, place, client, tries) alone, so a resumed run meets the same faults. The fault model turns a plan
into the plan that can be executed: clients that do not answer are skipped, asked again, asked later or replaced. What
that costs, and which models are tampered with, goes into the execution overlay. Engines know nothing of faults.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from fedrelay.cost.time_model import TimeModel
from fedrelay.experiment.spec import FaultSettings, RecoverySettings
from fedrelay.rng import KeyedRandom, generator
from fedrelay.robustness.fault_events import FaultEvent
from fedrelay.routes.execution_overlay import NO_FAULT_COSTS, FaultCosts, TamperedHop, Tampering
from fedrelay.routes.plan import RoundPlan, Route

UNANSWERED = ("dropout", "gone", "hang", "lost")
"""The client does not answer: it is away (for now, or for good), hangs, or its message gets lost."""

SILENT = ("hang", "lost")
"""The client was sent the model. That it will not answer shows only after the timeout."""

TAMPERINGS: dict[str, Tampering] = {what: what for what in get_args(Tampering)}


@dataclass(frozen=True)
class RoundAfterFaults:
    """A round as it can be executed in spite of its faults."""

    plan: RoundPlan
    """A route that loses all its clients stays in the plan without any, so that the others keep their numbers."""

    tampers: tuple[TamperedHop, ...] = ()
    fault_costs: FaultCosts = NO_FAULT_COSTS
    events: tuple[FaultEvent, ...] = ()


@dataclass
class RouteAfterFaults:
    """What becomes of one route."""

    clients: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """The index that each hop has in the plan."""

    lost: list[float] = field(default_factory=list)
    """Seconds lost before the end of each hop."""

    lost_at_end: float = 0.0
    """Seconds lost after the last hop."""

    tampers: list[TamperedHop] = field(default_factory=list)
    events: list[tuple[int, FaultEvent]] = field(default_factory=list)
    """What went wrong, each with the number of hops that were over by then."""

    wasted: list[tuple[int, str]] = field(default_factory=list)
    """Kinds of transfers without effect, likewise."""

    @property
    def delay(self) -> float:
        return sum(self.lost) + self.lost_at_end

    def cut(self, hops: int, lost_at_end: float) -> RouteAfterFaults:
        """The route up to this number of hops, and what went wrong while the next one was tried."""
        return RouteAfterFaults(
            self.clients[:hops],
            self.places[:hops],
            self.lost[:hops],
            lost_at_end,
            [each for each in self.tampers if each.index < hops],
            [each for each in self.events if each[0] <= hops],
            [each for each in self.wasted if each[0] <= hops],
        )


@dataclass(frozen=True)
class FaultModel:
    """All faults that may occur in a run."""

    faults: Sequence[FaultSettings]
    recovery: RecoverySettings
    seed: int
    holders: Sequence[int]
    """All clients with samples, from which spare clients are drawn."""

    time_model: Callable[[RoundPlan], TimeModel]

    @property
    def possible(self) -> bool:
        """Whether anything can go wrong or be late."""
        return bool(self.faults) or self.recovery.deadline is not None

    def apply(self, plan: RoundPlan, attempt: int = 0) -> RoundAfterFaults:
        """The plan as it can be executed; `attempt` counts repetitions of the round.

        Where data are pooled there is no client to fail.
        """
        if not self.possible or plan.handover == "none":
            return RoundAfterFaults(plan)
        faults = _RoundFaults(self, plan, attempt)
        routes = faults.meet_deadline([faults.follow(number, route) for number, route in enumerate(plan.routes)])
        wasted = Counter(kind for route in routes for _, kind in route.wasted)
        return RoundAfterFaults(
            replace(plan, routes=_executable(plan, routes)),
            tuple(each for route in routes for each in route.tampers),
            FaultCosts(tuple(route.delay for route in routes), tuple(sorted(wasted.items()))),
            tuple(event for route in routes for _, event in route.events),
        )


class _RoundFaults:
    """The faults of one attempt at one round."""

    def __init__(self, model: FaultModel, plan: RoundPlan, attempt: int) -> None:
        self.recovery, self.plan, self.attempt = model.recovery, plan, attempt
        self.time_model = model.time_model(plan)
        self.faults = [(number, fault) for number, fault in enumerate(model.faults) if _active(fault, plan.round)]
        self.draws, self.for_good = KeyedRandom(model.seed, "faults"), KeyedRandom(model.seed, "gone")
        self.spares = self._spare_clients(model)

    def _spare_clients(self, model: FaultModel) -> Iterator[int]:
        """Clients with samples that are not in the plan, in random order."""
        present = {client for route in self.plan.routes for client in route.clients}
        rng = generator(model.seed, "backup", self.plan.round, self.attempt)
        yield from rng.permutation([client for client in model.holders if client not in present]).tolist()

    def follow(self, number: int, route: Route) -> RouteAfterFaults:
        """Take a route from client to client, whatever happens."""
        progress, lost = RouteAfterFaults(), 0.0
        waiting = deque((place, client, 0) for place, client in enumerate(route.clients))
        while waiting:
            place, client, tries = waiting.popleft()
            occurring = [
                fault for each, fault in self.faults if self._occurs(each, fault, number, place, client, tries)
            ]
            absence = next((fault for fault in occurring if fault.what in UNANSWERED), None)
            if absence is None:
                lost += self._lateness(progress, number, place, client, occurring)
                tampers = [fault for fault in occurring if fault.what in TAMPERINGS][:1]
                progress.tampers += [
                    TamperedHop(number, len(progress.clients), TAMPERINGS[each.what], each.strength) for each in tampers
                ]
                progress.clients.append(client)
                progress.places.append(place)
                progress.lost.append(lost)
                lost = 0.0
                continue
            if absence.what in SILENT:
                lost += self.recovery.timeout
                # Where every client sends to every other, all others sent theirs.
                self._waste(progress, len(self.plan.routes) - 1 if self.plan.handover == "peers" else 1)
            done = self._recover(waiting, place, client, tries)
            self._note(progress, number, place, client, absence.what, done)
        progress.lost_at_end = lost
        return progress

    def meet_deadline(self, routes: list[RouteAfterFaults]) -> list[RouteAfterFaults]:
        """Cut routes short that would miss the deadline.

        A route that turns back because it knows how long its next client takes returns early. One that waits for an
        answer that never comes, or whose first hop is too long already, takes all of the time.
        """
        deadline = self.recovery.deadline
        if deadline is None:
            return routes
        returns = self.time_model.return_times(replace(self.plan, routes=_executable(self.plan, routes)))
        found = []
        for number, (progress, times) in enumerate(zip(routes, returns, strict=True)):
            hops, planned = len(progress.clients), len(progress.clients)
            while hops and times[hops - 1] + sum(progress.lost[:hops]) > deadline:
                hops -= 1
            left = deadline - (times[hops - 1] + sum(progress.lost[:hops]) if hops else 0.0)
            if hops < planned:
                waited = left if progress.lost[hops] or not hops else 0.0
                late = progress.clients[hops]
                progress = progress.cut(hops, waited)
                self._note(progress, number, hops, late, "deadline", f"returned after {hops} of {planned} clients")
            elif progress.lost_at_end > left:
                progress = progress.cut(hops, left)
                _, last = progress.events[-1]
                self._note(progress, number, last.hop, last.client, "deadline", "waited no longer")
            found.append(progress)
        return found

    def _occurs(self, each: int, fault: FaultSettings, number: int, place: int, client: int, tries: int) -> bool:
        if fault.clients is not None and client not in fault.clients:
            return False
        if fault.what == "gone":
            return float(self.for_good.at(each, client).random()) < fault.rate
        key = (self.plan.round, self.attempt, number, place, client, tries, each)
        return float(self.draws.at(*key).random()) < fault.rate

    def _recover(self, waiting: deque[tuple[int, int, int]], place: int, client: int, tries: int) -> str:
        """Apply the recovery policy to a client that does not answer, and say what was done."""
        if tries >= self.recovery.retries:
            return "skipped"
        match self.recovery.policy:
            case "retry":
                waiting.appendleft((place, client, tries + 1))
                return "asked again"
            case "later":
                waiting.append((place, client, tries + 1))
                return "asked again at the end of the route"
            case "backup":
                spare = next(self.spares, None) if self.plan.handover != "peers" else None  # its model is with it
                if spare is None:
                    return "skipped, because there is no spare client"
                waiting.appendleft((place, spare, tries + 1))
                return f"replaced by client {spare}"
        return "skipped"

    def _lateness(
        self, progress: RouteAfterFaults, number: int, place: int, client: int, occurring: Sequence[FaultSettings]
    ) -> float:
        """Seconds by which an answer is late; a duplicated message only costs a transfer."""
        late = 0.0
        for fault in occurring:
            if fault.what == "straggler":
                late += (fault.strength - 1) * self.time_model.hop_time(client)
                self._note(progress, number, place, client, fault.what, "waited for it")
            if fault.what == "duplicated":
                self._waste(progress, 1)
                self._note(progress, number, place, client, fault.what, "ignored the copy")
        return late

    def _waste(self, progress: RouteAfterFaults, models: int) -> None:
        """Models were sent to a client without effect."""
        from_server = self.plan.handover in ("server", "sealed") or (
            self.plan.handover == "direct" and not progress.clients
        )
        progress.wasted += [(len(progress.clients), "s2c" if from_server else "c2c")] * models

    def _note(self, progress: RouteAfterFaults, number: int, place: int, client: int, what: str, done: str) -> None:
        event = FaultEvent(self.plan.round, number, place, client, what, done)
        progress.events.append((len(progress.clients), event))


def _executable(plan: RoundPlan, routes: Sequence[RouteAfterFaults]) -> tuple[Route, ...]:
    """The routes of a plan with the clients that answer."""
    return tuple(
        replace(route.only(progress.places), clients=tuple(progress.clients))  # spare clients may be among them
        for route, progress in zip(plan.routes, routes, strict=True)
    )


def _active(fault: FaultSettings, round: int) -> bool:
    if fault.what == "gone":
        return round >= fault.first
    return fault.first <= round <= (fault.last or round)
