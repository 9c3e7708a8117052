"""Orders in which a model visits clients that differ in size or in classes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import validate
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.chains import Chains
from fedrelay.routes.client_order import complementing
from fedrelay.routes.cyclical_transfer import CyclicalTransfer
from fedrelay.routes.ring import Ring

COUNTS = {0: [8, 0], 1: [1, 1], 2: [0, 3], 3: [4, 4]}
"""Together 13 and 8. The shares of client 3 and 1 differ by 5/42, of 0 by 8/21, of 2 by 13/21."""


def context(names=()):
    return PlanningContext(
        4,
        1.0,
        seed=1,
        groups=((0, 1, 2, 3),),
        sample_count=lambda client: sum(COUNTS[client]),
        class_counts=lambda client: np.array(COUNTS[client]),
        client_names=lambda: names,
    )


@pytest.mark.parametrize("kind", [Ring, Chains, CyclicalTransfer])
@pytest.mark.parametrize(
    ("order", "clients"), [("size", (1, 2, 0, 3)), ("best-last", (2, 0, 1, 3)), ("worst-last", (1, 3, 0, 2))]
)
def test_orders_by_size_and_likeness(kind, order, clients):
    for round in (1, 2):
        assert kind(order=order).plan(context(), round).routes[0].clients == clients


@pytest.mark.parametrize("kind", [Ring, Chains, CyclicalTransfer])
def test_a_given_order_lists_names_or_numbers(kind):
    route = kind(order="given", given=("c", 0, "d", "b"))
    assert route.plan(context(names=tuple("abcd")), 1).routes[0].clients == (2, 0, 3, 1)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (("a", "b", "c", "e"), "there is no client 'e'; clients are a, b, c, d"),
        (("a", "b", "c", 4), "there is no client 4"),
        (("a", "b", "a"), "client 'a' is listed twice"),
        (("a", 0), "client 0 is listed twice"),
        (("b", "a"), "must list all 4 clients; missing: c, d"),
    ],
)
def test_a_given_order_must_name_every_client_once(listed, message):
    with pytest.raises(SpecError, match=rf"route\.given: {message}"):
        Ring(order="given", given=listed).plan(context(names=tuple("abcd")), 1)


def test_a_list_and_its_order_need_each_other():
    with pytest.raises(SpecError, match="given: has no effect with order 'size'"):
        validate(Ring, {"order": "size", "given": [0, 1]}, "route.")
    with pytest.raises(SpecError, match="given: is required with order 'given'"):
        validate(Ring, {"order": "given"}, "route.")


def test_each_client_complements_the_classes_before_it():
    # After client 0 (8, 0): 8:3 is the most even with client 2, 12:4 with 3, 9:1 with 1; then 12:7 with 3, 9:4 with 1.
    orders = {seed: complementing(range(4), context().class_counts, np.random.default_rng(seed)) for seed in range(40)}
    assert {order for order in orders.values() if order[0] == 0} == {(0, 2, 3, 1)}
    assert {order[0] for order in orders.values()} == {0, 1, 2, 3}


@given(st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=8), st.integers(0, 99))
def test_complementing_visits_every_client_once(counts, seed):
    order = complementing(range(len(counts)), lambda client: np.array(counts[client]), np.random.default_rng(seed))
    assert sorted(order) == list(range(len(counts)))


def test_one_class_per_client_alternates_between_classes():
    counts = [[5, 0, 0], [5, 0, 0], [0, 5, 0], [0, 5, 0], [0, 0, 5], [0, 0, 5]]
    order = complementing(range(6), lambda client: np.array(counts[client]), np.random.default_rng(3))
    assert {client // 2 for client in order[:3]} == {client // 2 for client in order[3:]} == {0, 1, 2}


def test_only_orders_by_classes_need_class_counts():
    assert [order for order in ("random", "fixed", "size", "complement") if Ring(order=order).needs_class_counts] == [
        "complement"
    ]
