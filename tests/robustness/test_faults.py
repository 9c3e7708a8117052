"""Faults: plans in bad weather, and plans as they went."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.cost.clock import Device, TimeModel
from fedrelay.cost.ledger import tally
from fedrelay.experiment.spec import FaultKind, FaultSettings, RecoverySettings
from fedrelay.local.arrival import Arrival, HopReport
from fedrelay.robustness.faults import (
    SILENT,
    TAMPERINGS,
    UNANSWERED,
    FaultModel,
    events_from_arrivals,
    plan_as_executed,
    unanswered,
    with_resends,
)
from fedrelay.routes.plan import RoundPlan, Route, Tamper

STOPWATCH = TimeModel(lambda client: Device(1.0, 8.0, 8.0, 0.0), lambda client: 10, 1.0, 1, {"model": 1})
"""Ten seconds at every client and one on every way."""

PLAN = RoundPlan(3, (Route((0, 1, 2, 3)), Route((4, 5))))


def meet(*faults, plan=PLAN, attempt=0, spares=(8, 9), **recovery):
    weather = FaultModel([FaultSettings(**fault) for fault in faults], RecoverySettings(**recovery), seed=1)
    return weather.meet(replace(plan, attempt=attempt), STOPWATCH, lambda present: iter(set(spares) - set(present)))


def away(*clients, **more):
    return {"what": "dropout", "clients": clients, **more}


def test_every_tampering_is_a_fault():
    assert set(TAMPERINGS) < set(get_args(FaultKind))


def test_fair_weather_changes_nothing():
    assert meet() == (PLAN, [])


def test_clients_that_are_away_are_passed_over():
    plan, fault_events = meet(away(1, 4))
    assert [route.clients for route in plan.routes] == [(0, 2, 3), (5,)]
    assert [(m.round, m.route, m.hop, m.client, m.what, m.done) for m in fault_events] == [
        (3, 0, 1, 1, "dropout", "skipped"),
        (3, 1, 0, 4, "dropout", "skipped"),
    ]
    assert (plan.delays, dict(plan.wasted)) == ((0.0, 0.0), {})


def test_a_route_without_clients_stays_so_that_others_keep_their_numbers():
    slots = replace(PLAN, routes=(Route((0, 1), slot=7), Route((4, 5), slot=9)))
    plan, _ = meet(away(0), {"what": "hang", "clients": (1,)}, {"what": "nan", "clients": (5,)}, plan=slots)
    assert plan.routes == (Route((), slot=7), Route((4, 5), slot=9))
    assert [(each.route, each.index, each.what) for each in plan.tampers] == [(1, 1, "nan")]
    assert plan.delays == (60.0, 0.0)
    assert STOPWATCH.round_time(plan).seconds == 60.0


def test_hops_keep_their_order_whoever_is_away():
    ordered = replace(PLAN, routes=(Route((0, 1, 2, 3), order=(0, 0, 2, 2)), Route((4, 0), order=(1, 1))))
    assert meet(away(1), plan=ordered)[0].routes == (Route((0, 2, 3), order=(0, 2, 2)), ordered.routes[1])
    stood_in = meet(away(1), plan=ordered, policy="backup")[0].routes[0]
    assert stood_in.clients[1] in (8, 9)
    assert stood_in.order == (0, 0, 2, 2)
    assert meet(plan=ordered, deadline=35.0)[0].routes[0] == Route((0, 1, 2), order=(0, 0, 2))


def test_where_data_are_pooled_nobody_fails():
    assert meet({"what": "dropout"}, plan=replace(PLAN, relay="none")) == (replace(PLAN, relay="none"), [])


def test_rounds_bound_a_fault_and_who_is_gone_stays_away():
    assert meet(away(1, first=4))[1] == meet(away(1, last=2))[1] == []
    gone = {"what": "gone", "rate": 0.5, "first": 2}
    missing = []
    for number in range(1, 6):
        routes = meet(gone, plan=replace(PLAN, round=number))[0].routes
        missing.append(set(range(6)) - {client for route in routes for client in route.clients})
    assert missing[0] == set()
    assert missing[1]
    assert all(each == missing[1] for each in missing[1:])


def test_asked_again():
    plan, fault_events = meet(away(1), policy="retry", retries=2)
    assert plan.routes[0].clients == (0, 2, 3)
    assert [m.done for m in fault_events] == ["asked again", "asked again", "skipped"]
    half, found = meet({"what": "dropout", "rate": 0.5}, policy="retry", retries=50)
    assert half.routes == PLAN.routes
    assert {m.done for m in found} == {"asked again"}


def test_asked_later():
    half, found = meet({"what": "dropout", "rate": 0.5}, policy="later", retries=50)
    for before, after in zip(PLAN.routes, half.routes, strict=True):
        assert sorted(after.clients) == sorted(before.clients)
    assert half.routes != PLAN.routes
    assert {m.done for m in found} == {"asked again at the end of the route"}


def test_somebody_stands_in():
    plan, fault_events = meet(away(1, 4, 5), policy="backup")
    assert [route.clients for route in plan.routes] == [(0, 8, 2, 3), (9,)]
    assert [m.done for m in fault_events] == [
        "client 8 stood in",
        "client 9 stood in",
        "skipped, because nobody could stand in",
    ]


def test_nobody_stands_in_for_a_client_that_has_the_model_itself():
    peers = replace(PLAN, relay="peers", routes=(Route((0,), slot=0), Route((4,), slot=4)))
    plan, fault_events = meet(away(4), plan=peers, policy="backup")
    assert [route.clients for route in plan.routes] == [(0,), ()]
    assert [m.done for m in fault_events] == ["skipped, because nobody could stand in"]


def test_everybody_sent_a_model_to_a_peer_that_never_got_any():
    peers = replace(PLAN, relay="peers", routes=tuple(Route((client,), slot=client) for client in range(4)))
    plan, _ = meet({"what": "lost", "clients": (2,)}, plan=peers)
    assert plan.wasted == (("c2c", 3),)
    assert tally(plan, {"model": 1}).c2c == 3 * 2 + 3


ANSWERS = {
    "skip": (1, (0, 2, 3), ["skipped"]),
    "retry": (3, (0, 2, 3), ["asked again", "asked again", "skipped"]),
    "later": (3, (0, 2, 3), ["asked again at the end of the route"] * 2 + ["skipped"]),
    "backup": (1, (0, 8, 2, 3), ["client 8 stood in"]),
}
"""How often a client that never answers is asked under each policy, who is visited then, and what is told."""


@pytest.mark.parametrize("relay", ["direct", "server"])
@pytest.mark.parametrize("policy", ANSWERS)
@pytest.mark.parametrize("what", UNANSWERED)
def test_every_policy_for_everybody_who_does_not_answer(what, policy, relay):
    asked, visited, told = ANSWERS[policy]
    retries = {} if policy == "skip" else {"retries": 2}
    chain = replace(PLAN, routes=PLAN.routes[:1], relay=relay)
    plan, fault_events = meet({"what": what, "clients": (1,)}, plan=chain, policy=policy, timeout=7.0, **retries)
    assert plan.routes == (Route(visited),)
    assert [(m.hop, m.client, m.what, m.done) for m in fault_events] == [(1, 1, what, done) for done in told]
    wasted = asked if what in SILENT else 0
    assert plan.delays == (7.0 * wasted,)
    handed_on = len(visited) - 1
    found = tally(plan, {"model": 5})
    if relay == "direct":
        assert (found.s2c, found.c2c, found.c2s) == (1, handed_on + wasted, 1)
    else:
        assert (found.s2c, found.c2c, found.c2s) == (1 + handed_on + wasted, 0, 1 + handed_on)
    assert found.bytes == 5 * found.total


@pytest.mark.parametrize("policy", ANSWERS)
@pytest.mark.parametrize("what", TAMPERINGS)
def test_who_answers_with_a_bad_model_has_answered(what, policy):
    factor = {"factor": 3.0} if what in ("explode", "sign-flip", "replace") else {}
    plan, fault_events = meet({"what": what, "clients": (1, 5), **factor}, policy=policy)
    strength = factor.get("factor", 10.0)
    assert (plan.routes, fault_events, plan.delays) == (PLAN.routes, [], (0.0, 0.0))
    assert plan.tampers == (Tamper(0, 1, what, strength), Tamper(1, 1, what, strength))


@pytest.mark.parametrize(("relay", "sent"), [("direct", {"c2c": 1}), ("server", {"s2c": 1})])
def test_a_client_that_hangs_costs_the_timeout_and_a_transfer(relay, sent):
    plan, _ = meet({"what": "hang", "clients": (1,)}, plan=replace(PLAN, relay=relay), timeout=30.0)
    assert (plan.delays, dict(plan.wasted)) == ((30.0, 0.0), sent)
    ways = {"direct": 4, "server": 6}[relay]
    assert STOPWATCH.round_time(plan).seconds == 30 + 30 + ways


def test_stragglers_and_copies():
    plan, fault_events = meet(
        {"what": "straggler", "clients": (2,), "factor": 4}, {"what": "duplicated", "clients": (5,)}
    )
    assert plan.routes == PLAN.routes
    assert (plan.delays, dict(plan.wasted)) == ((30.0, 0.0), {"c2c": 1})
    assert [(m.client, m.done) for m in fault_events] == [(2, "waited for it"), (5, "ignored the copy")]


def test_routes_come_home_at_the_deadline():
    # Four clients take 4 · 10 + 5 seconds, three 34, two 23.
    plan, fault_events = meet(deadline=34.0)
    assert [route.clients for route in plan.routes] == [(0, 1, 2), (4, 5)]
    assert [(m.client, m.what, m.done) for m in fault_events] == [(3, "deadline", "came home after 3 of 4 clients")]
    nobody, _ = meet(deadline=5.0)
    assert [route.clients for route in nobody.routes] == [(), ()]
    assert STOPWATCH.round_time(nobody).seconds == 5.0
    # Two models at the same client: one waits ten seconds for the other, and is home after 32.
    both = replace(PLAN, routes=(Route((0, 1)), Route((0, 2))))
    assert [route.clients for route in meet(plan=both, deadline=31.0)[0].routes] == [(0, 1), (0,)]
    assert [route.clients for route in meet(plan=both, deadline=33.0)[0].routes] == [(0, 1), (0, 2)]
    late, _ = meet({"what": "straggler", "clients": (1,), "factor": 2}, deadline=34.0)
    assert late.routes[0].clients == (0, 1)


def done_with(fault_events):
    return [(m.hop, m.client, m.what, m.done) for m in fault_events if m.route == 0]


def test_at_the_deadline_a_route_brings_what_it_has_however_long_somebody_hangs():
    # The first client is home after 12 seconds, the second after 23; the last one would hang for a minute.
    hang = {"what": "hang", "clients": (3,)}
    plan, fault_events = meet(hang, deadline=50.0)
    assert plan.routes[0].clients == (0, 1, 2)
    assert done_with(fault_events) == [(3, 3, "hang", "skipped"), (3, 3, "deadline", "waited no longer")]
    assert (plan.delays, dict(plan.wasted)) == ((50.0 - 34.0, 0.0), {"c2c": 1})
    assert STOPWATCH.round_time(plan).seconds == 50.0
    # In the middle: the third client answers, but only after the minute.
    hang = {"what": "hang", "clients": (1,)}
    plan, fault_events = meet(hang, deadline=50.0)
    assert plan.routes[0].clients == (0,)
    assert done_with(fault_events) == [(1, 1, "hang", "skipped"), (1, 2, "deadline", "came home after 1 of 3 clients")]
    assert STOPWATCH.round_time(plan).seconds == 50.0


def test_what_would_have_happened_after_the_deadline_never_did():
    hang, twice = {"what": "hang", "clients": (3,)}, {"what": "duplicated", "clients": (1, 3)}
    plan, fault_events = meet(hang, twice, deadline=25.0, plan=replace(PLAN, routes=PLAN.routes[:1]))
    assert plan.routes[0].clients == (0, 1)
    assert done_with(fault_events) == [
        (1, 1, "duplicated", "ignored the copy"),
        (2, 2, "deadline", "came home after 2 of 3 clients"),
    ]
    assert (plan.delays, dict(plan.wasted)) == ((0.0,), {"c2c": 1})
    assert STOPWATCH.round_time(plan).seconds == 23.0  # it knew how long the next one takes


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
    fair = RoundPlan(round, tuple(Route(tuple(next(clients) for _ in range(n)), slot=n) for n in lengths))
    faults = [{"what": what, "rate": rate} for what in kinds]
    plan, fault_events = meet(*faults, plan=fair, policy=policy, spares=range(50, 60))
    assert (plan, fault_events) == meet(*faults, plan=fair, policy=policy, spares=range(50, 60))
    visited = Counter(client for route in plan.routes for client in route.clients)
    assert not visited or max(visited.values()) == 1
    assert [route.slot for route in plan.routes] == [route.slot for route in fair.routes]
    assert len(plan.routes) == len(plan.delays) or (plan, fault_events) == (fair, [])
    assert {each.what for each in plan.tampers} <= set(kinds)
    assert all(each.index < len(plan.routes[each.route].clients) for each in plan.tampers)
    skipped = sum(m.done.startswith("skipped") for m in fault_events)
    assert sum(visited.values()) == sum(lengths) - skipped
    assert {m.what for m in fault_events} <= set(kinds) & {*UNANSWERED, "straggler", "duplicated"}


def test_what_was_refused_is_told_and_costs_another_transfer():
    hops = tuple(HopReport(1, 1, 0.0, refused=reason) for reason in ("", "a wrong shape", "non-finite weights"))
    arrival = Arrival(0, (5, 6, 7), torch.zeros(1), hops)
    plan = RoundPlan(2, (Route((5, 6, 7)),))
    assert [(m.hop, m.client, m.what, m.done) for m in events_from_arrivals(plan, [arrival])] == [
        (1, 6, "a wrong shape", "refused: a wrong shape"),
        (2, 7, "non-finite weights", "refused: non-finite weights"),
    ]
    costly = with_resends(plan, [arrival], STOPWATCH)
    assert (dict(costly.wasted), costly.delays) == ({"c2c": 1, "c2s": 1}, (2.0,))
    assert with_resends(replace(plan, relay="server"), [arrival], STOPWATCH).wasted == ()
    alone = Arrival(0, (5,), torch.zeros(1), hops[1:2])
    assert with_resends(RoundPlan(2, (Route((5,)),)), [alone], STOPWATCH).wasted == ()


def came_home(number, *stops):
    """(client, what became of every message) for each stop; those that never answered are refused."""
    hops = [HopReport(1, 1, 0.0, attempts=sent, refused="" if "answered" in sent else "why") for _, sent in stops]
    return Arrival(number, tuple(client for client, _ in stops), torch.zeros(1), tuple(hops))


def test_the_plan_as_it_went_has_those_alone_who_answered():
    plan = RoundPlan(1, (Route((5, 6, 7)), Route((8,), 3)), "server")
    first = came_home(0, (5, ("answered",)), (6, ("away",)), (7, ("silent", "answered", "answered")))
    second = came_home(1, (8, ("silent", "failed", "away")))
    went = plan_as_executed(plan, [first, second], 30.0)
    assert [(route.clients, route.slot) for route in went.routes] == [((5, 7), None), ((), 3)]
    # 7 was sent the model twice in vain, once for nothing and once for a bad answer; 8 twice, both for nothing
    assert dict(went.wasted) == {"s2c": 4, "c2s": 1}
    assert went.delays == (30.0, 30.0)
    assert went.client_updates == 2
    assert unanswered([first, second]) == [8]
    counts = tally(went, {"model": 10})
    assert (counts.s2c, counts.c2s, counts.c2c, counts.bytes) == (2 + 4, 2 + 1, 0, 90)


def test_where_nothing_is_a_message_the_plan_went_as_it_was():
    plan = RoundPlan(1, (Route((5, 6)),), delays=(2.0,), wasted=(("c2c", 1),))
    assert plan_as_executed(plan, [came_home(0, (5, ()), (6, ()))], 30.0) is plan
