"""What a term sends beside the model: the model of the round goes to those who lack it."""

from __future__ import annotations

import pytest

from fedrelay.cost.term_transfers import late_round_models, term_transfers
from fedrelay.local.terms.glam import Glam
from fedrelay.routes.plan import RoundPlan, Route

ALONG, ALONE = ("round model",), ()


def rotation(*lost: int) -> RoundPlan:
    """Four clients that each begin one route and meet all others, without the first turns of some."""
    routes = [tuple((first + step) % 4 for step in range(4)) for first in range(4)]
    return RoundPlan(1, tuple(Route(route[1:] if first in lost else route) for first, route in enumerate(routes)))


@pytest.mark.parametrize(
    ("plan", "down", "on", "late"),
    [
        (RoundPlan(1, (Route((0,)), Route((1,)))), ALONE, ALONE, 0),
        (RoundPlan(1, (Route((0, 1, 2)), Route((3, 4)))), ALONE, ALONG, 0),
        (RoundPlan(1, (Route((0, 1, 2)), Route(()))), ALONE, ALONG, 0),
        (RoundPlan(1, (Route(()), Route(()))), ALONE, ALONE, 0),
        (RoundPlan(1, (Route((0, 1)), Route((2,))), "server"), ALONG, ALONG, 0),
        (RoundPlan(1, (Route((0, 1), slot=0), Route((2,), slot=1))), ALONG, ALONG, 0),
        (RoundPlan(1, (Route((0, 1, 2) * 3),)), ALONE, ALONE, 2),  # who has been visited has it
        (rotation(), ALONE, ALONE, 0),
        (rotation(2), ALONE, ALONE, 1),  # the route that was 2's begins with 3, and so does 3's own
        (rotation(0, 1, 2, 3), ALONE, ALONE, 0),
    ],
)
def test_the_round_model_goes_to_clients_that_begin_no_route(plan, down, on, late):
    found = term_transfers(Glam(), plan, first=True)
    assert (found["s2c"], found["c2c"], found["c2s"]) == (down, on, ())
    assert late_round_models([Glam()], plan) == late
    assert late_round_models([Glam(rho=0.0)], plan) == 0
