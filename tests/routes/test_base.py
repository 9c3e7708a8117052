from __future__ import annotations

import pytest

from fedrelay.routes.base import PlanningContext, sample, sampled_count
from fedrelay.routes.chains import Chains
from fedrelay.routes.ring import Ring
from fedrelay.routes.singletons import Singletons


@pytest.mark.parametrize(
    ("population", "fraction", "count"),
    [(100, 0.2, 20), (9, 0.2, 1), (3, 0.2, 1), (7, 0.5, 3), (100, 0.29, 29), (5, 1.0, 5)],
)
def test_the_sampled_count_is_truncated_and_at_least_one(population, fraction, count):
    assert sampled_count(population, fraction) == count
    sampled = sample(PlanningContext(population, fraction, seed=1), 3, population)
    assert len(set(sampled)) == len(sampled) == count
    assert set(sampled) <= set(range(population))


def test_every_round_can_be_planned_at_any_time():
    context = PlanningContext(30, 0.4, 5, tuple((2 * i, 2 * i + 1) for i in range(15)))
    for route in (Singletons(), Ring(), Chains()):
        ahead = route.plan(context, 7)
        [route.plan(context, round) for round in range(1, 7)]
        assert route.plan(context, 7) == ahead


def test_orders_are_drawn_with_the_numbers_of_their_key():
    context = PlanningContext(30, 0.4, 5)
    for keys in ((1, 0, 0), (7, 2, 1), (1, 0, 0)):
        assert context.order_rng(*keys).permutation(9).tolist() == context.rng("order", *keys).permutation(9).tolist()
