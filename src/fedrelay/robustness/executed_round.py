"""What really travelled in a round, from its arrivals: the clients that were reached, and what the others cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fedrelay.cost.ledger import SERVER
from fedrelay.cost.time_model import TimeModel
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.execution_overlay import FaultCosts
from fedrelay.routes.plan import RoundPlan


def executed_round(
    plan: RoundPlan,
    fault_costs: FaultCosts,
    arrivals: Sequence[Arrival],
    *,
    timeout: float,
    time_model: Callable[[RoundPlan], TimeModel],
) -> tuple[RoundPlan, FaultCosts]:
    """What really travelled in one attempt at a round: the plan with the clients that were reached, and lost costs.

    Where hops are messages, a client that was not reached costs nothing. One that did not answer was sent a model
    without effect, and the server waited for it. One that could not answer was sent a model without effect. All but one
    of several answers are without effect.

    A refused model is sent again: the client that had it last sends it to the next one. Where the server passes models
    on, it has them all.

    Args:
        plan: The round, after simulated faults.
        fault_costs: What the simulated faults cost.
        arrivals: What came back.
        timeout: How long the server waits for an answer, in seconds.
        time_model: Gives the time model of a plan.
    """
    executed = plan
    if plan.real_arrivals or any(hop.attempts for arrival in arrivals for hop in arrival.hops):
        answered = {
            arrival.route: tuple(each for each, hop in zip(arrival.clients, arrival.hops, strict=True) if hop.answered)
            for arrival in arrivals
        }
        routes = (replace(each, clients=answered.get(i, ()), order=()) for i, each in enumerate(plan.routes))
        executed = replace(plan, routes=tuple(routes))
    wasted = Counter(dict(fault_costs.wasted))
    delays = [*fault_costs.delays, *[0.0] * (len(plan.routes) - len(fault_costs.delays))]
    for arrival in arrivals:
        for hop in arrival.hops:
            if not hop.attempts:  # no message was sent: the hop is simulated
                continue
            outcomes = Counter(hop.attempts)
            duplicates = max(0, outcomes["answered"] - 1)
            wasted.update({"s2c": outcomes["silent"] + outcomes["failed"] + duplicates, "c2s": duplicates})
            delays[arrival.route] += timeout * outcomes["silent"]
        refused = any(hop.refused for hop in arrival.hops)
        for source, target in _resends(arrival) if refused and plan.handover == "direct" else ():
            wasted["s2c" if source == SERVER else "c2s" if target == SERVER else "c2c"] += 1
            delays[arrival.route] += time_model(executed).transfer_time(source, target)
    # The clock of real arrivals is the real one, which has counted all delays.
    lost = tuple(delays) if any(delays) and not plan.real_arrivals else ()
    return executed, FaultCosts(lost, tuple(sorted((+wasted).items())))


def unanswered(arrivals: Sequence[Arrival]) -> list[int]:
    """Clients that were sent a model and may have trained it, though nothing came back in time."""
    hops = (pair for arrival in arrivals for pair in zip(arrival.clients, arrival.hops, strict=True))
    return [client for client, hop in hops if not hop.answered and set(hop.attempts) != {"away"}]


def _resends(arrival: Arrival) -> Iterator[tuple[int, int]]:
    """(source, target) of every model that is sent again because the one trained from it was refused."""
    holder, receivers = SERVER, (*arrival.clients[1:], SERVER)
    for client, hop, receiver in zip(arrival.clients, arrival.hops, receivers, strict=True):
        if not hop.refused:
            holder = client
        elif holder != receiver:
            yield holder, receiver
