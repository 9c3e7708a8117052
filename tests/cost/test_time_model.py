"""Virtual time of routes and rounds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cost.closed_forms import FedGspCosts, RoundShape

from fedrelay.cost.devices import ClockSettings, Device
from fedrelay.cost.ledger import SERVER
from fedrelay.cost.time_model import RouteTime, TimeModel, VirtualTime, once
from fedrelay.routes.plan import RoundPlan, Route

DEVICES = {
    0: Device(flops=100.0, down=80.0, up=40.0, latency=1.0),
    1: Device(flops=50.0, down=20.0, up=10.0, latency=2.0),
    2: Device(flops=200.0, down=160.0, up=160.0, latency=0.0),
}
SAMPLES = {0: 10, 1: 5, 2: 20}
# Hops take 10, 10 and 10 s; 10 bytes are 80 bits.
TIMES = TimeModel(
    DEVICES.__getitem__, SAMPLES.__getitem__, sample_flops=50.0, passes=lambda client: 2, payloads={"model": 10}
)


def plan(*routes: tuple[int, ...], handover="direct") -> RoundPlan:
    return RoundPlan(1, tuple(map(Route, routes)), handover)


def alike(seconds=1.0, samples=1) -> TimeModel:
    """Hops take the same number of seconds everywhere, transfers none."""
    device = Device(flops=1 / seconds, down=1, up=1, latency=0)
    return TimeModel(lambda client: device, lambda client: samples, sample_flops=1, passes=once, payloads={})


def alone(clients, handover="direct") -> RouteTime:
    [found] = TIMES.route_times(plan(tuple(clients), handover=handover))
    return found


class TestRoutes:
    def test_hops_and_transfers_by_hand(self):
        assert [TIMES.hop_time(client) for client in range(3)] == [10, 10, 10]
        assert TIMES.transfer_time(SERVER, 0) == 80 / 80 + 1
        assert TIMES.transfer_time(0, SERVER) == 80 / 40 + 1
        assert TIMES.transfer_time(0, 1) == 80 / 20 + 1 + 2  # the receiver's link is the slower one
        assert TIMES.transfer_time(1, 2) == 80 / 10 + 2 + 0  # the sender's is

    def test_all_that_travels_counts_and_shares_one_latency(self):
        loaded = TimeModel(TIMES.device, TIMES.samples, 50.0, TIMES.passes, {"model": 10, "control": 10})
        assert loaded.transfer_time(SERVER, 0) == 160 / 80 + 1

    def test_a_direct_route(self):
        found = alone((0, 1, 2))
        assert found == RouteTime(training=30, travelling=2 + 7 + 10 + 0.5)
        assert found.seconds == 49.5

    def test_a_route_through_the_server(self):
        found = alone((0, 1, 2), "server")
        assert found.travelling == 2 + (3 + 6) + (10 + 0.5) + 0.5

    def test_a_route_without_transfers(self):
        assert alone((2,), "none") == RouteTime(training=10)
        assert alone(()) == RouteTime()

    @given(st.lists(st.integers(0, 2), min_size=1, max_size=6))
    @settings(max_examples=40)
    def test_a_direct_hand_over_is_never_slower_than_one_through_the_server(self, clients):
        direct, relayed = alone(clients), alone(clients, "server")
        assert direct.travelling <= relayed.travelling + 1e-9
        assert direct.training == relayed.training


def busy(times: TimeModel, plan: RoundPlan) -> float:
    """The sum over routes of the seconds in which their model is trained or transferred."""
    return sum(route.training + route.travelling for route in times.route_times(plan))


class TestRounds:
    def test_routes_run_side_by_side(self):
        both = plan((0, 1), (2,))
        first, second = alone((0, 1)), alone((2,))
        assert TIMES.route_times(both) == (first, second)
        assert TIMES.round_time(both).virtual_seconds == first.seconds == 20 + 2 + 7 + 10
        assert busy(TIMES, both) == first.seconds + second.seconds == 39 + 11
        assert TIMES.round_time(both).idle_seconds == 39 - 11

    def test_parallel_training_waits_for_the_slowest(self):
        parallel = plan((0,), (1,), (2,))
        assert [route.seconds for route in TIMES.route_times(parallel)] == [15, 26, 11]
        found = TIMES.round_time(parallel)
        assert found.virtual_seconds == 26
        assert found.idle_seconds == 11 + 15

    def test_a_round_without_routes(self):
        assert TIMES.route_times(plan()) == ()
        assert TIMES.round_time(plan()) == VirtualTime(0, 0, 0, 0)

    def test_pooled_data(self):
        assert TIMES.round_time(plan((0,), handover="none")).virtual_seconds == 10

    def test_a_client_trains_one_model_at_a_time(self):
        times, crowded = alike(5.0), plan((0,), (0,), (0, 1))
        assert [route.waiting for route in times.route_times(crowded)] == [0, 5, 10]
        assert [route.seconds for route in times.route_times(crowded)] == [5, 10, 20]
        assert (busy(times, crowded), times.round_time(crowded).idle_seconds) == (20, 40)

    def test_a_handover_through_the_server_delays_the_next_hop(self):
        # Ways of 1 s to and from the net; client 1 is at work from 1 to 6 s when the other route comes at 5.5 s.
        samples = {0: 25, 1: 50}
        watch = TimeModel(lambda client: Device(10, 1, 1, 1.0), samples.__getitem__, 1, once, {})
        found = watch.route_times(plan((0, 1), (1,), handover="server"))
        assert [route.waiting for route in found] == [0.5, 0]
        assert [route.seconds for route in found] == [4 + 7.5 + 0.5, 2 + 5]

    def test_rotations_of_equal_clients_never_wait(self):
        rotations = plan(*[tuple((start + hop) % 6 for hop in range(6)) for start in range(6)])
        assert [route.seconds for route in alike().route_times(rotations)] == [6] * 6
        assert alike().round_time(rotations).idle_seconds == 0

    def test_rotations_are_as_slow_as_their_slowest_client(self):
        # Each of 4 routes needs the slow client for 10 s: 40 s, and the last one then goes through the other three.
        watch = TimeModel(lambda c: Device(0.1 if c == 0 else 1, 1, 1, 0), lambda c: 1, 1, once, {})
        rotations = plan(*[tuple((start + hop) % 4 for hop in range(4)) for start in range(4)])
        assert {route.training for route in watch.route_times(rotations)} == {13}
        assert watch.round_time(rotations).virtual_seconds >= 40

    @given(
        st.lists(st.lists(st.integers(0, 2), max_size=4).map(tuple), max_size=5),
        st.sampled_from(["direct", "server", "none"]),
    )
    @settings(max_examples=60)
    def test_busy_and_idle_make_up_the_round(self, routes, handover):
        together = plan(*routes, handover=handover)
        times, found = TIMES.route_times(together), TIMES.round_time(together)
        assert busy(TIMES, together) + found.idle_seconds == pytest.approx(len(routes) * found.virtual_seconds)
        assert all(route.waiting >= 0 for route in times)
        apart = [alone(route, handover) for route in routes]
        assert all(route.seconds >= single.seconds - 1e-9 for route, single in zip(times, apart, strict=True))
        clients = [client for route in routes for client in route]
        if len(set(clients)) == len(clients):
            assert list(times) == apart

    @given(st.integers(1, 1000))
    @settings(max_examples=20)
    def test_twice_the_work_on_devices_twice_as_fast(self, samples):
        slow, fast = alike(2.0, samples), alike(1.0, 2 * samples)
        routes = plan((0, 1, 2), (1, 3), (4,))
        assert slow.round_time(routes).virtual_seconds == pytest.approx(fast.round_time(routes).virtual_seconds)

    @given(
        st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), max_size=6),
        st.sampled_from(["direct", "server", "peers", "none"]),
    )
    def test_routes_without_shared_clients_need_no_queue(self, shapes, handover):
        routes = [tuple(5 * number + client for client in clients) for number, clients in enumerate(shapes)]
        times = TimeModel(
            lambda client: DEVICES[client % 3],
            lambda client: 1 + client % 7,
            sample_flops=0.1,
            passes=once,
            payloads={"model": 3},
        )
        apart, together = plan(*routes, handover=handover), plan(*routes, (99,), (99,), handover=handover)
        if handover != "peers":  # where the number of routes matters
            assert times.route_times(apart) == times.route_times(together)[: len(routes)]
            assert times.return_times(apart) == times.return_times(together)[: len(routes)]
        assert all(route.waiting == 0 for route in times.route_times(apart))

    def test_training_time_is_that_of_fedgsps_cost_model(self):
        clock = ClockSettings(profile="fedgsp")
        watch = TimeModel(clock.devices(1, 20), lambda client: 226, clock.sample_flops, once, {"model": 25_200_000})
        longest, _ = watch.route_times(plan((0, 1, 2, 3), (4, 5, 6), handover="server"))
        model = FedGspCosts(merge_flops=0)
        assert longest.training == pytest.approx(model.computing_seconds([RoundShape(2, 904)]))
        assert longest.travelling == pytest.approx(4 * 2 * 8 * 25.2 / 567)
