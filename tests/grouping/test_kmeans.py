from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.grouping.group_filling import GroupSizeBounds
from fedrelay.grouping.kmeans import _round_robin, groups_across_clusters, kmeans


def test_one_client_of_each_class_in_every_group():
    vectors = np.repeat(np.eye(5), 4, axis=0)
    groups = groups_across_clusters(
        vectors, np.full(20, 10), GroupSizeBounds(5, 50), np.random.default_rng(3), clusters=5
    )
    assert len(groups) == 4
    assert all(sorted(client // 4 for client in group) == list(range(5)) for group in groups)


def test_the_pointer_is_not_reset_between_groups():
    assert list(_round_robin([[1, 2], [3], [], [4, 5, 6]])) == [1, 3, 4, 2, 5, 6]


def test_the_last_of_a_cluster_comes_first_if_wanted():
    vectors = np.repeat(np.eye(2), 3, axis=0)
    groups = groups_across_clusters(
        vectors, np.ones(6, int), GroupSizeBounds(2, 99), np.random.default_rng(0), clusters=2, order="last"
    )
    assert [sorted(group) for group in groups] == [[2, 5], [1, 4], [0, 3]]


def test_pure_clusters_are_found():
    rng = np.random.default_rng(0)
    truth = rng.permutation(np.repeat(np.arange(6), 20))
    labels = kmeans(np.eye(6)[truth] + rng.normal(0, 0.01, (120, 6)), 6, rng)
    assert len(set(zip(truth.tolist(), labels.tolist(), strict=True))) == 6


def test_fewer_different_vectors_than_clusters():
    labels = kmeans(np.repeat(np.eye(2), 5, axis=0), 7, np.random.default_rng(0))
    assert len(set(labels[:5])) == len(set(labels[5:])) == 1
    assert len(set(labels)) == 2
    assert set(kmeans(np.ones((4, 3)), 3, np.random.default_rng(0))) == {0}


def test_clusters_are_stable():
    vectors = np.random.default_rng(5).dirichlet(np.full(4, 0.2), 150)
    labels = kmeans(vectors, 4, np.random.default_rng(0))
    means = np.stack([vectors[labels == cluster].mean(axis=0) for cluster in range(4)])
    distances = np.square(vectors[:, None] - means).sum(axis=2)
    np.testing.assert_allclose(distances[np.arange(150), labels], distances.min(axis=1))


@given(
    st.integers(1, 40), st.integers(1, 12), st.integers(1, 8), st.sampled_from(["random", "last"]), st.integers(0, 99)
)
def test_groups_are_a_partition(clients, clusters, most, order, seed):
    vectors = np.random.default_rng(seed).dirichlet(np.ones(3), clients)

    def formed():
        rng = np.random.default_rng(seed)
        return groups_across_clusters(
            vectors, np.full(clients, 7), GroupSizeBounds(most, 40), rng, clusters=clusters, order=order
        )

    assert sorted(client for group in formed() for client in group) == list(range(clients))
    assert all(len(group) <= most for group in formed())
    assert formed() == formed()
