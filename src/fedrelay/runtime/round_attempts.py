"""Attempts at a round: hops are run until enough models arrive, or the round is given up."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from fedrelay.engines.base import Engine, EngineEvent
from fedrelay.experiment.prepare import PreparedRun
from fedrelay.robustness.executed_round import executed_round
from fedrelay.robustness.fault_events import (
    UNSHARED_COUNTS,
    WITHDRAWN,
    FaultEvent,
    events_of_arrivals,
    server_event,
    too_few_arrivals,
)
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.execution_overlay import ExecutionOverlay
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.hop_tap import HopTap
from fedrelay.runtime.recorder import Recorder
from fedrelay.runtime.run_state import RunState
from fedrelay.runtime.server import Server

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoundAttempts:
    """Runs the hops of rounds, as often as recovery allows."""

    run: PreparedRun
    server: Server
    recorder: Recorder
    tap: HopTap | None = None

    def run_hops(self, engine: Engine, plan: RoundPlan, state: RunState) -> tuple[RoundPlan, list[Arrival], RunState]:
        """Run the hops of a round until enough models arrive.

        Returns:
            The plan after faults, the arrivals (none if the round is given up), and the state with what the hops were
            like.
        """
        experiment, planner = self.run.prepared.experiment, self.run.planner
        recovery, forgetting = experiment.recovery, experiment.eval.forgetting
        followed = (0,) if forgetting and plan.round % forgetting == 0 else ()
        needed = min(recovery.min_arrivals, 1 if plan.real_arrivals else len(plan.routes))
        if planner.hop_limit is not None:
            exhausted = planner.hop_limit.exhausted(plan.round)
            passed_over = [
                server_event(plan.round, "budget spent", "passed over from now on", each) for each in exhausted
            ]
            self.recorder.add_events(passed_over)
        leaving = (client for client, last in self.run.prepared.last_rounds.items() if last + 1 == plan.round)
        self.recorder.add_events(
            [server_event(plan.round, WITHDRAWN, "left out from now on", each) for each in leaving]
        )
        profiling = self.run.prepared.profiling if plan.round == 1 else None
        unshared = profiling.unshared if profiling is not None else ()
        self.recorder.add_events(
            [
                server_event(plan.round, UNSHARED_COUNTS, "groups treat it as the mean of those that share", each)
                for each in unshared
            ]
        )
        for attempt in range(recovery.repeats + 1):
            faulty = planner.faults.apply(plan, attempt)
            taps = self.tap.hops_to_tap(faulty.plan) if self.tap is not None else ()
            overlay = ExecutionOverlay(attempt, faulty.tampers, taps, followed, faulty.fault_costs)
            arrivals = self._run(engine, faulty.plan, overlay, state)
            self.recorder.add_events([*faulty.events, *events_of_arrivals(plan.round, overlay, arrivals)])
            self.recorder.add_events(events_of_engine(plan.round, engine.take_events()))
            if experiment.guard.needs_typical_hop:
                hops = (hop for arrival in arrivals for hop in arrival.hops)
                state = replace(state, typical_hop=state.typical_hop.updated(hops))
            if self.tap is not None:
                self.tap.on_received_models(faulty.plan, arrivals)
            usable = sum(arrival.usable for arrival in arrivals)
            if usable >= needed:
                break
            last = attempt == recovery.repeats
            self.recorder.add_events([too_few_arrivals(plan.round, given_up=last)])
            self._warn(plan, arrivals, usable, needed, "is given up" if last else "repeats")
        else:
            return faulty.plan, [], state
        if arrivals:
            engine.commit_client_state()
        if plan.routes and not usable:
            self.recorder.add_events([too_few_arrivals(plan.round, given_up=True)])
        for arrival in arrivals:
            if arrival.route in overlay.followed:
                self.recorder.add_followed_route(plan.round, arrival)
        return faulty.plan, arrivals, state

    def _run(self, engine: Engine, plan: RoundPlan, overlay: ExecutionOverlay, state: RunState) -> list[Arrival]:
        began = time.monotonic()
        arrivals = []
        if plan.longest or plan.real_arrivals:
            arrivals = engine.run_round(plan, overlay, self.server.round_inputs(plan, state))
        timeout, elapsed = self.run.prepared.experiment.recovery.timeout, time.monotonic() - began
        executed, fault_costs = executed_round(
            plan, overlay.fault_costs, arrivals, timeout=timeout, time_model=self.run.costs.time_model
        )
        self.recorder.add_attempt(executed, fault_costs, arrivals, elapsed)
        return arrivals

    def _warn(self, plan: RoundPlan, arrivals: Sequence[Arrival], usable: int, needed: int, consequence: str) -> None:
        """Log that too few models arrived, with the reasons of nodes; in simulation clients have no names."""
        nodes = dict(enumerate(self.recorder.nodes))
        hops = (pair for arrival in arrivals for pair in zip(arrival.clients, arrival.hops, strict=True))
        reasons = {nodes[client]: hop.refused for client, hop in hops if hop.refused and client in nodes}
        why = "; ".join(f"node {name!r}: {reason}" for name, reason in sorted(reasons.items()))
        message = "round %d: %d of %d models arrived, %d are needed; the round %s%s"
        found = (usable, len(plan.routes), needed, consequence, f" ({why})" if why else "")
        log.warning(message, plan.round, *found)


def events_of_engine(round: int, events: Sequence[EngineEvent]) -> list[FaultEvent]:
    """What an engine reports, as fault events of a round."""
    return [server_event(round, each.what, each.done, each.client) for each in events]
