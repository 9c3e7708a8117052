"""Faults: plans in bad weather, and runs that survive it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import make_federation

from fedrelay import resume, run
from fedrelay.clock import Device, Stopwatch
from fedrelay.errors import DivergedError, FruitlessError, SpecError
from fedrelay.faults import SILENT, TAMPERINGS, UNANSWERED, Weather, as_it_went, mishaps_of, sent_again, unanswered
from fedrelay.ledger import tally
from fedrelay.local.arrival import Arrival, HopReport
from fedrelay.local.keepsakes import Keepsakes
from fedrelay.report.fate import Fate
from fedrelay.routes.plan import RoundPlan, Route, Tamper
from fedrelay.setting import prepare
from fedrelay.spec import Fault, FaultKind, Recovery, experiment
from fedrelay.store import Records, RunFolder

STOPWATCH = Stopwatch(lambda client: Device(1.0, 8.0, 8.0, 0.0), lambda client: 10, 1.0, 1, {"model": 1})
"""Ten seconds at every client and one on every way."""

PLAN = RoundPlan(3, (Route((0, 1, 2, 3)), Route((4, 5))))


def meet(*faults, plan=PLAN, attempt=0, spares=(8, 9), **recovery):
    weather = Weather([Fault(**fault) for fault in faults], Recovery(**recovery), seed=1)
    return weather.meet(replace(plan, attempt=attempt), STOPWATCH, lambda present: iter(set(spares) - set(present)))


def away(*clients, **more):
    return {"what": "dropout", "clients": clients, **more}


def test_every_tampering_is_a_fault():
    assert set(TAMPERINGS) < set(get_args(FaultKind))


def test_fair_weather_changes_nothing():
    assert meet() == (PLAN, [])


def test_clients_that_are_away_are_passed_over():
    plan, mishaps = meet(away(1, 4))
    assert [route.clients for route in plan.routes] == [(0, 2, 3), (5,)]
    assert [(m.round, m.route, m.hop, m.client, m.what, m.done) for m in mishaps] == [
        (3, 0, 1, 1, "dropout", "skipped"),
        (3, 1, 0, 4, "dropout", "skipped"),
    ]
    assert (plan.delays, dict(plan.in_vain)) == ((0.0, 0.0), {})


def test_a_route_without_clients_stays_so_that_others_keep_their_numbers():
    slots = replace(PLAN, routes=(Route((0, 1), slot=7), Route((4, 5), slot=9)))
    plan, _ = meet(away(0), {"what": "hang", "clients": (1,)}, {"what": "nan", "clients": (5,)}, plan=slots)
    assert plan.routes == (Route((), slot=7), Route((4, 5), slot=9))
    assert [(each.route, each.index, each.what) for each in plan.tampers] == [(1, 1, "nan")]
    assert plan.delays == (60.0, 0.0)
    assert STOPWATCH.round_time(plan).seconds == 60.0


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
    plan, mishaps = meet(away(1), policy="retry", retries=2)
    assert plan.routes[0].clients == (0, 2, 3)
    assert [m.done for m in mishaps] == ["asked again", "asked again", "skipped"]
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
    plan, mishaps = meet(away(1, 4, 5), policy="backup")
    assert [route.clients for route in plan.routes] == [(0, 8, 2, 3), (9,)]
    assert [m.done for m in mishaps] == [
        "client 8 stood in",
        "client 9 stood in",
        "skipped, because nobody could stand in",
    ]


def test_nobody_stands_in_for_a_client_that_has_the_model_itself():
    peers = replace(PLAN, relay="peers", routes=(Route((0,), slot=0), Route((4,), slot=4)))
    plan, mishaps = meet(away(4), plan=peers, policy="backup")
    assert [route.clients for route in plan.routes] == [(0,), ()]
    assert [m.done for m in mishaps] == ["skipped, because nobody could stand in"]


def test_everybody_sent_a_model_to_a_peer_that_never_got_any():
    peers = replace(PLAN, relay="peers", routes=tuple(Route((client,), slot=client) for client in range(4)))
    plan, _ = meet({"what": "lost", "clients": (2,)}, plan=peers)
    assert plan.in_vain == (("c2c", 3),)
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
    plan, mishaps = meet({"what": what, "clients": (1,)}, plan=chain, policy=policy, timeout=7.0, **retries)
    assert plan.routes == (Route(visited),)
    assert [(m.hop, m.client, m.what, m.done) for m in mishaps] == [(1, 1, what, done) for done in told]
    in_vain = asked if what in SILENT else 0
    assert plan.delays == (7.0 * in_vain,)
    handed_on = len(visited) - 1
    found = tally(plan, {"model": 5})
    if relay == "direct":
        assert (found.s2c, found.c2c, found.c2s) == (1, handed_on + in_vain, 1)
    else:
        assert (found.s2c, found.c2c, found.c2s) == (1 + handed_on + in_vain, 0, 1 + handed_on)
    assert found.bytes == 5 * found.total


@pytest.mark.parametrize("policy", ANSWERS)
@pytest.mark.parametrize("what", TAMPERINGS)
def test_who_answers_with_a_bad_model_has_answered(what, policy):
    factor = {"factor": 3.0} if what in ("explode", "sign-flip", "replace") else {}
    plan, mishaps = meet({"what": what, "clients": (1, 5), **factor}, policy=policy)
    strength = factor.get("factor", 10.0)
    assert (plan.routes, mishaps, plan.delays) == (PLAN.routes, [], (0.0, 0.0))
    assert plan.tampers == (Tamper(0, 1, what, strength), Tamper(1, 1, what, strength))


@pytest.mark.parametrize(("relay", "sent"), [("direct", {"c2c": 1}), ("server", {"s2c": 1})])
def test_a_client_that_hangs_costs_the_timeout_and_a_transfer(relay, sent):
    plan, _ = meet({"what": "hang", "clients": (1,)}, plan=replace(PLAN, relay=relay), timeout=30.0)
    assert (plan.delays, dict(plan.in_vain)) == ((30.0, 0.0), sent)
    ways = {"direct": 4, "server": 6}[relay]
    assert STOPWATCH.round_time(plan).seconds == 30 + 30 + ways


def test_stragglers_and_copies():
    plan, mishaps = meet({"what": "straggler", "clients": (2,), "factor": 4}, {"what": "duplicated", "clients": (5,)})
    assert plan.routes == PLAN.routes
    assert (plan.delays, dict(plan.in_vain)) == ((30.0, 0.0), {"c2c": 1})
    assert [(m.client, m.done) for m in mishaps] == [(2, "waited for it"), (5, "ignored the copy")]


def test_routes_come_home_at_the_deadline():
    # Four clients take 4 · 10 + 5 seconds, three 34, two 23.
    plan, mishaps = meet(deadline=34.0)
    assert [route.clients for route in plan.routes] == [(0, 1, 2), (4, 5)]
    assert [(m.client, m.what, m.done) for m in mishaps] == [(3, "deadline", "came home after 3 of 4 clients")]
    nobody, _ = meet(deadline=5.0)
    assert [route.clients for route in nobody.routes] == [(), ()]
    assert STOPWATCH.round_time(nobody).seconds == 5.0
    # Two models at the same client: one waits ten seconds for the other, and is home after 32.
    both = replace(PLAN, routes=(Route((0, 1)), Route((0, 2))))
    assert [route.clients for route in meet(plan=both, deadline=31.0)[0].routes] == [(0, 1), (0,)]
    assert [route.clients for route in meet(plan=both, deadline=33.0)[0].routes] == [(0, 1), (0, 2)]
    late, _ = meet({"what": "straggler", "clients": (1,), "factor": 2}, deadline=34.0)
    assert late.routes[0].clients == (0, 1)


def done_with(mishaps):
    return [(m.hop, m.client, m.what, m.done) for m in mishaps if m.route == 0]


def test_at_the_deadline_a_route_brings_what_it_has_however_long_somebody_hangs():
    # The first client is home after 12 seconds, the second after 23; the last one would hang for a minute.
    hang = {"what": "hang", "clients": (3,)}
    plan, mishaps = meet(hang, deadline=50.0)
    assert plan.routes[0].clients == (0, 1, 2)
    assert done_with(mishaps) == [(3, 3, "hang", "skipped"), (3, 3, "deadline", "waited no longer")]
    assert (plan.delays, dict(plan.in_vain)) == ((50.0 - 34.0, 0.0), {"c2c": 1})
    assert STOPWATCH.round_time(plan).seconds == 50.0
    # In the middle: the third client answers, but only after the minute.
    hang = {"what": "hang", "clients": (1,)}
    plan, mishaps = meet(hang, deadline=50.0)
    assert plan.routes[0].clients == (0,)
    assert done_with(mishaps) == [(1, 1, "hang", "skipped"), (1, 2, "deadline", "came home after 1 of 3 clients")]
    assert STOPWATCH.round_time(plan).seconds == 50.0


def test_what_would_have_happened_after_the_deadline_never_did():
    hang, twice = {"what": "hang", "clients": (3,)}, {"what": "duplicated", "clients": (1, 3)}
    plan, mishaps = meet(hang, twice, deadline=25.0, plan=replace(PLAN, routes=PLAN.routes[:1]))
    assert plan.routes[0].clients == (0, 1)
    assert done_with(mishaps) == [
        (1, 1, "duplicated", "ignored the copy"),
        (2, 2, "deadline", "came home after 2 of 3 clients"),
    ]
    assert (plan.delays, dict(plan.in_vain)) == ((0.0,), {"c2c": 1})
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
    plan, mishaps = meet(*faults, plan=fair, policy=policy, spares=range(50, 60))
    assert (plan, mishaps) == meet(*faults, plan=fair, policy=policy, spares=range(50, 60))
    visited = Counter(client for route in plan.routes for client in route.clients)
    assert not visited or max(visited.values()) == 1
    assert [route.slot for route in plan.routes] == [route.slot for route in fair.routes]
    assert len(plan.routes) == len(plan.delays) or (plan, mishaps) == (fair, [])
    assert {each.what for each in plan.tampers} <= set(kinds)
    assert all(each.index < len(plan.routes[each.route].clients) for each in plan.tampers)
    skipped = sum(m.done.startswith("skipped") for m in mishaps)
    assert sum(visited.values()) == sum(lengths) - skipped
    assert {m.what for m in mishaps} <= set(kinds) & {*UNANSWERED, "straggler", "duplicated"}


def test_what_was_refused_is_told_and_costs_another_transfer():
    hops = tuple(HopReport(1, 1, 0.0, refused=reason) for reason in ("", "a wrong shape", "non-finite weights"))
    arrival = Arrival(0, (5, 6, 7), torch.zeros(1), hops)
    plan = RoundPlan(2, (Route((5, 6, 7)),))
    assert [(m.hop, m.client, m.what, m.done) for m in mishaps_of(plan, [arrival])] == [
        (1, 6, "a wrong shape", "refused: a wrong shape"),
        (2, 7, "non-finite weights", "refused: non-finite weights"),
    ]
    costly = sent_again(plan, [arrival], STOPWATCH)
    assert (dict(costly.in_vain), costly.delays) == ({"c2c": 1, "c2s": 1}, (2.0,))
    assert sent_again(replace(plan, relay="server"), [arrival], STOPWATCH).in_vain == ()
    alone = Arrival(0, (5,), torch.zeros(1), hops[1:2])
    assert sent_again(RoundPlan(2, (Route((5,)),)), [alone], STOPWATCH).in_vain == ()


def came_home(number, *stops):
    """(client, what became of every message) for each stop; those that never answered are refused."""
    hops = [HopReport(1, 1, 0.0, attempts=sent, refused="" if "answered" in sent else "why") for _, sent in stops]
    return Arrival(number, tuple(client for client, _ in stops), torch.zeros(1), tuple(hops))


def test_the_plan_as_it_went_has_those_alone_who_answered():
    plan = RoundPlan(1, (Route((5, 6, 7)), Route((8,), 3)), "server")
    first = came_home(0, (5, ("answered",)), (6, ("away",)), (7, ("silent", "answered", "answered")))
    second = came_home(1, (8, ("silent", "failed", "away")))
    went = as_it_went(plan, [first, second], 30.0)
    assert [(route.clients, route.slot) for route in went.routes] == [((5, 7), None), ((), 3)]
    # 7 was sent the model twice in vain, once for nothing and once for a bad answer; 8 twice, both for nothing
    assert dict(went.in_vain) == {"s2c": 4, "c2s": 1}
    assert went.delays == (30.0, 30.0)
    assert went.client_updates == 2
    assert unanswered([first, second]) == [8]
    counts = tally(went, {"model": 10})
    assert (counts.s2c, counts.c2s, counts.c2c, counts.bytes) == (2 + 4, 2 + 1, 0, 90)


def test_where_nothing_is_a_message_the_plan_went_as_it_was():
    plan = RoundPlan(1, (Route((5, 6)),), delays=(2.0,), in_vain=(("c2c", 1),))
    assert as_it_went(plan, [came_home(0, (5, ()), (6, ()))], 30.0) is plan


RUN = {"rounds": 6, "fraction": 0.5, "lr": 0.1}


def small(method, *faults, **more):
    return run(method, data=make_federation([8] * 12), **{**RUN, "faults": faults, **more})


def bits(result):
    return result.summary()["weights_sha256"], result.history, dict(result.mishaps)


def kept_of(path):
    """What the server and every client of a finished run keep."""
    folder = RunFolder.open(path)
    keepsakes = Keepsakes(path / "clients")
    keepsakes.restore(folder.kept)
    state = folder.restore(lambda round: True)
    folder.close()
    return state.server, [keepsakes.get(client) for client in range(12)]


STORM = [{"what": "dropout", "rate": 0.3}, {"what": "nan", "rate": 0.2}]
REPEATING = {"guard": {"on_divergence": "skip"}, "recovery": {"min_arrivals": 4, "repeats": 20}}


@pytest.mark.parametrize("method", ["scaffold", "fedseq+scaffold", "spfl+scaffold"])
def test_whatever_goes_wrong_the_servers_correction_is_the_mean_of_the_clients(method, tmp_path):
    more = {"grouping.max_clients": 3} if "fedseq" in method else {}
    small(method, *STORM, out=tmp_path / "run", **REPEATING, **more)
    server, clients = kept_of(tmp_path / "run")
    mean = sum(kept.get("control", torch.zeros(1)) for kept in clients) / 12
    assert float(mean.norm()) > 0.01
    torch.testing.assert_close(server["control"], mean, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", [None, 0.5], ids=["", "shortened"])
def test_whatever_goes_wrong_feddyn_remembers_every_clients_drift(norm, tmp_path):
    more = {**REPEATING, "guard": {"on_divergence": "skip", "norm": norm}}
    result = small("feddyn", *STORM, out=tmp_path / "run", **more)
    server, clients = kept_of(tmp_path / "run")
    mean = sum(kept.get("drift", torch.zeros(1)) for kept in clients) / 12
    assert float(mean.norm()) > 0.01
    torch.testing.assert_close(server["merge/drift"], mean, rtol=1e-4, atol=1e-6)
    assert ("long update" in result.mishaps) == (norm is not None)


@pytest.mark.parametrize("final", ["ema", "mean"])
def test_refused_turns_do_not_thin_out_what_a_warm_up_adds_up(final):
    faults = {"what": "nan", "clients": tuple(range(6))}
    more = {"guard": {"on_divergence": "skip"}, "warmup": {"cycles": 6, "final": final}, "lr": 1e-6}
    result = small("wfsl", faults, **more)
    torch.testing.assert_close(result.weights, small("fedavg", rounds=1, lr=1e-6).weights, rtol=1e-3, atol=1e-4)


def test_models_that_wait_are_merged_even_if_nobody_comes_home_in_time():
    stormy = {"what": "dropout", "first": 2, "last": 2}
    more = {"route.period": 2, "grouping.max_clients": 3, "recovery": {"repeats": 0}, "fraction": 1.0}
    after_two = small("fedseqinter", stormy, rounds=2, **more)
    one_long = small("fedseqinter", rounds=1, **{**more, "route.period": 1})
    torch.testing.assert_close(after_two.weights, one_long.weights)


def test_a_lost_first_turn_costs_rotations_one_more_round_model():
    model = small("fedavg").bytes // 72  # six clients, six rounds, down and up
    lost = {"what": "dropout", "first": 1, "last": 1, "clients": tuple(range(12)), "rate": 0.1}
    extra = {}
    for method in ("spfl", "spfl+glam"):
        fair, stormy = small(method, rounds=1), small(method, lost, rounds=1)
        assert stormy.mishaps["dropout"] > 0
        extra[method] = (fair.bytes // model, stormy.bytes // model)
    assert extra["spfl"][0] == extra["spfl+glam"][0]
    assert extra["spfl+glam"][1] == extra["spfl"][1] + 1


@pytest.mark.parametrize("method", ["fedseq+glam", "spfl+glam", "fedseqinter+glam", "fedstar"])
def test_routes_that_nobody_is_left_on_do_no_harm(method):
    more = {"grouping.max_clients": 3} if "fedseq" in method else {}
    result = small(method, {"what": "dropout", "rate": 0.7}, recovery={"repeats": 20}, **more)
    assert result.mishaps["dropout"] > 0
    assert torch.isfinite(result.weights).all()


@pytest.mark.parametrize("method", ["fedavg", "fedseq", "fedseqinter", "fedseq+scaffold", "spfl"])
def test_the_same_faults_for_any_number_of_workers(method, tmp_path):
    faults = [{"what": "dropout", "rate": 0.3}, {"what": "nan", "rate": 0.2}, {"what": "hang", "rate": 0.1}]
    more = {"guard": {"on_divergence": "skip"}, **({"grouping.max_clients": 3} if "fedseq" in method else {})}
    one = small(method, *faults, engine={"workers": 1}, **more)
    two = small(method, *faults, engine={"workers": 2}, out=tmp_path / "run", **more)
    assert bits(one) == bits(two)
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    assert Counter(event["what"] for event in events) == one.mishaps
    assert one.mishaps["dropout"] > 0
    assert one.mishaps["nan"] > 0
    assert torch.isfinite(one.weights).all()


def test_a_round_without_arrivals_repeats_and_is_given_up_at_last(caplog):
    fine = small("fedavg", {"what": "dropout", "rate": 0.6}, fraction=0.2, recovery={"min_arrivals": 2, "repeats": 50})
    assert "repeats" in caplog.text
    assert fine.client_updates >= 6 * 2
    assert fine.mishaps["too few arrivals"] == caplog.text.count("the round repeats") > 0
    caplog.clear()
    lost = {"what": "dropout", "first": 2, "last": 3}
    two_lost = small("fedavg", lost, recovery={"repeats": 1})
    assert caplog.text.count("is given up") == 2
    assert two_lost.mishaps["too few arrivals"] == 4
    assert [two_lost.history[index]["loss"] for index in (1, 2)] == [two_lost.history[0]["loss"]] * 2


NOBODY = {
    "everybody is away": ({"faults": [{"what": "dropout"}]}, FruitlessError, "dropout 36×, too few arrivals 6×"),
    "nobody is fast enough": ({"recovery.deadline": 1e-9}, FruitlessError, "deadline 36×, too few arrivals 6×"),
    "nobody need arrive": (
        {"faults": [{"what": "gone"}], "recovery.min_arrivals": 0},
        FruitlessError,
        "gone 36×, too few arrivals 6×",
    ),
    "every model is refused": (
        {"lr": 1e30, "guard.on_divergence": "skip"},
        DivergedError,
        "too few arrivals 6×, weights beyond 1e+08 36×",
    ),
}


@pytest.mark.parametrize("case", NOBODY)
def test_a_run_in_which_nobodys_work_was_accepted_fails_and_is_kept(case, tmp_path):
    settings, kind, wrong = NOBODY[case]
    path = tmp_path / "run"
    for go in (lambda: small("fedavg", **{"recovery.repeats": 0, "out": path, **settings}), lambda: again(path)):
        with pytest.raises(kind) as failed:
            go()
        assert str(failed.value) == (
            f"fedavg: in none of the 6 rounds anybody's work was accepted ({wrong}); the model is the first; "
            f"rounds 1 to 6 are kept in {path}"
        )
    events = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
    last = {"round": 6, "route": -1, "hop": -1, "client": -1, "what": "too few arrivals"}
    assert events[-1] == {**last, "done": "the round was given up"}
    assert len((path / "metrics.jsonl").read_text().splitlines()) == 6
    assert not (path / "result.json").exists()
    assert Fate.of(Records.open(path)).state == "fruitless"


def again(path):
    return resume(path, data=make_federation([8] * 12))


def test_a_diverged_run_leaves_a_trace_that_a_second_attempt_does_not_double(tmp_path):
    path = tmp_path / "run"
    spoilt = {"what": "nan", "first": 3, "clients": tuple(range(12))}
    for go in (lambda: small("fedavg", spoilt, out=path), lambda: again(path)):
        with pytest.raises(DivergedError):
            go()
        [event] = [json.loads(line) for line in (path / "events.jsonl").read_text().splitlines()]
        assert (event["round"], event["client"], event["what"]) == (3, -1, "diverged")
        assert "non-finite weights" in event["done"]


def test_divergence_ends_the_run_unless_it_may_go_on():
    with pytest.raises(DivergedError, match="non-finite weights"):
        small("fedavg", {"what": "nan", "rate": 0.1})
    going_on = small("fedavg", {"what": "nan", "rate": 0.1}, guard={"on_divergence": "skip"})
    assert going_on.accuracy > 0


def test_a_model_that_forgets_the_public_set_is_refused():
    flipped = {"what": "sign-flip", "clients": (0, 1), "factor": 50}
    guarded = small("fedavg", flipped, guard={"tolerance": 0.5, "on_divergence": "skip"}, fraction=1.0)
    assert guarded.mishaps["sign-flip"] == 12
    assert guarded.client_updates == 72
    unguarded = small("fedavg", flipped, guard={"on_divergence": "skip"}, fraction=1.0)
    assert guarded.history[-1]["loss"] < unguarded.history[-1]["loss"]


def test_what_is_usual_is_learnt_from_attempts_that_failed_too():
    more = {"guard": {"tolerance": 1e-6}, "lr": 1.0, "rounds": 8, "recovery": {"repeats": 1}}
    result = small("fedcyclic", **more)  # one model: if all its turns are refused, nothing comes home
    assert result.mishaps["a higher loss on the public set"] > 0
    assert result.history[-1]["loss"] != result.history[0]["loss"]


def test_looking_at_the_public_set_takes_time_in_the_ledger():
    plain, checked = (
        prepare(experiment("fedseq", **{"data.public": 3, "guard.tolerance": tolerance, "data.clients": 10}))
        for tolerance in (None, 0.5)
    )
    plan = plain.plan(1)
    turns = [len(route.clients) for route in plan.routes]
    each = 2 * 3 * 10 * plain.sample_flops / 3 / checked.devices(0).flops
    before, after = (setting.virtual_time(plan) for setting in (plain, checked))
    assert after.computing - before.computing == pytest.approx(max(turns) * each)
    assert after.communicating == before.communicating


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ([{"what": "drop"}], r"faults\.0\.what: must be 'dropout'.*did you mean 'dropout'"),
        ([{"what": "nan", "rate": 2}], r"faults\.0\.rate: must be less than or equal to 1"),
        ([{"what": "nan", "speed": 2}], r"faults\.0\.speed: unknown key 'speed'; allowed: what, rate, clients"),
        ([{"what": "nan", "factor": 2}], r"faults\.0\.factor: has no effect with 'nan'; it belongs to straggler"),
        ([{"what": "gone", "last": 2}], r"faults\.0\.last: has no effect with 'gone'"),
        ([{"what": "nan", "first": 3, "last": 2}], r"faults\.0\.last: must not be before the first round \(3\), got 2"),
        ([{"what": "nan", "clients": []}], r"faults\.0\.clients: must name at least one client"),
        ([{"what": "nan", "clients": [99]}], r"faults\.0\.clients: there is no client 99; they are 0 to 11"),
    ],
)
def test_impossible_faults_are_refused(faults, message):
    with pytest.raises(SpecError, match=message):
        small("fedavg", *faults)
