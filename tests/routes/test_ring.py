from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.errors import SpecError
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.ring import Ring
from fedrelay.routes.singletons import Singletons


@given(st.integers(1, 60), st.floats(0.01, 1), st.integers(0, 2**40))
def test_a_ring_is_one_route_over_the_same_sample(clients, fraction, seed):
    context = PlanningContext(clients, fraction, seed)
    (route,) = Ring().plan(context, 3).routes
    assert route.clients == tuple(r.clients[0] for r in Singletons().plan(context, 3).routes)


def test_a_fixed_ring_starts_at_the_given_client():
    context = PlanningContext(5, 1.0, 1)
    assert Ring(order="fixed", start=3).plan(context, 1).routes[0].clients == (3, 4, 0, 1, 2)
    with pytest.raises(SpecError, match=r"route\.start: must be less than the number of clients \(5\)"):
        Ring(order="fixed", start=5).plan(context, 1)
