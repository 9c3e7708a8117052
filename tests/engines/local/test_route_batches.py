from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedrelay.engines.local.route_batches import batch_routes
from fedrelay.routes.plan import Hop, RoundPlan, Route


@given(st.lists(st.integers(1, 6), max_size=40), st.integers(1, 12))
def test_every_hop_is_done_once_and_in_its_order(lengths, lanes):
    plan = RoundPlan(2, tuple(Route(tuple(range(10 * i, 10 * i + n))) for i, n in enumerate(lengths)))
    found = batch_routes(plan, lambda client: client % 7, lanes)
    hops = [hop for route_batch in found for wave in route_batch.waves() for hop in wave]
    assert sorted(hops, key=lambda hop: (hop.route, hop.index)) == [
        Hop(2, number, index, client, route_length=len(route.clients))
        for number, route in enumerate(plan.routes)
        for index, client in enumerate(route.clients)
    ]
    for route_batch in found:
        for index, wave in enumerate(route_batch.waves()):
            assert {hop.index for hop in wave} == {index}
    assert all(1 <= len(route_batch.routes) <= lanes for route_batch in found)
    assert len(found) == -(-len(lengths) // lanes)
    sizes = [len(route_batch.routes) for route_batch in found]
    assert not sizes or max(sizes) - min(sizes) <= 1


def test_alike_routes_travel_together_the_longest_first():
    plan = RoundPlan(1, (Route((0,)), Route((1, 2, 3)), Route((4,)), Route((5, 6, 7))))
    first, second = batch_routes(plan, lambda client: 10 + client, lanes=2)
    assert [number for number, _ in first.routes] == [3, 1]
    assert [number for number, _ in second.routes] == [2, 0]
    assert list(first.waves())[1] == [Hop(1, 3, 1, 6, route_length=3), Hop(1, 1, 1, 2, route_length=3)]
