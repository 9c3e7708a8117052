from __future__ import annotations

from fedrelay.cost.ledger import transfer_totals
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.warmup_cycle import WarmupCycle


def test_one_model_visits_the_selected_clients_through_the_server():
    context = PlanningContext(6, 0.2, 1, selected_clients=lambda round: (3, round, 0))
    plan = WarmupCycle().plan(context, 5)
    assert [route.clients for route in plan.routes] == [(3, 5, 0)]
    found = transfer_totals(plan, {"model": 1})
    assert (found.s2c, found.c2s, found.c2c) == (3, 3, 0)
