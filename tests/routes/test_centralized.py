from __future__ import annotations

from fedrelay.cost.ledger import transfer_totals
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.centralized import Centralized


def test_pooled_training_transfers_nothing():
    plan = Centralized().plan(PlanningContext(1, 0.2, 1), 1)
    assert plan.routes[0].clients == (0,)
    assert transfer_totals(plan, {"model": 1}).total == 0
