from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.grouping.candidate_pool import CandidatePool
from fedrelay.grouping.distances import DISTANCES
from fedrelay.grouping.greedy import greedy_groups
from fedrelay.grouping.group_filling import GroupSizeBounds, distribute_rest


def literal(vectors, sizes, bounds, rng, distance, vector):
    """Algorithm 3, word for word."""
    remaining, groups, last = list(range(len(vectors))), [], []
    while remaining:
        if not last:
            client = int(rng.choice(remaining))
            u = vectors[client]
        else:
            client = remaining[int(np.argmax(distance(u, vectors[remaining])))]
        remaining.remove(client)
        last.append(client)
        held = sizes[last]
        if len(last) > 1:
            means = {
                "samples": (held[:, None] * vectors[last]).sum(axis=0) / held.sum(),
                "mean": vectors[last].mean(axis=0),
                "halving": (u + vectors[client]) / 2,
            }
            u = means[vector]
        if bounds.complete(len(last), int(held.sum())):
            groups.append(last)
            last = []
    return distribute_rest(groups, last, sizes, bounds)


@given(
    st.sampled_from(list(DISTANCES)),
    st.sampled_from(["samples", "mean", "halving"]),
    st.integers(1, 40),
    st.integers(0, 2**32),
)
def test_it_is_the_papers_algorithm(name, vector, clients, seed):
    rng = np.random.default_rng(seed)
    vectors, sizes = rng.dirichlet(np.full(4, 0.5), clients), rng.integers(1, 100, clients)
    bounds = GroupSizeBounds(5, 200)
    found = greedy_groups(vectors, sizes, bounds, np.random.default_rng(seed), distance=DISTANCES[name], vector=vector)
    assert found == literal(vectors, sizes, bounds, np.random.default_rng(seed), DISTANCES[name], vector)
    assert sorted(client for group in found for client in group) == list(range(clients))


@pytest.mark.parametrize("name", ["euclidean", "cosine", "norm-cosine", "kl", "gini"])
@pytest.mark.parametrize("start", ["random", "uniform"])
def test_every_group_covers_all_classes_once(name, start):
    vectors = np.repeat(np.eye(6), 5, axis=0)
    groups = greedy_groups(
        vectors,
        np.full(30, 10),
        GroupSizeBounds(6, 60),
        np.random.default_rng(1),
        distance=DISTANCES[name],
        start=start,
    )
    assert len(groups) == 5
    assert all(sorted(client // 5 for client in group) == list(range(6)) for group in groups)


def test_among_equals_the_lowest_number_wins():
    vectors = np.repeat(np.eye(3), 4, axis=0)
    groups = greedy_groups(
        vectors,
        np.ones(12, int),
        GroupSizeBounds(3, 99),
        np.random.default_rng(0),
        distance=DISTANCES["kl"],
        start="uniform",
    )
    assert groups == ((0, 4, 8), (1, 5, 9), (2, 6, 10), (3, 7, 11))


def test_the_highest_score_wins_even_if_all_are_negative():
    classes = 20  # KL to uniform exceeds 1, so scores are below 0
    vectors = np.zeros((3, classes))
    vectors[:, 0] = [1.0, 0.99, 0.9]
    vectors[:, 1] = 1 - vectors[:, 0]
    assert (DISTANCES["kl"](vectors[0], vectors) < 0).all()
    assert CandidatePool(vectors, DISTANCES["kl"], 10, np.random.default_rng(0)).best(vectors[0]) == 2


@given(st.sampled_from(list(DISTANCES)), st.integers(1, 300), st.integers(2, 40), st.integers(0, 2**32))
def test_single_precision_changes_no_choice(name, clients, classes, seed):
    rng = np.random.default_rng(seed)
    vectors = rng.dirichlet(np.full(classes, 0.2), clients)
    vectors = np.concatenate([vectors, vectors + rng.normal(0, 1e-9, vectors.shape).clip(0)])  # nearly equal pairs
    candidates = CandidatePool(vectors, DISTANCES[name], len(vectors), rng)
    group = vectors[: min(3, clients)].mean(axis=0)
    assert candidates.best(group) == int(np.argmax(DISTANCES[name](group, vectors)))


@pytest.mark.parametrize("most", [1, 7, 50])
def test_of_many_clients_only_some_are_looked_at_and_none_is_lost(most, make_counts):
    vectors = make_counts(60, 5, 0.3) / 50
    form = {"distance": DISTANCES["kl"], "candidates": most}
    groups, again = (
        greedy_groups(vectors, np.full(60, 50), GroupSizeBounds(6, 999), np.random.default_rng(2), **form)
        for _ in range(2)
    )
    assert groups == again
    assert sorted(client for group in groups for client in group) == list(range(60))
    assert all(len(group) == 6 for group in groups)


def test_candidates_come_and_go():
    candidates = CandidatePool(np.eye(5)[[0, 1, 2, 3, 4] * 4], DISTANCES["gini"], 8, np.random.default_rng(0))
    taken = []
    while len(candidates):
        taken.append(candidates.best(np.eye(5)[0]))
        candidates.take(taken[-1])
        assert len(candidates) == 20 - len(taken)
    assert sorted(taken) == list(range(20))
