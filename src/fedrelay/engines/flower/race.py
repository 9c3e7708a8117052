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
from fedrelay.engines.flower.hops import Hops, Traveller
from fedrelay.engines.flower.inquiries import Inquiries, Inquiry
from fedrelay.local.arrival import Arrival, Attempt, HopReport
from fedrelay.robustness.faults import LATE
from fedrelay.routes.plan import AsyncRound, AsyncState, Leg, RoundPlan

Home = list[tuple[Leg, Traveller]]


class Course:
    """Where all models of the race are; it lasts from merge to merge."""

    def __init__(self, hops: Hops, inquiries: Inquiries) -> None:
        self.hops, self.inquiries, self.turns = hops, inquiries, hops.turns
        self.standing: AsyncState | None = None
        self.under_way: dict[Leg, Traveller] = {}
        self.latest: dict[int, tuple[Tensor, dict[str, Tensor]]] = {}
        """Slot → the last model that came home, and its baggage."""
        self.begun: Counter[tuple[int, int]] = Counter()
        """(slot, round) → hops of legs that set off, so that no two have the same key."""

    def run(self, plan: RoundPlan, departure: RoundInputs) -> list[Arrival]:
        """Until the fastest model is done with one group more, or everybody has failed."""
        race = plan.race
        assert race is not None
        standing, home = self._stand(race, departure, len(plan.routes))
        goal, failures = standing.fastest + 1, 0
        if not standing.under_way:
            standing = self._set_off(plan, departure, plan.round, standing)
        while standing.fastest < goal and failures <= len(plan.routes):
            came = self._await_home()
            failed = [leg for leg, traveller in came if not _counts(traveller)]
            standing = standing.home([leg for leg, traveller in came if _counts(traveller)], failed)
            home, failures = home + came, failures + len(failed)
            if standing.fastest < goal:
                standing = self._set_off(plan, departure, plan.round, standing)
        self.standing, over = standing, standing.fastest == goal
        if over and not race.goes_on:
            while plan.merges and race.wait and self.under_way:
                home += self._await_home()
            arrivals = self._arrivals(home + self._give_up(), departure)
            self.standing, self.latest = None, {}
            return arrivals
        if over:
            self.standing = self._set_off(plan, departure, plan.round + 1, standing)
            self.inquiries.look()
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
        assert plan.race is not None
        legs = plan.race.next_legs(standing)
        for leg in legs:
            traveller = self.hops.setting_off(plan, departure, leg.slot)
            model, payload = self.latest.get(leg.slot, (traveller.model, traveller.payload))
            first = self.begun[leg.slot, round]
            self.begun[leg.slot, round] += len(leg.clients)
            traveller = replace(
                traveller, clients=leg.clients, model=model, payload=payload, round=round, attempt=0, first=first
            )
            self.under_way[leg] = traveller
            if leg.clients:
                self.inquiries.waiting.append(self.hops.inquiry(plan, traveller, self.turns.hold))
        return standing.set_off(legs)

    def _await_home(self) -> Home:
        """All models that are home, as soon as one is."""
        while not (home := [(leg, each) for leg, each in self.under_way.items() if each.home]):
            if not self.inquiries.look():
                time.sleep(self.inquiries.poll)
        for leg, traveller in home:
            del self.under_way[leg]
            self.turns.home(leg.clients)
            if traveller.arrival().usable:
                self.latest[leg.slot] = traveller.model, traveller.payload
        return home

    def _give_up(self) -> Home:
        """End all work under way: what was done of it is left out, and what comes of it later is not looked at."""
        dropped: Home = []
        for leg, traveller in self.under_way.items():
            traveller.given_up = True
            self.turns.home(leg.clients, counts=False)
            reports = [HopReport(0, 0, 0.0, refused=LATE, attempts=each.attempts) for each in traveller.reports]
            attempts = self._withdrawn(traveller.inquiry) if traveller.inquiry is not None else ()
            if attempts:
                reports.append(HopReport(0, 0, 0.0, refused=LATE, attempts=attempts))
            if reports:
                clients = leg.clients[: len(reports)]
                dropped.append((leg, replace(traveller, clients=clients, reports=reports)))
        self.under_way = {}
        return dropped

    def _withdrawn(self, inquiry: Inquiry) -> tuple[Attempt, ...]:
        """Do not ask again; what was sent until now was sent all the same."""
        if inquiry in self.inquiries.waiting:
            self.inquiries.waiting.remove(inquiry)
            return tuple(inquiry.failures)
        inquiry.tries = 0
        return (*inquiry.failures, "failed")

    def _arrivals(self, home: Home, departure: RoundInputs) -> list[Arrival]:
        """One for each slot from which something came, with its latest finished model."""
        slots = sorted({leg.slot for leg, traveller in home if traveller.clients})
        return [self._arrival(slot, [pair for pair in home if pair[0].slot == slot], departure) for slot in slots]

    def _arrival(self, slot: int, home: Sequence[tuple[Leg, Traveller]], departure: RoundInputs) -> Arrival:
        model, payload = self.latest.get(slot, (departure.starts.get(slot, departure.weights), {}))
        return Arrival(
            slot,
            tuple(client for _, each in home for client in each.clients),
            model,
            tuple(report for _, each in home for report in each.reports),
            payload,
            legs=tuple(leg.group for leg, each in home if _counts(each)),
        )


def _counts(traveller: Traveller) -> bool:
    """Whether a model that is home is done with its group: not if everybody there failed."""
    return traveller.arrival().usable or not traveller.clients
