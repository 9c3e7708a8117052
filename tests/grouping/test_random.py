from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.grouping.random import RandomGroups


def sizes_of(groups):
    return sorted((len(group) for group in groups), reverse=True)


@pytest.mark.parametrize(
    ("clients", "expected"),
    [(10, [4, 3, 3]), (9, [3, 3, 3]), (11, [4, 4, 3])],
)
def test_golden_sizes(clients, expected):
    groups = RandomGroups(max_clients=4, min_samples=250).form(np.full(clients, 100), seed=1)
    assert sizes_of(groups) == expected


def test_the_papers_example():
    groups = RandomGroups().form(np.full(500, 100), seed=1)
    assert len(groups) == 62
    assert sizes_of(groups) == [9] * 4 + [8] * 58


def test_a_small_last_group_stays_when_there_is_no_room(caplog):
    groups = RandomGroups(max_clients=3, min_samples=10**6).form(np.full(10, 1), seed=1)
    assert sizes_of(groups) == [3, 3, 3, 1]
    assert "stays small (1 client" in caplog.text


def test_leftovers_go_to_the_groups_with_the_fewest_samples():
    grouping = RandomGroups(max_clients=4, min_samples=100)
    sizes = np.array([60, 60, 50, 50, 90, 90, 10])
    groups = grouping.fill(range(7), sizes)
    assert groups == ((0, 1), (2, 3, 6), (4, 5))


@given(
    st.lists(st.integers(0, 300), min_size=1, max_size=60),
    st.integers(1, 12),
    st.integers(1, 900),
    st.integers(0, 2**40),
)
def test_groups_are_a_partition_of_the_holders_within_bounds(sizes, most, least, seed):
    sizes = np.array(sizes)
    groups = RandomGroups(max_clients=most, min_samples=least).form(sizes, seed)
    assert sorted(client for group in groups for client in group) == np.flatnonzero(sizes).tolist()
    assert all(1 <= len(group) <= most for group in groups)
    assert RandomGroups(max_clients=most, min_samples=least).form(sizes, seed) == groups
    short = [group for group in groups if len(group) < most and sizes[list(group)].sum() < least]
    assert len(short) <= 1
