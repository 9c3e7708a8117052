from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.selection.genetic import (
    GeneticSettings,
    SelectionProblem,
    _crossover,
    _offspring,
    _roulette_wheel,
    evolve,
    search,
    try_all,
)
from fedrelay.selection.subset_objectives import MinMaxScale

WEIGHTS = (0.8, 0.2)


def make_problem(clients=40, clusters=5, count=6, seed=0, weights=WEIGHTS, length=8) -> SelectionProblem:
    rng = np.random.default_rng(seed)
    vectors, sizes = rng.normal(size=(clients, length)), rng.integers(1, 500, clients)
    return SelectionProblem.of(vectors, sizes, rng.integers(clusters, size=clients), count, weights)


def sets(chromosomes):
    return {frozenset(each) for each in chromosomes.tolist()}


@given(
    clients=st.integers(1, 40),
    clusters=st.integers(1, 8),
    count=st.integers(1, 45),
    population=st.integers(2, 15),
    crossover=st.sampled_from([0, 0.1, 1]),
    mutation=st.sampled_from([0, 0.05, 0.5, 1]),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=60)
def test_every_chromosome_ever_keeps_all_constraints(
    keeps, clients, clusters, count, population, crossover, mutation, seed
):
    problem = make_problem(clients, clusters, count, seed)
    genetic = GeneticSettings(population, 6, crossover, mutation)
    generations = list(evolve(problem, genetic, np.random.default_rng(seed)))
    assert len(generations) == 7
    for generation in generations:
        assert len(generation.chromosomes) == population
        assert all(keeps(each, problem.clusters, min(count, clients)) for each in generation.chromosomes)
        assert any(np.array_equal(generation.best, each) for each in generation.chromosomes)
    assert all(before.score <= after.score for before, after in pairwise(generations))


def test_the_score_is_that_of_the_best_on_the_first_scale():
    problem = make_problem()
    generations = list(evolve(problem, GeneticSettings(30, 20), np.random.default_rng(1)))
    first_scale = MinMaxScale.of(problem.objectives.measure(generations[0].chromosomes))
    seen = np.concatenate([generation.chromosomes for generation in generations])
    scores = first_scale.score(problem.objectives.measure(seen), WEIGHTS)
    assert generations[-1].score == pytest.approx(scores.max())
    assert first_scale.score(problem.objectives.measure(generations[-1].best[None]), WEIGHTS) == pytest.approx(
        scores.max()
    )


def test_the_same_numbers_give_the_same_generations():
    first, second, other = (
        list(evolve(make_problem(), GeneticSettings(20, 5), np.random.default_rng(seed))) for seed in (3, 3, 4)
    )
    for one, two in zip(first, second, strict=True):
        np.testing.assert_array_equal(one.chromosomes, two.chromosomes)
        assert one.score == two.score
    assert not np.array_equal(first[0].chromosomes, other[0].chromosomes)


def test_the_search_beats_random_choices():
    gains = []
    for seed in range(8):
        problem, rng = make_problem(clients=60, seed=seed), np.random.default_rng(seed)
        *_, last = evolve(problem, GeneticSettings(), rng)
        drawn = problem.objectives.measure(problem.clusters.draw(2000, problem.count, rng))
        scale = MinMaxScale.of(drawn)
        found = scale.score(problem.objectives.measure(last.best[None]), WEIGHTS)[0]
        gains.append(found - scale.score(drawn, WEIGHTS).mean())
        assert found > np.quantile(scale.score(drawn, WEIGHTS), 0.99)
    assert np.mean(gains) > 0.3


def test_the_search_comes_near_the_best_of_all_choices():
    shares = []
    for seed in range(6):
        problem = make_problem(clients=18, clusters=3, count=4, seed=seed)
        every = try_all(problem)
        scale = MinMaxScale.of(problem.objectives.measure(every.chromosomes))
        *_, last = evolve(problem, GeneticSettings(), np.random.default_rng(seed))
        shares.append(scale.score(problem.objectives.measure(last.best[None]), WEIGHTS)[0] / every.score)
    assert max(shares) <= 1 + 1e-9
    assert min(shares) > 0.9
    assert np.mean(shares) > 0.95


def test_the_best_are_taken_from_both_clusters():
    sizes, labels = np.array([1, 20, 3, 18, 5, 16, 7, 14, 9, 12]), np.arange(10) % 2
    problem = SelectionProblem.of(np.ones((10, 3)), sizes, labels, 4, WEIGHTS)
    every = try_all(problem)
    assert len(every.chromosomes) == 10 * 10  # two of five, twice
    assert sorted(problem.clusters.clients[every.best].tolist()) == [1, 3, 6, 8]


def test_of_all_choices_the_balanced_ones_count(keeps):
    problem = make_problem(clients=10, clusters=3, count=4)
    every = try_all(problem)
    assert all(keeps(each, problem.clusters, 4) for each in every.chromosomes)
    assert len(sets(every.chromosomes)) == len(every.chromosomes)
    drawn = problem.clusters.draw(500, 4, np.random.default_rng(0))
    assert sets(drawn) <= sets(every.chromosomes)
    mended = problem.clusters.repair(np.random.default_rng(0).integers(10, size=(500, 4)), np.random.default_rng(0))
    assert sets(mended) <= sets(every.chromosomes)


def test_only_samples_and_one_cluster_give_the_largest_clients():
    rng = np.random.default_rng(0)
    sizes, labels = rng.permutation(np.arange(1, 21)), np.zeros(20, np.int64)
    problem = SelectionProblem.of(rng.normal(size=(20, 4)), sizes, labels, 4, (0.0, 1.0))
    (only,) = search(problem, GeneticSettings(), rng)
    assert sorted(sizes[problem.clusters.clients[only.best]].tolist()) == [17, 18, 19, 20]
    assert only.score == 1


def test_with_many_clients_it_comes_near_the_largest():
    rng = np.random.default_rng(0)
    sizes = rng.permutation(np.arange(1, 101))
    problem = SelectionProblem.of(rng.normal(size=(100, 4)), sizes, np.zeros(100, np.int64), 5, (0.0, 1.0))
    *_, last = search(problem, GeneticSettings(iterations=200), rng)
    assert problem.objectives.sizes[last.best].sum() > 0.95 * sum(range(96, 101))


def test_few_choices_are_all_looked_at_and_many_are_not():
    assert len(list(search(make_problem(clients=20, count=4), GeneticSettings(), np.random.default_rng(0)))) == 1
    assert len(list(search(make_problem(clients=25, count=4), GeneticSettings(10, 5), np.random.default_rng(0)))) == 6


def test_all_clients_are_one_choice():
    problem = make_problem(clients=7, count=99)
    (only,) = search(problem, GeneticSettings(), np.random.default_rng(0))
    assert sorted(only.best.tolist()) == list(range(7))
    assert only.score == 0


def test_nothing_new_without_crossover_and_mutation():
    generations = list(evolve(make_problem(), GeneticSettings(12, 5, 0, 0), np.random.default_rng(0)))
    assert all(sets(each.chromosomes) <= sets(generations[0].chromosomes) for each in generations)


def test_crossing_at_one_point():
    parents = np.arange(80).reshape(8, 10)
    np.testing.assert_array_equal(_crossover(parents, 0, np.random.default_rng(0)), parents)
    children = _crossover(parents, 1, np.random.default_rng(0))
    for pair in range(0, 8, 2):
        kept = children[pair] == parents[pair]
        cut = int(kept.sum())
        assert 1 <= cut <= 9
        assert kept.tolist() == [True] * cut + [False] * (10 - cut)
        np.testing.assert_array_equal(children[pair, cut:], parents[pair + 1, cut:])
        np.testing.assert_array_equal(children[pair + 1, cut:], parents[pair, cut:])
        np.testing.assert_array_equal(children[pair + 1, :cut], parents[pair + 1, :cut])


def test_a_rate_is_the_probability_and_not_its_opposite():
    parents = np.tile([[0, 1], [2, 3]], (4000, 1))
    crossed = (_crossover(parents, 0.1, np.random.default_rng(0)) != parents).any(axis=1).mean()
    assert crossed == pytest.approx(0.1, abs=0.015)
    problem = make_problem(clients=1000, clusters=1)
    parents = problem.clusters.draw(500, 6, np.random.default_rng(0))
    children = _offspring(
        parents, problem.clusters, GeneticSettings(crossover=0, mutation=0.05), np.random.default_rng(0)
    )
    assert (children != parents).mean() == pytest.approx(0.05, abs=0.012)


def test_a_single_gene_cannot_be_crossed():
    parents = np.array([[1], [2]])
    np.testing.assert_array_equal(_crossover(parents, 1, np.random.default_rng(0)), parents)


def test_the_last_of_an_odd_population_is_carried_over():
    problem = make_problem(clients=1000)
    parents = problem.clusters.draw(7, 6, np.random.default_rng(0))
    children = _offspring(parents, problem.clusters, GeneticSettings(crossover=1, mutation=1), np.random.default_rng(0))
    assert (children == parents).all(axis=1).tolist() == [False] * 6 + [True]


def test_the_wheel_draws_by_fitness():
    drawn = _roulette_wheel(np.repeat([0.0, 1.0, 3.0], 1000), np.random.default_rng(0))
    shares = np.bincount(drawn // 1000, minlength=3) / 3000
    np.testing.assert_allclose(shares, [0, 0.25, 0.75], atol=0.03)
    alike = _roulette_wheel(np.zeros(3000), np.random.default_rng(0))
    np.testing.assert_allclose(np.bincount(alike // 1000) / 3000, 1 / 3, atol=0.03)


def test_thousands_of_clients():
    problem = make_problem(clients=4000, clusters=10, count=10, length=64)
    first, *_, last = search(problem, GeneticSettings(50, 10), np.random.default_rng(0))
    assert last.score > first.score
    assert problem.clusters.balanced(last.chromosomes).all()
