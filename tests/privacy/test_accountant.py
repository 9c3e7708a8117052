"""ε against its closed form and against another library's accountant."""

from __future__ import annotations

import math
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.privacy.accountant import Accountant

pytest.importorskip("dp_accounting")


def closed_form(noise, delta, visits):
    """Gaussian mechanisms have the Rényi divergence k·α/(2z²); ε is the least over all orders α."""
    orders = [1 + step / 1000 for step in range(1, 200_000, 7)]
    return min(
        visits * order / (2 * noise**2) + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        for order in orders
    )


@pytest.mark.parametrize(("noise", "visits"), [(1.0, 1), (1.0, 10), (4.0, 100), (0.7, 3)])
def test_the_closed_form(noise, visits):
    exact = closed_form(noise, 1e-5, visits)
    found = Accountant(noise, 1e-5).epsilon(visits)
    assert exact <= found * (1 + 1e-9)  # a coarser grid of orders is never below
    assert found == pytest.approx(exact, rel=5e-3)


@pytest.mark.parametrize(("noise", "visits"), [(1.0, 1), (2.0, 40), (8.0, 500)])
def test_another_librarys_accountant(noise, visits):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rdp = pytest.importorskip("opacus.accountants").RDPAccountant()
        for _ in range(visits):
            rdp.step(noise_multiplier=noise, sample_rate=1.0)
        theirs = rdp.get_epsilon(1e-5)
    assert Accountant(noise, 1e-5).epsilon(visits) == pytest.approx(theirs, rel=5e-3)


def test_nothing_spent_and_nothing_guarded():
    assert Accountant(1.0, 1e-5).epsilon(0) == 0
    assert Accountant(0.0, 1e-5).epsilon(1) == math.inf


@settings(max_examples=20)
@given(st.floats(0.5, 20), st.floats(0.01, 50))
def test_a_budget_allows_all_hops_within_it_and_not_one_more(noise, budget):
    accountant = Accountant(noise, 1e-5)
    most = accountant.max_hops(budget)
    assert most == 0 or accountant.epsilon(most) <= budget
    assert accountant.epsilon(most + 1) > budget


def test_what_clients_have_spent():
    accountant = Accountant(2.0, 1e-6)
    spent = accountant.spent({0: 3, 1: 1, 7: 99}, clients=[0, 1, 2])
    assert spent == {
        "delta": 1e-6,
        "epsilon_max": accountant.epsilon(3),
        "epsilon_median": accountant.epsilon(1),
        "hops_max": 3,
    }


def test_a_missing_package_is_named(monkeypatch):
    import sys

    from fedrelay.errors import SpecError

    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(SpecError, match=r"pip install 'fedrelay\[dp\]'"):
        Accountant(1.2345, 1e-5).epsilon(17)
