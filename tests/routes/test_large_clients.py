from __future__ import annotations

import pytest

from fedrelay.errors import SpecError
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.large_clients import LargeClients

SIZES = [5, 40, 10, 45]


def context(fraction=1.0):
    return PlanningContext(4, fraction, seed=1, sample_count=SIZES.__getitem__)


def visited(route, fraction=1.0):
    return sorted(route.clients for route in route.plan(context(fraction), 1).routes)


def test_only_clients_with_enough_samples_train():
    assert visited(LargeClients()) == [(1,), (3,)]  # 25 samples on average
    assert visited(LargeClients(min_samples=10)) == [(1,), (2,), (3,)]
    assert visited(LargeClients(min_samples=45)) == [(3,)]
    assert len(visited(LargeClients(min_samples=5), fraction=0.5)) == 2


def test_without_a_large_client_there_is_one_message():
    with pytest.raises(SpecError, match=r"warmup\.min_samples: no client has 46 samples; the largest has 45"):
        LargeClients(min_samples=46).plan(context(), 1)
