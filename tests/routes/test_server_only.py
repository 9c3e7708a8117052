from __future__ import annotations

from fedrelay.cost.ledger import transfer_totals
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.server_only import ServerOnly


def test_the_server_comes_after_the_last_client_and_nothing_is_transferred():
    plan = ServerOnly().plan(PlanningContext(6, 0.2, 1), 4)
    assert (plan.round, [route.clients for route in plan.routes], plan.merges) == (4, [(6,)], True)
    assert transfer_totals(plan, {"model": 1}).total == 0
