from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.selection.cluster_balance import Clusters, _duplicates, _random_unused, cluster_clients

cluster_sizes = st.lists(st.integers(1, 9), min_size=1, max_size=7)
balances = st.sampled_from(["strict", "equation"])


def test_clusters_are_laid_side_by_side_small_ones_first():
    clusters = Clusters.of(np.array([5, 2, 5, 9, 2, 5, 9]))
    assert clusters.sizes.tolist() == [2, 2, 3]
    assert clusters.clients.tolist() == [1, 4, 3, 6, 0, 2, 5]
    assert clusters.starts.tolist() == [0, 2, 4]
    assert clusters.cluster_at.tolist() == [0, 0, 1, 1, 2, 2, 2]
    assert clusters.counts(np.array([[0, 1, 6], [4, 5, 6]])).tolist() == [[2, 0, 1], [0, 0, 3]]


@given(cluster_sizes, balances, st.integers(1, 12), st.integers(0, 10**6))
@settings(max_examples=100)
def test_the_quick_check_is_that_of_all_pairs(keeps, make_clusters, sizes, balance, count, seed):
    clusters = make_clusters(sizes, balance)
    rng, count = np.random.default_rng(seed), min(count, sum(sizes))
    choices = np.stack([rng.choice(sum(sizes), count, replace=False) for _ in range(30)])
    assert clusters.balanced(choices).tolist() == [keeps(choice, clusters, count) for choice in choices]


@given(cluster_sizes, balances, st.integers(1, 60), st.integers(0, 10**6))
@settings(max_examples=60)
def test_what_is_drawn_cluster_by_cluster_keeps_all_constraints(keeps, make_clusters, sizes, balance, count, seed):
    clusters, count = make_clusters(sizes, balance), min(count, sum(sizes))
    drawn = clusters.draw(20, count, np.random.default_rng(seed))
    assert drawn.shape == (20, count)
    assert all(keeps(choice, clusters, count) for choice in drawn)
    # Nobody gets a second turn before everybody had a first.
    counts = clusters.counts(drawn)
    left = counts < clusters.sizes
    assert all(row.max() <= 1 + row[free].min(initial=row.max()) for row, free in zip(counts, left, strict=True))


def test_small_clusters_run_out():
    clusters = Clusters.of(np.repeat([0, 1, 2], [1, 2, 9]))
    counts = clusters.counts(clusters.draw(50, 9, np.random.default_rng(0)))
    assert {tuple(row) for row in counts.tolist()} == {(1, 2, 6)}


@pytest.mark.parametrize(
    ("choice", "strict", "equation"),
    [
        ([0, 1, 2, 3, 4, 5], True, True),  # 2 of 2 and 4 of 9: the small cluster is exhausted
        ([0, 2, 3, 4, 5, 6], False, True),  # 1 of 2 and 5 of 9: the large cluster dominates
        ([2, 3, 4, 5, 6, 7], False, True),  # 0 of 2 and 6 of 9
        ([0, 2, 3], True, True),
    ],
)
def test_large_clusters_may_dominate_by_the_equation_only(make_clusters, choice, strict, equation):
    found = [bool(make_clusters([2, 9], balance).balanced(np.array([choice]))[0]) for balance in ("strict", "equation")]
    assert found == [strict, equation]


def test_draws_reach_everybody_alike(make_clusters):
    clusters = make_clusters([4, 4, 4])
    drawn = clusters.draw(6000, 4, np.random.default_rng(0))
    shares = np.bincount(drawn.ravel(), minlength=12) / 6000
    np.testing.assert_allclose(shares, 1 / 3, atol=0.03)
    np.testing.assert_allclose(np.bincount(drawn[:, 0], minlength=12) / 6000, 1 / 12, atol=0.015)


@given(cluster_sizes, balances, st.integers(1, 60), st.integers(0, 10**6))
@settings(max_examples=100)
def test_repair_makes_anything_keep_all_constraints(keeps, make_clusters, sizes, balance, count, seed):
    clusters, count = make_clusters(sizes, balance), min(count, sum(sizes))
    rng = np.random.default_rng(seed)
    broken = rng.integers(sum(sizes), size=(25, count))
    broken[0] = 0
    before = broken.copy()
    mended = clusters.repair(broken, rng)
    assert all(keeps(choice, clusters, count) for choice in mended)
    np.testing.assert_array_equal(broken, before)
    fine = np.array([keeps(choice, clusters, count) for choice in broken])
    np.testing.assert_array_equal(mended[fine], broken[fine])


def test_repair_changes_little(make_clusters):
    clusters = make_clusters([5, 5])
    twice, crooked = [0, 5, 0, 6], [0, 1, 2, 5]
    for seed in range(20):
        mended = clusters.repair(np.array([twice, crooked]), np.random.default_rng(seed))
        assert (mended[0] != twice)[2]
        assert 1 <= (mended[0] != twice).sum() <= 2  # the new one may unbalance the clusters
        assert (mended[1] != crooked).sum() == 1
        assert (mended[1] != crooked)[:3].any()


def test_duplicates():
    assert _duplicates(np.array([[3, 1, 3, 3, 1], [1, 2, 3, 4, 5]])).tolist() == [
        [False, False, True, True, True],
        [False] * 5,
    ]


def test_free_places_are_drawn_alike():
    choices = np.tile([7, 2, 4, -1, 3, 0], (6000, 1))
    rows = np.ones(6000, np.int64)
    found = np.bincount(_random_unused(choices, 2 * rows, 5 * rows, np.random.default_rng(0)), minlength=9)
    assert np.flatnonzero(found).tolist() == [5, 6]
    np.testing.assert_allclose(found[[5, 6]] / 6000, 0.5, atol=0.03)


def test_clusters_of_models_that_are_alike():
    rng = np.random.default_rng(0)
    truth = rng.permutation(np.repeat(np.arange(4), 10))
    vectors = rng.normal(size=(4, 500))[truth] + rng.normal(size=(40, 500)) * 0.01
    labels = cluster_clients(vectors, 4, rng)
    assert len(set(zip(truth.tolist(), labels.tolist(), strict=True))) == 4


@pytest.mark.parametrize("vectors", [np.ones((5, 3)), np.zeros((5, 3)), np.ones((1, 3)), np.zeros((3, 1))])
def test_clients_that_do_not_differ_are_one_cluster(vectors):
    assert set(cluster_clients(vectors, 10, np.random.default_rng(0)).tolist()) == {0}


def test_more_clusters_than_clients():
    labels = cluster_clients(np.eye(4), 10, np.random.default_rng(0))
    assert sorted(labels.tolist()) == [0, 1, 2, 3]
