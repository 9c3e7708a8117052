"""Faults: plans in bad weather, and plans as they went."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.cost.devices import Device
from fedrelay.cost.ledger import transfer_totals
from fedrelay.cost.time_model import TimeModel
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import FaultKind, FaultSettings, RecoverySettings, experiment
from fedrelay.robustness.executed_round import executed_round, unanswered
from fedrelay.robustness.fault_events import events_of_arrivals
from fedrelay.robustness.fault_model import SILENT, TAMPERINGS, UNANSWERED, FaultModel, RoundAfterFaults
from fedrelay.routes.arrival import Arrival, HopReport
from fedrelay.routes.execution_overlay import AS_PLANNED, NO_FAULT_COSTS, FaultCosts, TamperedHop
from fedrelay.routes.plan import AsyncRoundInfo, RoundPlan, Route

TIMES = TimeModel(lambda client: Device(1.0, 8.0, 8.0, 0.0), lambda client: 10, 1.0, lambda client: 1, {"model": 1})
"""Ten seconds at every client and one on every way."""

PLAN = RoundPlan(3, (Route((0, 1, 2, 3)), Route((4, 5))))


def apply(*faults, plan=PLAN, spares=(8, 9), **recovery) -> RoundAfterFaults:
    holders = [client for route in plan.routes for client in route.clients] + [*spares]
    wanted = [FaultSettings(**fault) for fault in faults]
    return FaultModel(wanted, RecoverySettings(**recovery), 1, holders, lambda plan: TIMES).apply(plan)


def seconds(found: RoundAfterFaults) -> float:
    return TIMES.round_time(found.plan, found.fault_costs.delays).virtual_seconds


def away(*clients, **more):
    return {"what": "dropout", "clients": clients, **more}


def test_every_tampering_is_a_fault():
    assert set(TAMPERINGS) < set(get_args(FaultKind))


def test_without_faults_nothing_changes():
    assert apply() == RoundAfterFaults(PLAN)


def test_clients_that_are_away_are_passed_over():
    found = apply(away(1, 4))
    assert [route.clients for route in found.plan.routes] == [(0, 2, 3), (5,)]
    assert [(m.round, m.route, m.hop, m.client, m.what, m.done) for m in found.events] == [
        (3, 0, 1, 1, "dropout", "skipped"),
        (3, 1, 0, 4, "dropout", "skipped"),
    ]
    assert found.fault_costs == FaultCosts((0.0, 0.0))


def test_a_route_without_clients_stays_so_that_others_keep_their_numbers():
    slots = replace(PLAN, routes=(Route((0, 1), slot=7), Route((4, 5), slot=9)))
    found = apply(away(0), {"what": "hang", "clients": (1,)}, {"what": "nan", "clients": (5,)}, plan=slots)
    assert found.plan.routes == (Route((), slot=7), Route((4, 5), slot=9))
    assert [(each.route, each.index, each.what) for each in found.tampers] == [(1, 1, "nan")]
    assert found.fault_costs.delays == (60.0, 0.0)
    assert seconds(found) == 60.0


def test_hops_keep_their_order_whoever_is_away():
    ordered = replace(PLAN, routes=(Route((0, 1, 2, 3), order=(0, 0, 2, 2)), Route((4, 0), order=(1, 1))))
    assert apply(away(1), plan=ordered).plan.routes == (Route((0, 2, 3), order=(0, 2, 2)), ordered.routes[1])
    stood_in = apply(away(1), plan=ordered, policy="backup").plan.routes[0]
    assert stood_in.clients[1] in (8, 9)
    assert stood_in.order == (0, 0, 2, 2)
    assert apply(plan=ordered, deadline=35.0).plan.routes[0] == Route((0, 1, 2), order=(0, 0, 2))


def test_where_data_are_pooled_nobody_fails():
    pooled = replace(PLAN, handover="none")
    assert apply({"what": "dropout"}, plan=pooled) == RoundAfterFaults(pooled)


def test_rounds_bound_a_fault_and_who_is_gone_stays_away():
    assert apply(away(1, first=4)).events == apply(away(1, last=2)).events == ()
    gone = {"what": "gone", "rate": 0.5, "first": 2}
    missing = []
    for number in range(1, 6):
        routes = apply(gone, plan=replace(PLAN, round=number)).plan.routes
        missing.append(set(range(6)) - {client for route in routes for client in route.clients})
    assert missing[0] == set()
    assert missing[1]
    assert all(each == missing[1] for each in missing[1:])


def test_asked_again():
    found = apply(away(1), policy="retry", retries=2)
    assert found.plan.routes[0].clients == (0, 2, 3)
    assert [m.done for m in found.events] == ["asked again", "asked again", "skipped"]
    half = apply({"what": "dropout", "rate": 0.5}, policy="retry", retries=50)
    assert half.plan.routes == PLAN.routes
    assert {m.done for m in half.events} == {"asked again"}


def test_asked_later():
    half = apply({"what": "dropout", "rate": 0.5}, policy="later", retries=50)
    for before, after in zip(PLAN.routes, half.plan.routes, strict=True):
        assert sorted(after.clients) == sorted(before.clients)
    assert half.plan.routes != PLAN.routes
    assert {m.done for m in half.events} == {"asked again at the end of the route"}


def test_spare_clients_replace_absent_ones():
    found = apply(away(1, 4, 5), policy="backup")
    chain, (second,) = (route.clients for route in found.plan.routes)
    assert (chain[0], *chain[2:]) == (0, 2, 3)
    assert {chain[1], second} == {8, 9}
    assert [m.done for m in found.events] == [
        f"replaced by client {chain[1]}",
        f"replaced by client {second}",
        "skipped, because there is no spare client",
    ]


def test_no_client_replaces_one_that_has_the_model_itself():
    peers = replace(PLAN, handover="peers", routes=(Route((0,), slot=0), Route((4,), slot=4)))
    found = apply(away(4), plan=peers, policy="backup")
    assert [route.clients for route in found.plan.routes] == [(0,), ()]
    assert [m.done for m in found.events] == ["skipped, because there is no spare client"]


def test_everybody_sent_a_model_to_a_peer_that_never_got_any():
    peers = replace(PLAN, handover="peers", routes=tuple(Route((client,), slot=client) for client in range(4)))
    found = apply({"what": "lost", "clients": (2,)}, plan=peers)
    assert found.fault_costs.wasted == (("c2c", 3),)
    assert transfer_totals(found.plan, {"model": 1}, wasted=found.fault_costs.wasted).c2c == 3 * 2 + 3


ANSWERS = {
    "skip": (1, (0, 2, 3), ["skipped"]),
    "retry": (3, (0, 2, 3), ["asked again", "asked again", "skipped"]),
    "later": (3, (0, 2, 3), ["asked again at the end of the route"] * 2 + ["skipped"]),
    "backup": (1, (0, 8, 2, 3), ["replaced by client 8"]),
}
"""How often a client that never answers is asked under each policy, which clients remain, and what the events say."""


@pytest.mark.parametrize("handover", ["direct", "server"])
@pytest.mark.parametrize("policy", ANSWERS)
@pytest.mark.parametrize("what", UNANSWERED)
def test_every_policy_for_everybody_who_does_not_answer(what, policy, handover):
    asked, visited, told = ANSWERS[policy]
    retries = {} if policy == "skip" else {"retries": 2}
    chain = replace(PLAN, routes=PLAN.routes[:1], handover=handover)
    faulty = apply({"what": what, "clients": (1,)}, plan=chain, spares=(8,), policy=policy, timeout=7.0, **retries)
    assert faulty.plan.routes == (Route(visited),)
    assert [(m.hop, m.client, m.what, m.done) for m in faulty.events] == [(1, 1, what, done) for done in told]
    wasted = asked if what in SILENT else 0
    assert faulty.fault_costs.delays == (7.0 * wasted,)
    handed_on = len(visited) - 1
    found = transfer_totals(faulty.plan, {"model": 5}, wasted=faulty.fault_costs.wasted)
    if handover == "direct":
        assert (found.s2c, found.c2c, found.c2s) == (1, handed_on + wasted, 1)
    else:
        assert (found.s2c, found.c2c, found.c2s) == (1 + handed_on + wasted, 0, 1 + handed_on)
    assert found.bytes == 5 * found.total


@pytest.mark.parametrize("policy", ANSWERS)
@pytest.mark.parametrize("what", TAMPERINGS)
def test_who_answers_with_a_bad_model_has_answered(what, policy):
    factor = {"factor": 3.0} if what in ("explode", "sign-flip", "replace") else {}
    found = apply({"what": what, "clients": (1, 5), **factor}, policy=policy)
    strength = factor.get("factor", 10.0)
    assert (found.plan, found.events, found.fault_costs) == (PLAN, (), FaultCosts((0.0, 0.0)))
    assert found.tampers == (TamperedHop(0, 1, what, strength), TamperedHop(1, 1, what, strength))


@pytest.mark.parametrize(("handover", "sent"), [("direct", {"c2c": 1}), ("server", {"s2c": 1})])
def test_a_client_that_hangs_costs_the_timeout_and_a_transfer(handover, sent):
    found = apply({"what": "hang", "clients": (1,)}, plan=replace(PLAN, handover=handover), timeout=30.0)
    assert found.fault_costs == FaultCosts((30.0, 0.0), tuple(sent.items()))
    transfers = {"direct": 4, "server": 6}[handover]
    assert seconds(found) == 30 + 30 + transfers


def test_stragglers_and_copies():
    found = apply({"what": "straggler", "clients": (2,), "factor": 4}, {"what": "duplicated", "clients": (5,)})
    assert found.plan == PLAN
    assert found.fault_costs == FaultCosts((30.0, 0.0), (("c2c", 1),))
    assert [(m.client, m.done) for m in found.events] == [(2, "waited for it"), (5, "ignored the copy")]


def test_routes_come_home_at_the_deadline():
    # Four clients take 4 · 10 + 5 seconds, three 34, two 23.
    found = apply(deadline=34.0)
    assert [route.clients for route in found.plan.routes] == [(0, 1, 2), (4, 5)]
    assert [(m.client, m.what, m.done) for m in found.events] == [(3, "deadline", "returned after 3 of 4 clients")]
    nobody = apply(deadline=5.0)
    assert [route.clients for route in nobody.plan.routes] == [(), ()]
    assert seconds(nobody) == 5.0
    # Two models at the same client: one waits ten seconds for the other, and is home after 32.
    both = replace(PLAN, routes=(Route((0, 1)), Route((0, 2))))
    assert [route.clients for route in apply(plan=both, deadline=31.0).plan.routes] == [(0, 1), (0,)]
    assert [route.clients for route in apply(plan=both, deadline=33.0).plan.routes] == [(0, 1), (0, 2)]
    late = apply({"what": "straggler", "clients": (1,), "factor": 2}, deadline=34.0)
    assert late.plan.routes[0].clients == (0, 1)


def events_of_the_first_route(found):
    return [(m.hop, m.client, m.what, m.done) for m in found.events if m.route == 0]


def test_at_the_deadline_a_route_brings_what_it_has_however_long_somebody_hangs():
    # The first client is home after 12 seconds, the second after 23; the last one would hang for a minute.
    hang = {"what": "hang", "clients": (3,)}
    found = apply(hang, deadline=50.0)
    assert found.plan.routes[0].clients == (0, 1, 2)
    assert events_of_the_first_route(found) == [(3, 3, "hang", "skipped"), (3, 3, "deadline", "waited no longer")]
    assert found.fault_costs == FaultCosts((50.0 - 34.0, 0.0), (("c2c", 1),))
    assert seconds(found) == 50.0
    # In the middle: the third client answers, but only after the minute.
    hang = {"what": "hang", "clients": (1,)}
    found = apply(hang, deadline=50.0)
    assert found.plan.routes[0].clients == (0,)
    assert events_of_the_first_route(found) == [
        (1, 1, "hang", "skipped"),
        (1, 2, "deadline", "returned after 1 of 3 clients"),
    ]
    assert seconds(found) == 50.0


def test_what_would_have_happened_after_the_deadline_never_did():
    hang, twice = {"what": "hang", "clients": (3,)}, {"what": "duplicated", "clients": (1, 3)}
    found = apply(hang, twice, deadline=25.0, plan=replace(PLAN, routes=PLAN.routes[:1]))
    assert found.plan.routes[0].clients == (0, 1)
    assert events_of_the_first_route(found) == [
        (1, 1, "duplicated", "ignored the copy"),
        (2, 2, "deadline", "returned after 2 of 3 clients"),
    ]
    assert found.fault_costs == FaultCosts((0.0,), (("c2c", 1),))
    assert seconds(found) == 23.0  # it knew how long the next one takes


@settings(deadline=None, max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    kinds=st.lists(st.sampled_from(get_args(FaultKind)), max_size=4),
    rate=st.floats(0, 1),
    policy=st.sampled_from(["skip", "retry", "later", "backup"]),
    round=st.integers(1, 5),
)
def test_whatever_happens_a_plan_stays_a_plan(lengths, kinds, rate, policy, round):
    clients = iter(range(100))
    planned = RoundPlan(round, tuple(Route(tuple(next(clients) for _ in range(n)), slot=n) for n in lengths))
    faults = [{"what": what, "rate": rate} for what in kinds]
    found = apply(*faults, plan=planned, policy=policy, spares=range(50, 60))
    assert found == apply(*faults, plan=planned, policy=policy, spares=range(50, 60))
    visited = Counter(client for route in found.plan.routes for client in route.clients)
    assert not visited or max(visited.values()) == 1
    assert [route.slot for route in found.plan.routes] == [route.slot for route in planned.routes]
    assert len(found.plan.routes) == len(found.fault_costs.delays) or found == RoundAfterFaults(planned)
    assert {each.what for each in found.tampers} <= set(kinds)
    assert all(each.index < len(found.plan.routes[each.route].clients) for each in found.tampers)
    skipped = sum(m.done.startswith("skipped") for m in found.events)
    assert sum(visited.values()) == sum(lengths) - skipped
    assert {m.what for m in found.events} <= set(kinds) & {*UNANSWERED, "straggler", "duplicated"}


def executed(plan, arrivals, fault_costs=NO_FAULT_COSTS):
    return executed_round(plan, fault_costs, arrivals, timeout=30.0, time_model=lambda plan: TIMES)


def test_what_was_refused_is_an_event_and_costs_another_transfer():
    hops = tuple(HopReport(1, 1, 0.0, refused=reason) for reason in ("", "a wrong shape", "non-finite weights"))
    arrival = Arrival(0, (5, 6, 7), torch.zeros(1), hops)
    plan = RoundPlan(2, (Route((5, 6, 7)),))
    assert [(m.hop, m.client, m.what, m.done) for m in events_of_arrivals(2, AS_PLANNED, [arrival])] == [
        (1, 6, "a wrong shape", "refused: a wrong shape"),
        (2, 7, "non-finite weights", "refused: non-finite weights"),
    ]
    assert executed(plan, [arrival])[1] == FaultCosts((2.0,), (("c2c", 1), ("c2s", 1)))
    assert executed(replace(plan, handover="server"), [arrival])[1] == NO_FAULT_COSTS
    alone = Arrival(0, (5,), torch.zeros(1), hops[1:2])
    assert executed(RoundPlan(2, (Route((5,)),)), [alone])[1] == NO_FAULT_COSTS


def arrived(number, *hops):
    """(client, what became of every message) for each hop; clients that never answered are refused."""
    reports = [
        HopReport(1, 1, 0.0, attempts=sent, refused="why" if sent and "answered" not in sent else "")
        for _, sent in hops
    ]
    return Arrival(number, tuple(client for client, _ in hops), torch.zeros(1), tuple(reports))


def test_an_executed_round_has_the_clients_that_answered():
    plan = RoundPlan(1, (Route((5, 6, 7)), Route((8,), 3)), "server")
    first = arrived(0, (5, ("answered",)), (6, ("away",)), (7, ("silent", "answered", "answered")))
    second = arrived(1, (8, ("silent", "failed", "away")))
    reached, lost = executed(plan, [first, second])
    assert [(route.clients, route.slot) for route in reached.routes] == [((5, 7), None), ((), 3)]
    # 7 was sent the model twice in vain, once for nothing and once for a bad answer; 8 twice, both for nothing
    assert lost == FaultCosts((30.0, 30.0), (("c2s", 1), ("s2c", 4)))
    assert reached.client_updates == 2
    assert unanswered([first, second]) == [8]
    counts = transfer_totals(reached, {"model": 10}, wasted=lost.wasted)
    assert (counts.s2c, counts.c2s, counts.c2c, counts.bytes) == (2 + 4, 2 + 1, 0, 90)


def test_in_simulation_the_plan_is_executed_as_it_is():
    plan, overhead = RoundPlan(1, (Route((5, 6)),)), FaultCosts((2.0,), (("c2c", 1),))
    reached, lost = executed(plan, [arrived(0, (5, ()), (6, ()))], overhead)
    assert reached is plan
    assert lost == overhead


def test_where_real_arrivals_decide_the_real_clock_counts():
    plan = RoundPlan(1, (Route((5, 6), 0),), "server", asynchronous=AsyncRoundInfo(1, 9.0, real=True))
    reached, lost = executed(plan, [arrived(0, (5, ("silent", "answered")))])
    assert reached.routes == (Route((5,), 0),)
    assert lost.delays == ()
    costs = prepare(experiment("fedasyncseq", clients=8, workers=1)).costs
    assert costs.virtual_time(reached, lost, measured=1.0).virtual_seconds == 1.0
    simulated = replace(reached, asynchronous=AsyncRoundInfo(1, 9.0))
    assert costs.virtual_time(simulated, lost, measured=1.0).virtual_seconds == 9.0
