"""The model behind docs/quadratic-model.md does what its page says."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture(scope="module")
def model(load_benchmark):
    return load_benchmark("quadratic_model")


def test_a_hop_is_gradient_descent(model):
    population, start, rate = model.Population.drawn(1), np.full(30, 0.5), 0.07
    expected = start
    for _ in range(model.STEPS):
        expected = expected - rate * population.curvatures[4] * (expected - population.centres[4])
    assert population.hop(start, 4, rate) == pytest.approx(expected)


def test_the_gradients_of_all_clients_are_zero_at_the_solution(model):
    population = model.Population.drawn(2)
    gradients = population.curvatures * (population.solution - population.centres)
    assert gradients.sum(axis=0) == pytest.approx(0.0, abs=1e-12)
    assert population.excess(population.solution) == 0
    assert population.excess(population.solution + 0.1) > 0


def test_clients_may_be_alike(model):
    population = model.Population.drawn(3, skew=0.0)
    assert np.ptp(population.centres, axis=0) == pytest.approx(0.0)
    assert np.ptp(population.curvatures, axis=0) == pytest.approx(0.0)


def test_every_round_has_as_many_hops(model):
    population = model.Population.drawn(1)
    for recipe in model.ADDED:
        rounds = list(recipe.rounds(population, np.random.default_rng(1), 5))
        hops = [[client for route in routes for client in route] for routes in rounds]
        assert {len(each) for each in hops} == {model.GROUP * model.GROUPS_A_ROUND}
        if recipe.passes:
            assert sorted(client for each in hops for client in each) == list(range(model.CLIENTS))
        if recipe.balanced:
            classes = [sorted(population.labels[route]) for routes in rounds for route in routes]
            assert all(each == list(range(model.CLASSES)) for each in classes)


def test_noise_grows_with_the_square_of_the_rate_and_with_its_fourth_power_in_balanced_groups(model):
    balanced = model.ADDED[4]
    for recipe, power in ((model.FEDAVG, 2), (model.FEDSEQ, 2), (balanced, 4)):
        small, large = (model.displacement(recipe, rate, seeds=10) for rate in (0.0005, 0.001))
        assert np.log2(large / small) == pytest.approx(power, abs=0.1), recipe.name
    assert model.displacement(balanced, 0.01, 10) < model.displacement(model.FEDSEQ, 0.01, 10) / 100


def test_relay_is_nearer_to_the_solution_than_fedseq_and_fedavg(model):
    population, recipes = model.Population.drawn(1), (model.RELAY, model.FEDSEQ, model.FEDAVG)
    ends = [recipe.curve(population, 0.01, 1, 60)[-1] for recipe in recipes]
    assert ends[0] < min(ends[1:]) / 10
