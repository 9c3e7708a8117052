"""The race of FedAsyncSeq by real times of arrival: whose model is home is sent on at once, whatever the others do.

Work under way goes on over the end of a round, and ends with a merge or the run: it is given up, or waited for. What a
client keeps counts when the model that it trained comes home. Models that are seen to be home at the same look are home
at the same time, so where all groups take equally long, all models go in step.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from fedrelay.engines.base import RoundInputs
from fedrelay.engines.flower.server.dispatcher import Dispatcher, Request
from fedrelay.engines.flower.server.hop_requests import ActiveRoute, HopRequests
from fedrelay.local.arrival import Arrival, Attempt, HopReport
from fedrelay.robustness.fault_events import LATE
from fedrelay.routes.async_state import AsyncState, Leg
from fedrelay.routes.overlay import AS_PLANNED
from fedrelay.routes.plan import AsyncRound, RoundPlan

Home = list[tuple[Leg, ActiveRoute]]


class AsyncRoundRunner:
    """Where all models of the race are; it lasts from merge to merge."""

    def __init__(self, hops: HopRequests, dispatcher: Dispatcher) -> None:
        self.hops, self.dispatcher, self.versions = hops, dispatcher, hops.versions
        self.standing: AsyncState | None = None
        self.under_way: dict[Leg, ActiveRoute] = {}
        self.latest: dict[int, tuple[Tensor, dict[str, Tensor]]] = {}
        """Slot → the last model that came home, and its baggage."""
        self.begun: Counter[tuple[int, int]] = Counter()
        """(slot, round) → hops of legs that set off, so that no two have the same key."""

    def run(self, plan: RoundPlan, departure: RoundInputs) -> list[Arrival]:
        """Until the fastest model is done with one group more, or everybody has failed."""
        race = plan.asynchronous
        assert race is not None
        standing, home = self._stand(race, departure, len(plan.routes))
        goal, failures = standing.fastest + 1, 0
        if not standing.under_way:
            standing = self._set_off(plan, departure, plan.round, standing)
        while standing.fastest < goal and failures <= len(plan.routes):
            came = self._await_home()
            failed = [leg for leg, route in came if not _counts(route)]
            standing = standing.ended([leg for leg, route in came if _counts(route)], failed)
            home, failures = home + came, failures + len(failed)
            if standing.fastest < goal:
                standing = self._set_off(plan, departure, plan.round, standing)
        self.standing, over = standing, standing.fastest == goal
        if over and not race.overlaps:
            while plan.merges and race.waits and self.under_way:
                home += self._await_home()
            arrivals = self._arrivals(home + self._give_up(), departure)
            self.standing, self.latest = None, {}
            return arrivals
        if over:
            self.standing = self._set_off(plan, departure, plan.round + 1, standing)
            self.dispatcher.look()
        return self._arrivals(home, departure)

    def _stand(self, race: AsyncRound, departure: RoundInputs, slots: int) -> tuple[AsyncState, Home]:
        """As the round before left it; at first, after a merge or a resume, nobody is under way.

        Gives also what is given up now, because the models were merged in a round that nobody finished.
        """
        if self.standing is not None and self.standing.since == race.since:
            return self.standing, []
        dropped, self.latest = self._give_up(), {}
        return AsyncState.after(race.since, [departure.legs.get(slot, ()) for slot in range(slots)]), dropped

    def _set_off(self, plan: RoundPlan, departure: RoundInputs, round: int, standing: AsyncState) -> AsyncState:
        """Send models that are free to groups that are idle; `round` is the one that this belongs to."""
        assert departure.next_legs is not None
        legs = departure.next_legs(standing)
        for leg in legs:
            route = self.hops.setting_off(plan, AS_PLANNED, departure, leg.slot)
            model, payload = self.latest.get(leg.slot, (route.model, route.payload))
            first = self.begun[leg.slot, round]
            self.begun[leg.slot, round] += len(leg.clients)
            route = replace(
                route, clients=leg.clients, model=model, payload=payload, round=round, attempt=0, first=first
            )
            self.under_way[leg] = route
            if leg.clients:
                self.dispatcher.waiting.append(self.hops.request(AS_PLANNED, route, self.versions.hold))
        return standing.started(legs)

    def _await_home(self) -> Home:
        """All models that are home, as soon as one is."""
        while not (home := [(leg, each) for leg, each in self.under_way.items() if each.home]):
            if not self.dispatcher.look():
                time.sleep(self.dispatcher.poll)
        for leg, route in home:
            del self.under_way[leg]
            self.versions.home(leg.clients)
            if route.arrival().usable:
                self.latest[leg.slot] = route.model, route.payload
        return home

    def _give_up(self) -> Home:
        """End all work under way: what was done of it is left out, and what comes of it later is not looked at."""
        dropped: Home = []
        for leg, route in self.under_way.items():
            route.given_up = True
            self.versions.home(leg.clients, counts=False)
            reports = [HopReport(0, 0, 0.0, refused=LATE, attempts=each.attempts) for each in route.reports]
            attempts = self._withdrawn(route.request) if route.request is not None else ()
            if attempts:
                reports.append(HopReport(0, 0, 0.0, refused=LATE, attempts=attempts))
            if reports:
                clients = leg.clients[: len(reports)]
                dropped.append((leg, replace(route, clients=clients, reports=reports)))
        self.under_way = {}
        return dropped

    def _withdrawn(self, request: Request) -> tuple[Attempt, ...]:
        """Do not ask again; what was sent until now was sent all the same."""
        if request in self.dispatcher.waiting:
            self.dispatcher.waiting.remove(request)
            return tuple(request.failures)
        request.tries = 0
        return (*request.failures, "failed")

    def _arrivals(self, home: Home, departure: RoundInputs) -> list[Arrival]:
        """One for each slot from which something came, with its latest finished model."""
        slots = sorted({leg.slot for leg, route in home if route.clients})
        return [self._arrival(slot, [pair for pair in home if pair[0].slot == slot], departure) for slot in slots]

    def _arrival(self, slot: int, home: Sequence[tuple[Leg, ActiveRoute]], departure: RoundInputs) -> Arrival:
        model, payload = self.latest.get(slot, (departure.starts.get(slot, departure.weights), {}))
        return Arrival(
            slot,
            tuple(client for _, each in home for client in each.clients),
            model,
            tuple(report for _, each in home for report in each.reports),
            payload,
            legs=tuple(leg.group for leg, each in home if _counts(each)),
        )


def _counts(route: ActiveRoute) -> bool:
    """Whether a model that is home is done with its group: not if everybody there failed."""
    return route.arrival().usable or not route.clients
