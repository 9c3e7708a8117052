from __future__ import annotations

import fedrelay as fr


def test_fedtm_visits_all_clients_after_the_warmup():
    settings = {"data": "heart-disease", "fraction": 1.0, "rounds": 3, "warmup": {"rounds": 2}}
    plans = [fr.plan("fedtm", round, **settings) for round in (1, 2, 3)]
    assert [len(plan.routes) for plan in plans] == [2, 2, 1]  # two hospitals are larger than the average one
    assert len(plans[2].routes[0].clients) == 4


def test_another_route_may_follow():
    plan = fr.plan("fedtm+spfl", 2, data="heart-disease", fraction=1.0, rounds=2, warmup={"rounds": 1})
    assert [len(route.clients) for route in plan.routes] == [4] * 4
