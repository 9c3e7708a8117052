"""What a term sends beside the model: the model of the round goes to those who lack it."""

from __future__ import annotations

import pytest

from fedrelay.cost.term_transfers import round_models, term_transfers
from fedrelay.local.terms.glam import Glam
from fedrelay.routes.plan import RoundPlan, Route


def rotation(*lost: int) -> RoundPlan:
    """Four clients that each begin one route and meet all others, without the first turns of some."""
    routes = [tuple((first + step) % 4 for step in range(4)) for first in range(4)]
    return RoundPlan(1, tuple(Route(route[1:] if first in lost else route) for first, route in enumerate(routes)))


@pytest.mark.parametrize(
    ("plan", "sent"),
    [
        (RoundPlan(1, (Route((0,)), Route((1,)))), {}),
        (RoundPlan(1, (Route((0, 1, 2)), Route((3, 4)))), {"c2c": 3}),
        (RoundPlan(1, (Route((0, 1, 2)), Route(()))), {"c2c": 2}),
        (RoundPlan(1, (Route(()), Route(()))), {}),
        (RoundPlan(1, (Route((0, 1)), Route((2,))), "server"), {"s2c": 1}),
        (RoundPlan(1, (Route((0, 1), slot=0), Route((2,), slot=1))), {"c2c": 1}),  # empty slots: the global model
        (RoundPlan(2, (Route((0, 1), 0, continues=True), Route((2,), 1, continues=True))), {"s2c": 2, "c2c": 1}),
        (RoundPlan(2, (Route((0, 1), 0, continues=True), Route((2, 3), 1))), {"s2c": 1, "c2c": 2}),
        (RoundPlan(2, (Route((0,), 0, continues=True), Route((1, 0), 1))), {"s2c": 1}),  # 0 has it already
        (RoundPlan(2, (Route((0, 1), 0, continues=True), Route((2,), 1)), "server"), {"s2c": 2}),
        (RoundPlan(1, (Route((0, 1, 0, 1)),), "server"), {"s2c": 3}),
        (RoundPlan(2, (Route((0,), 0, continues=True), Route((1,), 1, continues=True)), "peers"), {}),
        (RoundPlan(1, (Route((0, 1, 2) * 3),)), {"c2c": 2}),  # who has been visited has it
        (RoundPlan(1, (Route((0, 1, 2)), Route((3, 4, 0, 1, 2)))), {"c2c": 3}),
        (rotation(), {}),
        (rotation(2), {"c2c": 1}),  # the route that was 2's begins with 3, and so does 3's own
        (rotation(0, 1, 2, 3), {}),
    ],
)
def test_the_round_model_goes_to_clients_that_lack_it(plan, sent):
    assert round_models([Glam()], plan) == sent
    assert round_models([Glam(rho=0.0)], plan) == {}


def test_glam_sends_nothing_else():
    assert term_transfers(Glam(), first=True) == {"s2c": (), "c2s": (), "c2c": ()}
