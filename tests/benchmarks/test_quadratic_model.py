"""The model behind docs/quadratic-model.md does what its page says."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from quadratic_model import (
    ADDED,
    CLASSES,
    CLIENTS,
    FEDAVG,
    FEDSEQ,
    GROUP,
    GROUPS_A_ROUND,
    RELAY,
    STEPS,
    Population,
    displacement,
)


def test_a_hop_is_gradient_descent():
    population, model, rate = Population.drawn(1), np.full(30, 0.5), 0.07
    expected = model
    for _ in range(STEPS):
        expected = expected - rate * population.curvatures[4] * (expected - population.centres[4])
    assert population.hop(model, 4, rate) == pytest.approx(expected)


def test_the_gradients_of_all_clients_are_zero_at_the_solution():
    population = Population.drawn(2)
    gradients = population.curvatures * (population.solution - population.centres)
    assert gradients.sum(axis=0) == pytest.approx(0.0, abs=1e-12)
    assert population.excess(population.solution) == 0
    assert population.excess(population.solution + 0.1) > 0


def test_clients_may_be_alike():
    population = Population.drawn(3, skew=0.0)
    assert np.ptp(population.centres, axis=0) == pytest.approx(0.0)
    assert np.ptp(population.curvatures, axis=0) == pytest.approx(0.0)


@pytest.mark.parametrize("recipe", [*ADDED], ids=lambda recipe: recipe.name)
def test_every_round_has_as_many_hops(recipe):
    population = Population.drawn(1)
    rounds = list(recipe.rounds(population, np.random.default_rng(1), 5))
    hops = [[client for route in routes for client in route] for routes in rounds]
    assert {len(each) for each in hops} == {GROUP * GROUPS_A_ROUND}
    if recipe.passes:
        assert sorted(client for each in hops for client in each) == list(range(CLIENTS))
    if recipe.balanced:
        assert all(sorted(population.labels[route]) == list(range(CLASSES)) for routes in rounds for route in routes)


def test_noise_grows_with_the_square_of_the_rate_and_with_its_fourth_power_in_balanced_groups():
    balanced = ADDED[4]
    for recipe, power in ((FEDAVG, 2), (FEDSEQ, 2), (balanced, 4)):
        small, large = (displacement(recipe, rate, seeds=10) for rate in (0.0005, 0.001))
        assert np.log2(large / small) == pytest.approx(power, abs=0.1), recipe.name
    assert displacement(balanced, 0.01, 10) < displacement(FEDSEQ, 0.01, 10) / 100


def test_relay_is_nearer_to_the_solution_than_fedseq_and_fedavg():
    ends = [recipe.curve(Population.drawn(1), 0.01, 1, 60)[-1] for recipe in (RELAY, FEDSEQ, FEDAVG)]
    assert ends[0] < min(ends[1:]) / 10
