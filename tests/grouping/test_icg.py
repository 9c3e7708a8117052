from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.grouping import icg
from fedrelay.grouping.balanced_assignment_solver import DistinctPoints
from fedrelay.grouping.group_filling import GroupSizeBounds
from fedrelay.grouping.icg import balanced_clusters, cluster_means, icg_groups
from fedrelay.grouping.random import random_groups
from fedrelay.metrics.skew import group_histograms, median_cpd


def formed(vectors, groups, seed=0, **options):
    return icg_groups(vectors, np.random.default_rng(seed), groups=groups, **options)


@pytest.mark.parametrize(
    ("clients", "groups", "leftovers", "sizes"),
    [
        (12, 4, "spread", [3, 3, 3, 3]),
        (14, 4, "drop", [3, 3, 3, 3]),
        (14, 4, "spread", [4, 4, 3, 3]),
        (5, 9, "spread", [1] * 5),
        (5, 5, "drop", [1] * 5),
        (7, 1, "spread", [7]),
        (1, 1, "spread", [1]),
    ],
)
def test_golden_sizes(clients, groups, leftovers, sizes):
    vectors = np.random.default_rng(1).dirichlet(np.ones(4), clients)
    assert [len(group) for group in formed(vectors, groups, leftovers=leftovers)] == sizes


@pytest.mark.parametrize(("classes", "groups"), [(5, 4), (10, 5), (10, 12)])
@pytest.mark.parametrize("seed", range(4))
def test_pure_populations_give_groups_with_each_class_once(classes, groups, seed):
    truth = np.random.default_rng(seed).permutation(np.repeat(np.arange(classes), groups))
    for group in formed(np.eye(classes)[truth], groups, seed):
        assert sorted(truth[list(group)]) == list(range(classes))


def test_every_group_has_one_client_of_each_cluster(monkeypatch, make_counts):
    seen = []

    def watched(vectors, clusters, iterations):
        labels = balanced_clusters(vectors, clusters, iterations)
        seen.append((vectors, labels))
        return labels

    monkeypatch.setattr(icg, "balanced_clusters", watched)
    vectors = make_counts(60, 10, 0.3) + np.linspace(0, 1e-3, 60)[:, None]  # so that vectors tell clients apart
    groups = formed(vectors, 12)
    ((clustered, labels),) = seen
    cluster_of = {tuple(vector): label for vector, label in zip(clustered, labels, strict=True)}
    for group in groups:
        assert sorted(cluster_of[tuple(vectors[client])] for client in group) == list(range(5))


@given(st.integers(21, 90), st.integers(1, 40), st.integers(0, 3))
@settings(max_examples=30)
def test_very_many_clients_are_grouped_in_parts(clients, groups, seed):
    vectors = np.random.default_rng(seed).dirichlet(np.ones(4), clients)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(icg, "MOST_AT_ONCE", 20)
        found = formed(vectors, groups, seed)
    assert len(found) == min(groups, clients)
    assert sorted(client for group in found for client in group) == list(range(clients))
    assert {len(group) for group in found} <= {clients // len(found), -(-clients // len(found))}


def test_parts_cost_little_quality(monkeypatch, make_counts):
    counts = make_counts(400, 10, 0.3)
    whole = median_cpd(group_histograms(formed(counts, 40), counts))
    monkeypatch.setattr(icg, "MOST_AT_ONCE", 100)
    in_parts = median_cpd(group_histograms(formed(counts, 40), counts))
    at_random = median_cpd(
        group_histograms(random_groups(np.full(400, 50), GroupSizeBounds(10, 10**6), np.random.default_rng(0)), counts)
    )
    assert in_parts < (whole + at_random) / 2


@pytest.mark.parametrize("clusters", [4, 30])
def test_the_objective_never_rises(clusters, make_counts):
    vectors = make_counts(240, 8, 0.3).astype(float)
    cloud = DistinctPoints.of(vectors)

    def objective(labels):
        points = cloud.points[cloud.row_of]
        return np.square(points - cluster_means(cloud, labels, clusters)[labels]).sum() / 2

    values = [objective(balanced_clusters(vectors, clusters, iterations)) for iterations in range(8)]
    assert all(later <= sooner * (1 + 1e-12) for sooner, later in pairwise(values))
    assert values[-1] < 0.8 * values[0]


@pytest.mark.parametrize("alpha", [0.2, 0.3, 0.5])
def test_groups_are_more_alike_than_random_ones(alpha, make_counts):
    counts = make_counts(120, 10, alpha)
    random = random_groups(np.full(120, 50), GroupSizeBounds(12, 10**6), np.random.default_rng(0))
    assert len(random) == 10
    spread = [median_cpd(group_histograms(groups, counts)) for groups in (formed(counts, 10), random)]
    assert spread[0] < 0.8 * spread[1]


@given(st.integers(1, 60), st.integers(1, 70), st.sampled_from(["spread", "drop"]), st.integers(0, 2**32))
@settings(max_examples=60)
def test_groups_are_disjoint_and_almost_equal(clients, groups, leftovers, seed):
    vectors = np.random.default_rng(seed).dirichlet(np.full(3, 0.3), clients).round(1)
    found = formed(vectors, groups, seed, leftovers=leftovers)
    members = sorted(client for group in found for client in group)
    count, length = min(groups, clients), clients // min(groups, clients)
    assert len(found) == count
    assert len(set(members)) == len(members) == (clients if leftovers == "spread" else count * length)
    assert {len(group) for group in found} <= {length, length + (leftovers == "spread")}
    assert formed(vectors, groups, seed, leftovers=leftovers) == found


@pytest.mark.parametrize("vectors", [np.ones((20, 3)), np.zeros((20, 3)), np.ones((20, 1))])
def test_identical_vectors(vectors):
    groups = formed(vectors, 5)
    assert sorted(client for group in groups for client in group) == list(range(20))
    assert [len(group) for group in groups] == [4] * 5
