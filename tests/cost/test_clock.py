"""Virtual time: devices, trips, rounds and the FLOPs of a model."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedrelay.cost.clock import OPTIONS, Clock, Device, RoundTime, RouteTime, TimeModel, training_flops
from fedrelay.cost.formulas import CostModel, RoundShape
from fedrelay.cost.ledger import SERVER
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import validate
from fedrelay.local.trainer import cross_entropy
from fedrelay.models.zoo import build_model
from fedrelay.routes.plan import RoundPlan, Route

DEVICES = {
    0: Device(flops=100.0, down=80.0, up=40.0, latency=1.0),
    1: Device(flops=50.0, down=20.0, up=10.0, latency=2.0),
    2: Device(flops=200.0, down=160.0, up=160.0, latency=0.0),
}
SAMPLES = {0: 10, 1: 5, 2: 20}
# Visits take 10, 10 and 10 s; 10 bytes are 80 bits.
WATCH = TimeModel(DEVICES.__getitem__, SAMPLES.__getitem__, sample_flops=50.0, epochs=2, payloads={"model": 10})


def plan(*routes: tuple[int, ...], handover="direct") -> RoundPlan:
    return RoundPlan(1, tuple(map(Route, routes)), handover)


def alike(seconds=1.0, samples=1) -> TimeModel:
    """Visits take so many seconds everywhere, transfers none."""
    device = Device(flops=1 / seconds, down=1, up=1, latency=0)
    return TimeModel(lambda client: device, lambda client: samples, sample_flops=1, epochs=1, payloads={})


class TestProfiles:
    def test_uniform(self):
        device = Clock(flops=7, down=5, up=3, latency=1).devices(1, 10)
        assert device(0) == device(9) == Device(7, 5, 3, 1)

    def test_log_normal_has_the_settings_as_medians(self):
        clock = Clock(profile="log-normal", speed_sigma=0.8, link_sigma=0.3)
        device = clock.devices(1, 10**9)
        drawn = [device(client) for client in range(2000)]
        speed = np.log([each.flops / clock.flops for each in drawn])
        link = np.log([each.down / clock.down for each in drawn])
        assert abs(np.median(speed)) < 0.06
        assert np.std(speed) == pytest.approx(0.8, rel=0.05)
        assert np.std(link) == pytest.approx(0.3, rel=0.05)
        assert abs(np.corrcoef(speed, link)[0, 1]) < 0.06
        assert all(each.up / each.down == pytest.approx(clock.up / clock.down) for each in drawn)
        assert {each.latency for each in drawn} == {clock.latency}

    def test_log_normal_without_spread_is_uniform(self):
        device = Clock(profile="log-normal", speed_sigma=0, link_sigma=0).devices(1, 5)
        assert {device(client) for client in range(5)} == {Clock().devices(1, 5)(0)}

    def test_two_tiers(self):
        device = Clock(profile="two-tier", flops=100, down=40, up=20, slow_share=0.3, slow_factor=4).devices(1, 2000)
        drawn = [device(client) for client in range(2000)]
        fast, slow = Device(100, 40, 20, 0.05), Device(25, 10, 5, 0.05)
        assert set(drawn) == {fast, slow}
        assert drawn.count(slow) / 2000 == pytest.approx(0.3, abs=0.03)

    @pytest.mark.parametrize(("share", "flops"), [(0, 1e10), (1, 1e9)])
    def test_all_or_nobody_slow(self, share, flops):
        device = Clock(profile="two-tier", slow_share=share).devices(1, 50)
        assert {device(client).flops for client in range(50)} == {flops}

    def test_fedgsp(self):
        clock = Clock(profile="fedgsp")
        assert clock.devices(1, 5)(3) == Device(567e9, 567e6, 567e6, 0)
        assert clock.sample_flops == 96e6
        assert Clock().sample_flops is None

    @pytest.mark.parametrize("profile", ["log-normal", "two-tier"])
    def test_a_device_depends_on_seed_and_client_alone(self, profile):
        clock = Clock(profile=profile)
        forwards, backwards = clock.devices(3, 10), clock.devices(3, 10**12)
        expected = [forwards(client) for client in range(10)]
        assert [backwards(client) for client in reversed(range(10))] == expected[::-1]
        assert [clock.devices(4, 10)(client) for client in range(10)] != expected

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"profile": "unifrom"}, "clock.profile: must be 'uniform', 'log-normal', 'two-tier', 'csv' or 'fedgsp'"),
            ({"flop": 3}, "clock.flop: unknown key 'flop' (did you mean 'flops'?)"),
            ({"flops": 0}, "clock.flops: must be greater than or equal to 1"),
            ({"up": "nan"}, "clock.up: must be a finite number"),
            ({"latency": True}, "clock.latency: must not be a truth value"),
            ({"speed_sigma": 1}, "clock.speed_sigma: has no effect with profile 'uniform'; it is an option of 'log-"),
            ({"profile": "two-tier", "link_sigma": 1}, "clock.link_sigma: has no effect with profile 'two-tier'"),
            ({"profile": "log-normal", "slow_share": 0.1}, "clock.slow_share: has no effect with profile 'log-normal'"),
            ({"profile": "fedgsp", "flops": 1}, "clock.flops: has no effect with profile 'fedgsp'; it is an option"),
            ({"profile": "csv", "path": "a.csv", "up": 1}, "clock.up: has no effect with profile 'csv'"),
            ({"path": "a.csv"}, "clock.path: has no effect with profile 'uniform'; it is an option of 'csv'"),
            ({"profile": "csv"}, "clock.path: is required with profile 'csv'"),
        ],
    )
    def test_what_cannot_be_is_refused(self, options, message):
        with pytest.raises(SpecError) as refused:
            validate(Clock, options, "clock.")
        assert message in str(refused.value)

    def test_every_setting_is_somebodys_and_says_what_it_is(self):
        assert {"profile"}.union(*OPTIONS.values()) == set(Clock.model_fields)
        assert all(field.description for field in Clock.model_fields.values())


class TestFiles:
    def devices(self, tmp_path, text, clients=2):
        path = tmp_path / "devices.csv"
        path.write_text(text)
        return validate(Clock, {"profile": "csv", "path": str(path)}).devices(1, clients)

    def test_any_order_of_rows_and_columns(self, tmp_path):
        text = "up,client, down ,latency,flops\n\n3,1,4,0,1e9\n 30,0,40,.5,2e9 \n9,7,9,9,9\n"
        device = self.devices(tmp_path, text)
        assert [device(client) for client in range(2)] == [Device(2e9, 40, 30, 0.5), Device(1e9, 4, 3, 0)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "lacks the columns client, flops, down, up, latency"),
            ("client,flops,down,up\n0,1,1,1\n", "lacks the columns latency; its first line must name client, flops"),
            ("client,flop,down,up,latency\n", "unknown column 'flop' (did you mean 'flops'?)"),
            ("client,up,down,up,latency,flops\n", "the column 'up' stands there twice"),
            ("{h}0,1,1,1,0\n", "no line for client 1; needed: 0 … 1"),
            ("{h}", "no line for client 0 and 1 more; needed: 0 … 1"),
            ("{h}0,1,1,1,0\n0,1,1,1,0\n", "line 3: client 0 stands there twice"),
            ("{h}0,1,1,1\n", "line 2: 4 values for 5 columns"),
            ("{h}-1,1,1,1,0\n", "line 2: client: must be a whole number from 0, got '-1'"),
            ("{h}" + "9" * 5000 + ",1,1,1,0\n", "line 2: client: must be a whole number from 0"),
            ("{h}0,fast,1,1,0\n", "line 2: flops: must be a number, at least 1, got 'fast'"),
            ("{h}0,1,0,1,0\n", "line 2: down: must be a number, at least 1, got '0'"),
            ("{h}0,1,1,inf,0\n", "line 2: up: must be a number, at least 1, got 'inf'"),
            ("{h}0,1,1,1,-.1\n", "line 2: latency: must be a number, at least 0, got '-.1'"),
            ('{h}"0,1\n', "is no CSV file"),
        ],
    )
    def test_a_file_that_will_not_do(self, tmp_path, text, message):
        with pytest.raises(DataError) as refused:
            self.devices(tmp_path, text.replace("{h}", "client,flops,down,up,latency\n"))
        assert message in str(refused.value)
        assert str(refused.value).startswith(str(tmp_path / "devices.csv"))

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(DataError, match=r"nowhere\.csv: cannot be read \(No such file or directory\)"):
            Clock(profile="csv", path=tmp_path / "nowhere.csv").devices(1, 2)

    def test_a_file_that_is_no_text(self, tmp_path):
        (tmp_path / "devices.csv").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(DataError, match="is no CSV file"):
            Clock(profile="csv", path=tmp_path / "devices.csv").devices(1, 2)


class TestTrips:
    def test_visits_and_transfers_by_hand(self):
        assert [WATCH.hop_time(client) for client in range(3)] == [10, 10, 10]
        assert WATCH.transfer_time(SERVER, 0) == 80 / 80 + 1
        assert WATCH.transfer_time(0, SERVER) == 80 / 40 + 1
        assert WATCH.transfer_time(0, 1) == 80 / 20 + 1 + 2  # the receiver's link is the slower one
        assert WATCH.transfer_time(1, 2) == 80 / 10 + 2 + 0  # the sender's is

    def test_all_that_travels_counts_and_shares_one_latency(self):
        loaded = TimeModel(WATCH.device, WATCH.samples, 50.0, 2, {"model": 10, "control": 10})
        assert loaded.transfer_time(SERVER, 0) == 160 / 80 + 1

    def test_a_direct_trip(self):
        trip = WATCH.route_time((0, 1, 2))
        assert trip == RouteTime(training=30, travelling=2 + 7 + 10 + 0.5, hops=3, samples=35)
        assert trip.seconds == 49.5

    def test_a_trip_through_the_server(self):
        trip = WATCH.route_time((0, 1, 2), "server")
        assert trip.travelling == 2 + (3 + 6) + (10 + 0.5) + 0.5

    def test_a_trip_that_goes_nowhere(self):
        assert WATCH.route_time((2,), "none") == RouteTime(training=10, hops=1, samples=20)
        assert WATCH.route_time(()) == RouteTime()

    @given(st.lists(st.integers(0, 2), min_size=1, max_size=6))
    @settings(max_examples=40)
    def test_a_direct_hand_over_is_never_slower_than_a_relay(self, clients):
        direct, relayed = WATCH.route_time(clients), WATCH.route_time(clients, "server")
        assert direct.travelling <= relayed.travelling + 1e-9
        assert direct.training == relayed.training


class TestRounds:
    def test_routes_run_side_by_side(self):
        found = WATCH.round_time(plan((0, 1), (2,)))
        first, second = WATCH.route_time((0, 1)), WATCH.route_time((2,))
        assert found.routes == (first, second)
        assert found.seconds == first.seconds == 20 + 2 + 7 + 10
        assert found.busy == first.seconds + second.seconds == 39 + 11
        assert found.idle == 39 - 11
        assert (found.longest_hops, found.longest_samples) == (2, 20)

    def test_parallel_training_waits_for_the_slowest(self):
        found = WATCH.round_time(plan((0,), (1,), (2,)))
        assert [route.seconds for route in found.routes] == [15, 26, 11]
        assert found.seconds == 26
        assert found.idle == 11 + 15

    def test_a_round_without_routes(self):
        nothing = WATCH.round_time(plan())
        assert nothing == RoundTime(())
        assert (nothing.seconds, nothing.busy, nothing.idle) == (0, 0, 0)
        assert (nothing.longest_hops, nothing.longest_samples) == (0, 0)

    def test_pooled_data(self):
        assert WATCH.round_time(plan((0,), handover="none")).seconds == 10

    def test_a_client_trains_one_model_at_a_time(self):
        found = alike(5.0).round_time(plan((0,), (0,), (0, 1)))
        assert [route.waiting for route in found.routes] == [0, 5, 10]
        assert [route.seconds for route in found.routes] == [5, 10, 20]
        assert (found.busy, found.idle) == (20, 40)

    def test_a_relay_through_the_server_delays_the_next_visit(self):
        # Ways of 1 s to and from the net; client 1 is at work from 1 to 6 s when the other route comes at 5.5 s.
        samples = {0: 25, 1: 50}
        watch = TimeModel(lambda client: Device(10, 1, 1, 1.0), samples.__getitem__, 1, 1, {})
        found = watch.round_time(plan((0, 1), (1,), handover="server"))
        assert [route.waiting for route in found.routes] == [0.5, 0]
        assert [route.seconds for route in found.routes] == [4 + 7.5 + 0.5, 2 + 5]

    def test_rotations_of_equal_clients_never_wait(self):
        rotations = [tuple((start + hop) % 6 for hop in range(6)) for start in range(6)]
        found = alike().round_time(plan(*rotations))
        assert [route.seconds for route in found.routes] == [6] * 6
        assert found.idle == 0

    def test_rotations_are_as_slow_as_their_slowest_client(self):
        # Each of 4 routes needs the slow client for 10 s: 40 s, and the last one then goes through the other three.
        watch = TimeModel(lambda c: Device(0.1 if c == 0 else 1, 1, 1, 0), lambda c: 1, 1, 1, {})
        found = watch.round_time(plan(*[tuple((start + hop) % 4 for hop in range(4)) for start in range(4)]))
        assert {route.training for route in found.routes} == {13}
        assert found.seconds >= 40

    @given(
        st.lists(st.lists(st.integers(0, 2), max_size=4).map(tuple), max_size=5),
        st.sampled_from(["direct", "server", "none"]),
    )
    @settings(max_examples=60)
    def test_busy_and_idle_make_up_the_round(self, routes, handover):
        found = WATCH.round_time(plan(*routes, handover=handover))
        assert found.busy + found.idle == pytest.approx(len(routes) * found.seconds)
        assert all(route.waiting >= 0 for route in found.routes)
        alone = [WATCH.route_time(route, handover) for route in routes]
        assert all(
            route.seconds >= trip.seconds - 1e-9 and (route.hops, route.samples) == (trip.hops, trip.samples)
            for route, trip in zip(found.routes, alone, strict=True)
        )
        clients = [client for route in routes for client in route]
        if len(set(clients)) == len(clients):
            assert list(found.routes) == alone

    @given(st.integers(1, 1000))
    @settings(max_examples=20)
    def test_twice_the_work_on_devices_twice_as_fast(self, samples):
        slow, fast = alike(2.0, samples), alike(1.0, 2 * samples)
        routes = plan((0, 1, 2), (1, 3), (4,))
        assert slow.round_time(routes).seconds == pytest.approx(fast.round_time(routes).seconds)

    def test_training_time_is_that_of_fedgsps_cost_model(self):
        clock = Clock(profile="fedgsp")
        watch = TimeModel(clock.devices(1, 20), lambda client: 226, clock.sample_flops, 1, {"model": 25_200_000})
        found = watch.round_time(plan((0, 1, 2, 3), (4, 5, 6), handover="server"))
        model = CostModel(merge_flops=0)
        assert found.longest_samples == 904
        assert found.routes[0].training == pytest.approx(model.computing_seconds([RoundShape(2, 904)]))
        assert found.routes[0].travelling == pytest.approx(4 * 2 * 8 * 25.2 / 567)


class TestFlops:
    def count(self, module, shape, classes=10, samples=3, tokens=False):
        x = torch.zeros(samples, *shape, dtype=torch.long if tokens else torch.float32)
        return training_flops(module, x, torch.zeros(samples, dtype=torch.long), cross_entropy)

    def test_a_linear_layer(self):
        # Forward 2·4·3; backward the gradient of the weights alone, since nobody asks for that of the inputs.
        assert self.count(nn.Linear(4, 3), (4,)) == 2 * 4 * 3 * 2

    def test_two_layers(self):
        assert self.count(build_model("mlp", (64,), 10), (64,)) == 2 * (2 * 64 * 64 + 3 * 64 * 10)

    def test_a_convolution(self):
        conv = nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 10))
        assert self.count(conv, (1, 8, 8)) == 2 * (2 * 8 * 9 * 36 + 3 * 8 * 36 * 10)

    def test_fedgsps_model_is_near_its_96_million(self):
        assert self.count(build_model("leaf-cnn", (1, 28, 28), 62), (1, 28, 28)) == pytest.approx(96e6, rel=0.07)

    def test_recurrent_layers_count(self):
        steps, cells = 7, 2 * (400 * 8 + 400 * 100)
        deeper = 2 * (400 * 100 + 400 * 100)
        found = self.count(build_model("char-lstm", (7,), 80), (7,), tokens=True)
        assert found == 3 * (steps * (cells + deeper) + 2 * 100 * 80)

    def test_per_sample_whatever_the_batch(self):
        module = build_model("cnn-s", (1, 12, 12), 10)
        assert len({self.count(module, (1, 12, 12), samples=samples) for samples in (1, 2, 9)}) == 1

    def test_the_module_and_the_random_stream_stay_as_they_were(self):
        module = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 3)).eval()
        before = {name: value.clone() for name, value in module.state_dict().items()}
        stream = torch.get_rng_state()
        assert self.count(module, (4,), samples=1) > 0
        assert torch.equal(torch.get_rng_state(), stream)
        assert not module.training
        assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
        assert all(parameter.grad is None for parameter in module.parameters())

    def test_it_is_a_training_step_that_counts(self):
        class Teacher(nn.Linear):
            def forward(self, x):
                return super().forward(super().forward(x) if self.training else x)

        assert self.count(Teacher(3, 3).eval(), (3,)) == 2 * 9 * 5

    def test_double_precision_and_no_gradients_around(self):
        with torch.no_grad():
            assert self.count(nn.Linear(4, 3).double(), (4,)) == 48


def test_a_module_that_cannot_be_trained_is_one_line():
    class Broken(nn.Linear):
        def forward(self, x):
            if self.training:
                raise ValueError("no such luck")
            return super().forward(x)

    with pytest.raises(SpecError, match=r"^model: cannot be trained: ValueError: no such luck$"):
        training_flops(Broken(4, 3), torch.zeros(2, 4), torch.zeros(2, dtype=torch.long), cross_entropy)
