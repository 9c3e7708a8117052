"""The arithmetic of the page on drift and forgetting, and what a tap sees of a real run."""

from __future__ import annotations

from math import sqrt

import pytest
import torch

from fedrelay.runtime.round_loop import run_prepared


@pytest.fixture
def benchmark(load_benchmark):
    return load_benchmark("drift_and_forgetting")


@pytest.mark.parametrize(
    ("changes", "drift"),
    [
        ([[1.0, 0.0], [5.0, 0.0]], 0.0),
        ([[1.0, 0.0], [0.0, 2.0]], 1.0),
        ([[1.0, 0.0], [-3.0, 0.0]], 2.0),
        ([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], 1 - sqrt(2) / 3),
    ],
)
def test_drift_is_one_minus_the_mean_cosine_of_two_changes(benchmark, changes, drift):
    assert benchmark.drift_of([torch.tensor(each) for each in changes]) == pytest.approx(drift)


def test_thirds_of_a_run(benchmark):
    values = {3: 1.0, 6: 2.0, 9: 3.0, 12: 4.0, 15: 5.0, 18: 6.0}
    assert [benchmark.in_third(values, third) for third in (1, 2, 3)] == [1.5, 3.5, 5.5]
    assert benchmark.in_third({}, 1) is None


@pytest.mark.parametrize(("method", "forgets"), [("FedAvg", False), ("FedSeq, random groups", True)])
def test_a_tap_changes_nothing_and_sees_every_third_round(benchmark, method, forgets):
    clients = benchmark.Clients(
        "x", "digits", {"clients": 60, "alpha": 0.0, "fraction": 0.5, "rounds": 6, "model": "mlp"}
    )
    made = benchmark.Run(clients, method, 0.3, 1).prepared()
    tap = benchmark.RouteTap(made)
    tapped, plain = run_prepared(made, tap=tap), run_prepared(benchmark.Run(clients, method, 0.3, 1).prepared())
    assert tapped.weights_sha256 == plain.weights_sha256
    assert list(tap.drift) == list(tap.accuracy_before_merge) == [3, 6]
    assert list(tap.forgotten) == ([3, 6] if forgets else [])
    assert all(0 <= value <= 2 for value in tap.drift.values())
    if forgets:  # a chain of one class a client
        assert tap.forgotten[3] > 0.2
