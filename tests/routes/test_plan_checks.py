from __future__ import annotations

import json

import numpy as np
import pytest

from fedrelay.routes.plan import AsyncRoundInfo, RoundPlan, Route
from fedrelay.routes.plan_checks import checked_plan


def test_lists_and_numbers_of_numpy_become_plain_values():
    routes = [Route([np.int64(3), 1], np.int32(0), np.arange(2)), Route(np.array([2]), 1)]
    plan = checked_plan(RoundPlan(np.int64(2), routes, merges=np.False_), 2)
    assert plan == RoundPlan(2, (Route((3, 1), 0, (0, 1)), Route((2,), 1)), merges=False)
    assert hash(plan) == hash(checked_plan(plan, 2))
    values = [plan.round, plan.merges, *((each.clients, each.slot, each.order) for each in plan.routes)]
    assert json.dumps(values) == "[2, false, [[3, 1], 0, [0, 1]], [[2], 1, []]]"


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (None, "must return a RoundPlan, got NoneType"),
        (RoundPlan(3, (Route((0,)),)), "must plan round 2, got a plan of round 3"),
        (
            RoundPlan(2, (Route((0,)),), "teleport"),
            "unknown handover 'teleport'; allowed: direct, server, sealed, peers, none",
        ),
        (RoundPlan(2, Route((1,))), "routes must be a tuple of fedrelay.Route objects, such as (route,), got Route("),
        (RoundPlan(2, ((1, 2), (3,))), "routes must be fedrelay.Route objects, got (1, 2)"),
        (RoundPlan(2, (Route((1.0, 2.0)),)), "the clients of a route must be whole numbers, got (1.0, 2.0)"),
        (RoundPlan(2, (Route(5),)), "the clients of a route must be whole numbers, got 5"),
        (RoundPlan(2, (Route((1,), "a"),)), "the slots of routes must be whole numbers, got ['a']"),
        (RoundPlan(2, (Route((1, 2), order=(1,)),)), "order must have one number for each of the 2 hops, got 1"),
        (RoundPlan(2, ()), "no route has a client"),
        (RoundPlan(2, (Route(()),)), "no route has a client"),
        (RoundPlan(2, (Route((1,)),), merges=False), "merges is False, but a route has no slot"),
    ],
)
def test_what_cannot_be_executed_is_refused(plan, message):
    with pytest.raises((TypeError, ValueError)) as refused:
        checked_plan(plan, 2)
    assert str(refused.value).startswith(message)


def test_a_route_may_be_empty_beside_others_and_all_may_where_arrivals_are_real():
    checked_plan(RoundPlan(1, (Route(()), Route((1,)))), 1)
    checked_plan(RoundPlan(1, (Route((), 0),), asynchronous=AsyncRoundInfo(1, 0.0, real=True)), 1)
