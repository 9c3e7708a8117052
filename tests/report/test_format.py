from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.experiment.spec import TrainSettings
from fedrelay.report.format import (
    count,
    duration,
    factor,
    moment,
    percent,
    plural,
    setting,
    shortened,
    size,
    spread,
    step_size,
    whole,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (153920, "153.9 kB"), (25_396_800, "25.4 MB"), (999_960, "1.0 MB")],
)
def test_sizes_have_units(number, text):
    assert size(number) == text


@given(st.integers(0, 10**18))
def test_a_size_is_never_long(number):
    value, unit = size(number).split(" ")
    assert 0 <= float(value) <= 1000
    assert unit in ("B", "kB", "MB", "GB", "TB", "PB")


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (1.94, "1.9 s"), (59.97, "1:00"), (200, "3:20"), (3725, "1:02:05")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text


def test_numbers_that_are_not_there():
    unknown = spread({"mean": None, "std": None}, 3)
    assert [percent(None), percent(math.nan), count(None), size(None), duration(math.inf), unknown] == ["–"] * 6


def test_shares_are_percent():
    assert percent(0.9614) == "96.1 %"
    assert percent(0.2, 0) == "20 %"
    assert spread({"mean": 0.9614, "std": 0.004}, 3) == "96.1 ± 0.4"
    assert spread({"mean": 0.9614, "std": 0.0}, 1) == "96.1"


def test_counts():
    assert count(1200) == "1,200"
    assert count(46.5) == "46.5"
    assert whole(1196.7) == "1,197"
    assert plural(1, "group") == "1 group"
    assert plural(2, "group") == "2 groups"


def test_factors_are_never_zero():
    assert [*map(factor, (120.4, 10, 1.94, 0.5, 0.0324))] == ["120×", "10×", "1.9×", "0.5×", "0.03×"]


def test_long_lists_keep_both_ends():
    assert shortened([1, 2, 3], 3, ", ") == "1, 2, 3"
    assert shortened(range(10), 6, " → ") == "0 → 1 → 2 → 3 → … → 8 → 9"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.05, "0.05"),
        ("by-size", "by-size"),
        (True, "true"),
        ([{"what": "nan", "clients": [3], "last": None}], "[{what: nan, clients: [3]}]"),
        (["a" * 90, "b"], f"[{'a' * 90}, b]"),
    ],
)
def test_settings_are_written_as_in_specs(value, text):
    assert setting(value) == text


def test_short_times_are_in_milliseconds():
    assert [moment(seconds) for seconds in (None, 0, 0.00291, 0.25, 1.0, 90)] == [
        "–", "0.0 s", "2.91 ms", "250 ms", "1.0 s", "1:30",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("train", "text"),
    [
        ({}, "0.05"),
        ({"schedule": {"name": "step", "factor": 0.998}}, "0.05 × 0.998 after every round"),
        ({"lr": 0.1, "schedule": {"name": "step", "factor": 0.5, "every": 10}}, "0.1 × 0.5 after every 10 rounds"),
        ({"schedule": {"name": "cosine", "floor": 0.1}}, "0.05, cosine to × 0.1"),
        ({"schedule": {"name": "warmup", "rounds": 3}}, "0.05, 3 rounds of warm-up"),
        ({"schedule": {"name": "warmup", "rounds": 3, "then": "cosine"}}, "0.05, 3 rounds of warm-up, then cosine"),
        ({"chain_schedule": {"name": "linear", "end": 0.2}}, "0.05, along chains linear to × 0.2"),
        ({"schedule": "cosine", "clip": 1}, "0.05, cosine, gradients clipped at 1"),
        ({"clip": 0}, "0.05"),
    ],
)
def test_a_learning_rate_has_its_schedules_and_its_clipping(train, text):
    assert step_size(TrainSettings(**train)) == text
