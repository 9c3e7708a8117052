"""The devices of clients."""

from __future__ import annotations

import numpy as np
import pytest

from fedrelay.cost.devices import OPTIONS, ClockSettings, Device
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import validate


class TestProfiles:
    def test_uniform(self):
        device = ClockSettings(flops=7, down=5, up=3, latency=1).devices(1, 10)
        assert device(0) == device(9) == Device(7, 5, 3, 1)

    def test_log_normal_has_the_settings_as_medians(self):
        clock = ClockSettings(profile="log-normal", speed_sigma=0.8, link_sigma=0.3)
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
        device = ClockSettings(profile="log-normal", speed_sigma=0, link_sigma=0).devices(1, 5)
        assert {device(client) for client in range(5)} == {ClockSettings().devices(1, 5)(0)}

    def test_two_tiers(self):
        device = ClockSettings(profile="two-tier", flops=100, down=40, up=20, slow_share=0.3, slow_factor=4).devices(
            1, 2000
        )
        drawn = [device(client) for client in range(2000)]
        fast, slow = Device(100, 40, 20, 0.05), Device(25, 10, 5, 0.05)
        assert set(drawn) == {fast, slow}
        assert drawn.count(slow) / 2000 == pytest.approx(0.3, abs=0.03)

    @pytest.mark.parametrize(("share", "flops"), [(0, 1e10), (1, 1e9)])
    def test_all_or_nobody_slow(self, share, flops):
        device = ClockSettings(profile="two-tier", slow_share=share).devices(1, 50)
        assert {device(client).flops for client in range(50)} == {flops}

    def test_fedgsp(self):
        clock = ClockSettings(profile="fedgsp")
        assert clock.devices(1, 5)(3) == Device(567e9, 567e6, 567e6, 0)
        assert clock.sample_flops == 96e6
        assert ClockSettings().sample_flops is None

    @pytest.mark.parametrize("profile", ["log-normal", "two-tier"])
    def test_a_device_depends_on_seed_and_client_alone(self, profile):
        clock = ClockSettings(profile=profile)
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
            ({"latency": True}, "clock.latency: must not be true or false"),
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
            validate(ClockSettings, options, "clock.")
        assert message in str(refused.value)

    def test_every_setting_is_somebodys_and_says_what_it_is(self):
        assert {"profile"}.union(*OPTIONS.values()) == set(ClockSettings.model_fields)
        assert all(field.description for field in ClockSettings.model_fields.values())


class TestFiles:
    def devices(self, tmp_path, text, clients=2):
        path = tmp_path / "devices.csv"
        path.write_text(text)
        return validate(ClockSettings, {"profile": "csv", "path": str(path)}).devices(1, clients)

    def test_any_order_of_rows_and_columns(self, tmp_path):
        text = "up,client, down ,latency,flops\n\n3,1,4,0,1e9\n 30,0,40,.5,2e9 \n9,7,9,9,9\n"
        device = self.devices(tmp_path, text)
        assert [device(client) for client in range(2)] == [Device(2e9, 40, 30, 0.5), Device(1e9, 4, 3, 0)]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "missing columns: client, flops, down, up, latency"),
            ("client,flops,down,up\n0,1,1,1\n", "missing columns: latency; its first line must name client, flops"),
            ("client,flop,down,up,latency\n", "unknown column 'flop' (did you mean 'flops'?)"),
            ("client,up,down,up,latency,flops\n", "duplicate column 'up'"),
            ("{h}0,1,1,1,0\n", "no line for client 1; needed: 0 … 1"),
            ("{h}", "no line for client 0 and 1 more; needed: 0 … 1"),
            ("{h}0,1,1,1,0\n0,1,1,1,0\n", "line 3: duplicate client 0"),
            ("{h}0,1,1,1\n", "line 2: 4 values for 5 columns"),
            ("{h}-1,1,1,1,0\n", "line 2: client: must be a whole number from 0, got '-1'"),
            ("{h}" + "9" * 5000 + ",1,1,1,0\n", "line 2: client: must be a whole number from 0"),
            ("{h}0,fast,1,1,0\n", "line 2: flops: must be a number, at least 1, got 'fast'"),
            ("{h}0,1,0,1,0\n", "line 2: down: must be a number, at least 1, got '0'"),
            ("{h}0,1,1,inf,0\n", "line 2: up: must be a number, at least 1, got 'inf'"),
            ("{h}0,1,1,1,-.1\n", "line 2: latency: must be a number, at least 0, got '-.1'"),
            ('{h}"0,1\n', "is not a CSV file"),
        ],
    )
    def test_a_file_that_will_not_do(self, tmp_path, text, message):
        with pytest.raises(DataError) as refused:
            self.devices(tmp_path, text.replace("{h}", "client,flops,down,up,latency\n"))
        assert message in str(refused.value)
        assert str(refused.value).startswith(str(tmp_path / "devices.csv"))

    def test_a_file_that_is_not_there(self, tmp_path):
        with pytest.raises(DataError, match=r"nowhere\.csv: cannot be read \(No such file or directory\)"):
            ClockSettings(profile="csv", path=tmp_path / "nowhere.csv").devices(1, 2)

    def test_a_file_that_is_no_text(self, tmp_path):
        (tmp_path / "devices.csv").write_bytes(b"\xff\xfe\x00")
        with pytest.raises(DataError, match="is not a CSV file"):
            ClockSettings(profile="csv", path=tmp_path / "devices.csv").devices(1, 2)
