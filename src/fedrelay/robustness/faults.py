"""Faults: what goes wrong at clients, decided before a round begins, and what is done about it.

A fault is a line of the spec: what, how often, at which clients, in which rounds. Whether it strikes depends on (seed,
round, route, place, client, attempt) alone. So a plan that meets bad weather becomes another plan: clients that do not
answer are passed over, asked again, asked later or replaced; the seconds and the transfers that this costs, and the
models that are tampered with, stand in the new plan. Engines, ledger and clock need to know nothing of faults, and a
run that is resumed meets the same ones.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

from fedrelay.cost.clock import TimeModel
from fedrelay.cost.ledger import SERVER
from fedrelay.experiment.spec import FaultSettings, RecoverySettings
from fedrelay.local.arrival import Arrival
from fedrelay.rng import Keyed
from fedrelay.routes.plan import RoundPlan, Route, Tamper, Tampering

UNANSWERED = ("dropout", "gone", "hang", "lost")
"""The client does not answer: it is away (for now, or for good), hangs, or its message gets lost."""

SILENT = ("hang", "lost")
"""It was sent the model, and that it will not answer shows only after the timeout."""

GIVEN_UP = "the round was given up"
DIVERGED = "diverged"

REFUSED, PASSED_OVER = "refused: ", "passed over: "
"""How it begins what was done about a model that was not accepted, and about a client that sent none; the reason
follows."""

LATE = "given up: the merge came first"
"""Why work is left out that was under way when the others were merged, though nobody did anything wrong."""

TAMPERINGS: dict[str, Tampering] = {what: what for what in get_args(Tampering)}


@dataclass(frozen=True)
class FaultEvent:
    """Something that went wrong at a client's turn, or in a round as a whole, and what was done about it."""

    round: int
    route: int
    hop: int
    client: int
    what: str
    done: str
    node: str = ""
    """What the client is called, where it is somebody's node."""

    def line(self) -> dict[str, Any]:
        """As the run folder keeps it."""
        return {name: value for name, value in asdict(self).items() if name != "node" or value}


def event_label(event: Mapping[str, Any]) -> str:
    """What a line of the run folder is about, for counting: what went wrong, and at which node."""
    return f"{event['what']} ({event['node']})" if event.get("node") else str(event["what"])


def is_fault(event: Mapping[str, Any]) -> bool:
    """Whether a line of the run folder is about a mishap; that others were merged first is how a method goes."""
    return bool(event["done"] != LATE)


def server_event(round: int, what: str, done: str) -> FaultEvent:
    """Something that happened to a round as a whole; −1 stands for the server."""
    return FaultEvent(round, SERVER, SERVER, SERVER, what, done)


def too_few(round: int, *, given_up: bool) -> FaultEvent:
    """Fewer models came home than are needed."""
    return server_event(round, "too few arrivals", GIVEN_UP if given_up else "the round repeats")


def out_of_budget(round: int, client: int) -> FaultEvent:
    """A client has spent its privacy budget."""
    return FaultEvent(round, SERVER, SERVER, client, "budget spent", "passed over from now on")


def diverged(round: int, reason: str) -> FaultEvent:
    """The run ended because a model left the finite numbers."""
    return server_event(round, DIVERGED, reason)


@dataclass
class RouteProgress:
    """What becomes of one route."""

    clients: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    """The index that each hop has in the plan."""

    lost: list[float] = field(default_factory=list)
    """Seconds lost before each client's turn is over."""

    lost_at_last: float = 0.0
    """Seconds lost after all turns."""

    tampers: list[Tamper] = field(default_factory=list)
    fault_events: list[tuple[int, FaultEvent]] = field(default_factory=list)
    """What went wrong, each with the number of turns that were over by then."""

    wasted: list[tuple[int, str]] = field(default_factory=list)
    """Kinds of transfers without effect, likewise."""

    @property
    def delay(self) -> float:
        """All seconds that were lost."""
        return sum(self.lost) + self.lost_at_last

    def cut(self, turns: int, lost_at_last: float) -> RouteProgress:
        """The journey up to so many turns, and what went wrong while the next one was tried."""
        return RouteProgress(
            self.clients[:turns],
            self.places[:turns],
            self.lost[:turns],
            lost_at_last,
            [each for each in self.tampers if each.index < turns],
            [each for each in self.fault_events if each[0] <= turns],
            [each for each in self.wasted if each[0] <= turns],
        )


@dataclass(frozen=True)
class FaultModel:
    """All that may go wrong in a run."""

    faults: Sequence[FaultSettings]
    recovery: RecoverySettings
    seed: int

    @property
    def fair(self) -> bool:
        """Whether nothing can go wrong and nobody is in a hurry."""
        return not self.faults and self.recovery.deadline is None

    def meet(
        self, plan: RoundPlan, stopwatch: TimeModel, spare: Callable[[Collection[int]], Iterator[int]]
    ) -> tuple[RoundPlan, list[FaultEvent]]:
        """The plan as it can be carried out, and all that went wrong on the way.

        `spare` yields clients besides those it is given, one by one. A route that loses all its clients stays in the
        plan without any, so that all others keep their numbers. Where data are pooled there is nobody to fail.
        """
        if self.fair or plan.relay == "none":
            return plan, []
        storm = _FaultyRound(self, plan, stopwatch, spare)
        journeys = storm.hurry([storm.travel(number, route) for number, route in enumerate(plan.routes)])
        with_faults = replace(
            plan,
            routes=_along(plan, journeys),
            delays=tuple(journey.delay for journey in journeys),
            tampers=tuple(each for journey in journeys for each in journey.tampers),
            wasted=_counted(Counter(kind for journey in journeys for _, kind in journey.wasted)),
        )
        return with_faults, [fault_event for journey in journeys for _, fault_event in journey.fault_events]


class _FaultyRound:
    """The weather over one plan."""

    def __init__(
        self,
        weather: FaultModel,
        plan: RoundPlan,
        stopwatch: TimeModel,
        spare: Callable[[Collection[int]], Iterator[int]],
    ) -> None:
        self.recovery, self.plan, self.stopwatch = weather.recovery, plan, stopwatch
        self.faults = [(number, fault) for number, fault in enumerate(weather.faults) if _in_season(fault, plan.round)]
        self.draws, self.for_good = Keyed(weather.seed, "faults"), Keyed(weather.seed, "gone")
        self.spares = spare({client for route in plan.routes for client in route.clients})

    def travel(self, number: int, route: Route) -> RouteProgress:
        """Take a route from client to client, whatever happens."""
        journey, lost = RouteProgress(), 0.0
        waiting = deque((place, client, 0) for place, client in enumerate(route.clients))
        while waiting:
            place, client, tries = waiting.popleft()
            struck = [fault for each, fault in self.faults if self._strikes(each, fault, number, place, client, tries)]
            away = next((fault for fault in struck if fault.what in UNANSWERED), None)
            if away is None:
                lost += self._late(journey, number, place, client, struck)
                index = len(journey.clients)
                journey.clients.append(client)
                journey.places.append(place)
                journey.lost.append(lost)
                journey.tampers += [
                    Tamper(number, index, TAMPERINGS[fault.what], fault.strength)
                    for fault in struck
                    if fault.what in TAMPERINGS
                ][:1]
                lost = 0.0
                continue
            if away.what in SILENT:
                lost += self.recovery.timeout
                # Where everybody sends to everybody, all others sent theirs.
                self._in_vain(journey, len(self.plan.routes) - 1 if self.plan.relay == "peers" else 1)
            note = self._recover(waiting, place, client, tries)
            self._note(journey, number, place, client, away.what, note)
        journey.lost_at_last = lost
        return journey

    def hurry(self, journeys: list[RouteProgress]) -> list[RouteProgress]:
        """Send routes home that would miss the deadline.

        One that turns back because it knows how long its next client takes is home sooner; one that waits in vain, or
        that can not even make its first turn, takes all of the time.
        """
        deadline = self.recovery.deadline
        if deadline is None:
            return journeys
        homes = self.stopwatch.home_times(replace(self.plan, routes=_along(self.plan, journeys)))
        found = []
        for number, (journey, times) in enumerate(zip(journeys, homes, strict=True)):
            turns, planned = len(journey.clients), len(journey.clients)
            while turns and times[turns - 1] + sum(journey.lost[:turns]) > deadline:
                turns -= 1
            left = deadline - (times[turns - 1] + sum(journey.lost[:turns]) if turns else 0.0)
            if turns < planned:
                waited = left if journey.lost[turns] or not turns else 0.0
                late, place = journey.clients[turns], turns
                journey = journey.cut(turns, waited)
                self._note(journey, number, place, late, "deadline", f"came home after {turns} of {planned} clients")
            elif journey.lost_at_last > left:
                journey = journey.cut(turns, left)
                _, last = journey.fault_events[-1]
                self._note(journey, number, last.hop, last.client, "deadline", "waited no longer")
            found.append(journey)
        return found

    def _strikes(self, each: int, fault: FaultSettings, number: int, place: int, client: int, tries: int) -> bool:
        if fault.clients is not None and client not in fault.clients:
            return False
        if fault.what == "gone":
            return float(self.for_good.at(each, client).random()) < fault.rate
        key = (self.plan.round, self.plan.attempt, number, place, client, tries, each)
        return float(self.draws.at(*key).random()) < fault.rate

    def _recover(self, waiting: deque[tuple[int, int, int]], place: int, client: int, tries: int) -> str:
        """Do what the policy says about a client that does not answer."""
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
                stand_in = next(self.spares, None) if self.plan.relay != "peers" else None  # its model is with it
                if stand_in is None:
                    return "skipped, because nobody could stand in"
                waiting.appendleft((place, stand_in, tries + 1))
                return f"client {stand_in} stood in"
        return "skipped"

    def _late(
        self, journey: RouteProgress, number: int, place: int, client: int, struck: Sequence[FaultSettings]
    ) -> float:
        """Seconds by which an answer is late; a message that came twice only costs a transfer."""
        late = 0.0
        for fault in struck:
            if fault.what == "straggler":
                late += (fault.strength - 1) * self.stopwatch.visit_time(client)
                self._note(journey, number, place, client, fault.what, "waited for it")
            if fault.what == "duplicated":
                self._in_vain(journey, 1)
                self._note(journey, number, place, client, fault.what, "ignored the copy")
        return late

    def _in_vain(self, journey: RouteProgress, models: int) -> None:
        """Models were sent to a client for nothing."""
        from_server = self.plan.relay == "server" or (self.plan.relay == "direct" and not journey.clients)
        journey.wasted += [(len(journey.clients), "s2c" if from_server else "c2c")] * models

    def _note(self, journey: RouteProgress, number: int, place: int, client: int, what: str, done: str) -> None:
        fault_event = FaultEvent(self.plan.round, number, place, client, what, done)
        journey.fault_events.append((len(journey.clients), fault_event))


def events_from_arrivals(plan: RoundPlan, arrivals: Sequence[Arrival]) -> list[FaultEvent]:
    """What went wrong while the models travelled: what was refused or shortened, and what nobody noticed."""
    tampered = {(each.route, each.index): each.what for each in plan.tampers}
    found = []
    for arrival in arrivals:
        for index, (client, hop) in enumerate(zip(arrival.clients, arrival.hops, strict=True)):
            refused = hop.refused.partition(":")[0]  # what follows differs from case to case
            what = tampered.get((arrival.route, index), refused or ("long update" if hop.shortened else ""))
            if what:
                fate = "" if hop.refused == LATE else REFUSED if hop.visited else PASSED_OVER
                done = f"{fate}{hop.refused}" if hop.refused else "shortened" if hop.shortened else "handed on"
                found.append(FaultEvent(plan.round, arrival.route, index, client, what, done))
    return found


def with_resends(plan: RoundPlan, arrivals: Sequence[Arrival], stopwatch: TimeModel) -> RoundPlan:
    """The plan with what it costs to send a model once more, because the one made from it was refused.

    Whoever had it last sends it to whoever comes next; where the server passes models on, it has them all.
    """
    again, delays = Counter(dict(plan.wasted)), _delays(plan)
    for arrival in arrivals if plan.relay == "direct" else ():
        holder = SERVER
        stops = zip(arrival.clients, arrival.hops, (*arrival.clients[1:], SERVER), strict=True)
        for client, hop, receiver in stops:
            if not hop.refused:
                holder = client
            elif holder != receiver:
                again["s2c" if holder == SERVER else "c2s" if receiver == SERVER else "c2c"] += 1
                delays[arrival.route] += stopwatch.transfer_time(holder, receiver)
    return replace(plan, wasted=_counted(again), delays=tuple(delays) if any(delays) else ())


def plan_as_executed(plan: RoundPlan, arrivals: Sequence[Arrival], timeout: float) -> RoundPlan:
    """The plan with those clients alone that had their turn, and with what it cost to try the others.

    A client that was not reached costs nothing. One that did not answer was sent a model in vain, and waited for; one
    that could not answer was sent it in vain. Of several answers all but one are in vain.
    """
    if plan.race is None and not any(hop.attempts for arrival in arrivals for hop in arrival.hops):
        return plan
    visited: dict[int, tuple[int, ...]] = {}
    wasted, delays = Counter(dict(plan.wasted)), _delays(plan)
    for arrival in arrivals:
        stops = zip(arrival.clients, arrival.hops, strict=True)
        visited[arrival.route] = tuple(client for client, hop in stops if hop.visited)
        for hop in arrival.hops:
            outcomes = Counter(hop.attempts)
            twice = max(0, outcomes["answered"] - 1)
            wasted.update({"s2c": outcomes["silent"] + outcomes["failed"] + twice, "c2s": twice})
            delays[arrival.route] += timeout * outcomes["silent"]
    return replace(
        plan,
        routes=tuple(
            replace(route, clients=visited.get(number, ()), order=()) for number, route in enumerate(plan.routes)
        ),
        wasted=_counted(+wasted),
        delays=tuple(delays) if any(delays) else (),
    )


def unanswered(arrivals: Sequence[Arrival]) -> list[int]:
    """Clients that were sent a model and may have trained it, though nothing came back in time."""
    stops = (stop for arrival in arrivals for stop in zip(arrival.clients, arrival.hops, strict=True))
    return [client for client, hop in stops if not hop.visited and set(hop.attempts) != {"away"}]


def _delays(plan: RoundPlan) -> list[float]:
    """Seconds that each route of a plan loses."""
    return [*plan.delays, *[0.0] * (len(plan.routes) - len(plan.delays))]


def _along(plan: RoundPlan, journeys: Sequence[RouteProgress]) -> tuple[Route, ...]:
    """The routes of a plan as they went."""
    return tuple(
        replace(route.only(journey.places), clients=tuple(journey.clients))  # others may have stood in
        for route, journey in zip(plan.routes, journeys, strict=True)
    )


def _counted(transfers: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(transfers.items()))


def _in_season(fault: FaultSettings, round: int) -> bool:
    if fault.what == "gone":
        return round >= fault.first
    return fault.first <= round <= (fault.last or round)
