"""Asynchronous rounds (FedAsyncSeq) by real arrival times: a model that has arrived is sent on at once.

Work in flight continues over the end of a round. A merge or the end of the run ends it: it is given up or waited for.
Client state counts when the model that trained on it arrives. Models seen in the same poll arrive at the same time, so
where all groups take equally long, all models advance in step.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

from torch import Tensor

from fedrelay.engines.base import RoundInputs
from fedrelay.engines.flower.server.dispatcher import Dispatcher
from fedrelay.engines.flower.server.hop_request_builder import ActiveRoute, HopRequestBuilder
from fedrelay.robustness.fault_events import LATE
from fedrelay.routes.arrival import Arrival, HopReport
from fedrelay.routes.async_progress import AsyncProgress, GroupLeg
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import AsyncRoundInfo, RoundPlan

Arrived = list[tuple[GroupLeg, ActiveRoute]]


class AsyncRoundRunner:
    """Runs asynchronous rounds. It keeps the models in flight from one merge to the next."""

    def __init__(self, hops: HopRequestBuilder, dispatcher: Dispatcher) -> None:
        self.hops, self.dispatcher, self.versions = hops, dispatcher, hops.versions
        self.progress: AsyncProgress | None = None
        self.in_flight: dict[GroupLeg, ActiveRoute] = {}
        self.latest: dict[int, tuple[Tensor, dict[str, Tensor]]] = {}
        """Slot → the last model that arrived, and its payload."""
        self.hops_started: Counter[tuple[int, int]] = Counter()
        """(slot, round) → hops of routes that have started, so that no two hops have the same key."""

    def run(self, plan: RoundPlan, inputs: RoundInputs) -> list[Arrival]:
        """Run until the fastest model has finished one more group, or until every slot has failed."""
        settings = plan.asynchronous
        assert settings is not None
        progress, arrived = self._progress(settings, inputs, len(plan.routes))
        goal, failures = progress.fastest + 1, 0
        if not progress.under_way:
            progress = self._start(plan, inputs, plan.round, progress)
        while progress.fastest < goal and failures <= len(plan.routes):
            new = self._await_arrivals()
            failed = [leg for leg, route in new if not _succeeded(route)]
            progress = progress.ended([leg for leg, route in new if _succeeded(route)], failed)
            arrived, failures = arrived + new, failures + len(failed)
            if progress.fastest < goal:
                progress = self._start(plan, inputs, plan.round, progress)
        self.progress, over = progress, progress.fastest == goal
        if over and not settings.overlaps:
            while plan.merges and settings.waits and self.in_flight:
                arrived += self._await_arrivals()
            arrivals = self._arrivals(arrived + self._give_up(), inputs)
            self.progress, self.latest = None, {}
            return arrivals
        if over:
            self.progress = self._start(plan, inputs, plan.round + 1, progress)
            self.dispatcher.poll_once()
        return self._arrivals(arrived, inputs)

    def _progress(self, settings: AsyncRoundInfo, inputs: RoundInputs, slots: int) -> tuple[AsyncProgress, Arrived]:
        """The progress that the last round left; a fresh one at the start, after a merge or after a resume.

        Also returns routes that are given up now, because their models were merged in a round that did not finish.
        """
        if self.progress is not None and self.progress.since == settings.since:
            return self.progress, []
        dropped, self.latest = self._give_up(), {}
        return AsyncProgress.after(settings.since, [inputs.legs.get(slot, ()) for slot in range(slots)]), dropped

    def _start(self, plan: RoundPlan, inputs: RoundInputs, round: int, progress: AsyncProgress) -> AsyncProgress:
        """Send free models to idle groups; their hops belong to `round`."""
        assert inputs.legs_for_free_models is not None
        legs = inputs.legs_for_free_models(progress)
        for leg in legs:
            route = self.hops.start_route(plan, AS_PLANNED, inputs, leg.slot)
            model, payload = self.latest.get(leg.slot, (route.model, route.payload))
            first = self.hops_started[leg.slot, round]
            self.hops_started[leg.slot, round] += len(leg.clients)
            route = replace(route, clients=leg.clients, model=model, payload=payload, round=round, first=first)
            self.in_flight[leg] = route
            if leg.clients:
                self.dispatcher.waiting.append(self.hops.next_request(route, self.versions.accept_on_arrival))
        return progress.started(legs)

    def _await_arrivals(self) -> Arrived:
        """All models that have arrived, as soon as there is one."""
        while not (arrived := [(leg, route) for leg, route in self.in_flight.items() if route.done]):
            if not self.dispatcher.poll_once():
                time.sleep(self.dispatcher.poll)
        for leg, route in arrived:
            del self.in_flight[leg]
            self.versions.route_ended(leg.clients)
            if route.arrival().usable:
                self.latest[leg.slot] = route.model, route.payload
        return arrived

    def _give_up(self) -> Arrived:
        """End all work in flight. Its results are not used, and replies that arrive later are ignored."""
        dropped: Arrived = []
        for leg, route in self.in_flight.items():
            route.given_up = True
            self.versions.route_ended(leg.clients, arrived=False)
            attempts = [report.attempts for report in route.reports]
            if route.request is not None and (ended := self.dispatcher.cancel(route.request)):
                attempts.append(ended)
            if attempts:
                reports = [HopReport(0, 0, 0.0, refused=LATE, attempts=each) for each in attempts]
                dropped.append((leg, replace(route, clients=leg.clients[: len(reports)], reports=reports)))
        self.in_flight = {}
        return dropped

    def _arrivals(self, arrived: Arrived, inputs: RoundInputs) -> list[Arrival]:
        """One arrival for each slot, with the latest model that arrived there."""
        found = []
        for slot in sorted({leg.slot for leg, route in arrived if route.clients}):
            here = [(leg, route) for leg, route in arrived if leg.slot == slot]
            model, payload = self.latest.get(slot, (inputs.starts.get(slot, inputs.weights), {}))
            clients = tuple(client for _, route in here for client in route.clients)
            reports = tuple(report for _, route in here for report in route.reports)
            groups = tuple(leg.group for leg, route in here if _succeeded(route))
            found.append(Arrival(slot, clients, model, reports, payload, visited_groups=groups))
        return found


def _succeeded(route: ActiveRoute) -> bool:
    """Whether a model that arrived has finished its group: not if every client there failed."""
    return route.arrival().usable or not route.clients
