from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.grouping.group_count_growth import (
    alpha_for_full_parallel,
    group_count_in_round,
    mean_parallelism,
    scaled_alpha,
    scaled_beta,
)


@pytest.mark.parametrize(
    ("growth", "alpha", "beta", "expected"),
    [
        ("constant", 3.0, 7, {1: 7, 500: 7}),
        ("linear", 0.5, 3, {1: 3, 2: 3, 3: 6, 4: 6, 5: 9, 6: 9}),
        ("linear", 0.29, 1, {101: 30}),
        ("log", 2.0, 10, {1: 10, 2: 20, 3: 30, 10: 50, 500: 130}),
        ("exp", 0.1, 2, {1: 2, 8: 2, 9: 4, 20: 12, 30: 30}),
    ],
)
def test_golden_numbers(growth, alpha, beta, expected):
    found = {round: group_count_in_round(round, 10**6, growth=growth, alpha=alpha, beta=beta) for round in expected}
    assert found == expected


def test_alpha_for_full_parallel():
    alpha = alpha_for_full_parallel(500, 10_000, beta=5)
    assert alpha == pytest.approx(4.6067e-4, rel=1e-4)
    growing = {"growth": "exp", "alpha": alpha, "beta": 5}
    assert mean_parallelism(10_000, 500, **growing) == pytest.approx(105.09, abs=0.005)
    assert group_count_in_round(1, 500, **growing) == 5
    assert group_count_in_round(10_000, 500, **growing) == 495


def test_mean_parallelism_of_forty_thousand_clients():
    alpha = alpha_for_full_parallel(40_000, 1_500, beta=50)
    assert mean_parallelism(1_500, 40_000, growth="exp", alpha=alpha, beta=50) == pytest.approx(5961, abs=1)


@pytest.mark.parametrize(("clients", "rounds", "beta"), [(10, 1, 5), (10, 100, 10), (10, 100, 50)])
def test_nothing_to_grow(clients, rounds, beta):
    assert alpha_for_full_parallel(clients, rounds, beta=beta) == 0


@given(
    st.sampled_from(["constant", "linear", "log", "exp"]),
    st.floats(0, 50),
    st.integers(1, 30),
    st.integers(1, 1000),
    st.integers(1, 10**6),
)
def test_growth_never_shrinks_nor_exceeds_the_clients(growth, alpha, beta, clients, round):
    now, then = (group_count_in_round(t, clients, growth=growth, alpha=alpha, beta=beta) for t in (round, round + 1))
    assert min(beta, clients) <= now <= then <= clients


@pytest.mark.parametrize(("clients", "beta"), [(368, 10), (1000, 27), (100, 3), (60, 2), (20, 1), (1, 1)])
def test_the_first_round_scales_with_the_clients(clients, beta):
    assert scaled_beta(clients) == beta


@pytest.mark.parametrize(
    ("clients", "rounds", "growth", "beta", "alpha"),
    [
        (368, 500, "log", 10, 2.0),  # the paper's own
        (100, 60, "log", 3, 2.0),
        (40, 100, "log", 8, 1.5 / 4.382027),  # ln 80
        (40, 100, "linear", 5, 3 / 79),
        (40, 100, "exp", 5, 4 ** (1 / 79) - 1),
        (10, 100, "log", 5, 0.0),  # two clients a group from the start
        (100, 1, "log", 3, 2.0),
    ],
)
def test_the_growth_scales_with_clients_and_rounds(clients, rounds, growth, beta, alpha):
    assert scaled_alpha(clients, rounds, growth=growth, beta=beta) == pytest.approx(alpha, rel=1e-6)


@given(st.sampled_from(["linear", "log", "exp"]), st.integers(4, 1000), st.integers(2, 1000))
def test_for_four_fifths_of_the_rounds_chains_have_two_clients(growth, clients, rounds):
    beta = scaled_beta(clients)
    alpha = scaled_alpha(clients, rounds, growth=growth, beta=beta)
    groups = group_count_in_round(max(1, int(0.8 * rounds)), clients, growth=growth, alpha=alpha, beta=beta)
    assert clients // groups >= 2
