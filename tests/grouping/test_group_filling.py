from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.grouping.group_filling import GroupSizeBounds, distribute_rest, fill_groups
from fedrelay.grouping.random import random_groups


def sizes_of(groups):
    return sorted((len(group) for group in groups), reverse=True)


def shuffled(sizes, bounds, seed=1):
    return random_groups(np.asarray(sizes), bounds, np.random.default_rng(seed))


@pytest.mark.parametrize(("clients", "expected"), [(10, [4, 3, 3]), (9, [3, 3, 3]), (11, [4, 4, 3])])
def test_golden_sizes(clients, expected):
    assert sizes_of(shuffled(np.full(clients, 100), GroupSizeBounds(4, 250))) == expected


def test_the_papers_example():
    groups = shuffled(np.full(500, 100), GroupSizeBounds(11, 800))
    assert sizes_of(groups) == [9] * 4 + [8] * 58


@pytest.mark.parametrize(
    ("clients", "most", "expected"),
    [
        (100, 11, [10] * 10),
        (103, 11, [11] * 3 + [10] * 7),
        (10, 3, [3, 3, 2, 2]),
        (20, 11, [10] * 2),
        (22, 11, [11] * 2),
    ],
)
def test_groups_that_clients_complete_are_as_equal_as_possible(caplog, clients, most, expected):
    assert sizes_of(shuffled(np.full(clients, 1), GroupSizeBounds(most, 10**6))) == expected
    assert caplog.text == ""


def test_the_last_group_takes_clients_from_the_largest():
    groups = fill_groups(range(7), np.full(7, 1), GroupSizeBounds(3, 100))
    assert groups == ((0, 1), (3, 4, 5), (6, 2))


def test_a_small_last_group_stays_small_if_the_others_need_their_clients(caplog):
    sizes = np.array([100, 100, 100, 100, 100, 100, 10])
    assert fill_groups(range(7), sizes, GroupSizeBounds(3, 300)) == ((0, 1, 2), (3, 4, 5), (6,))
    assert "group 3 has only 1 clients with 10 samples, fewer than grouping.min_samples=300" in caplog.text


def test_a_group_that_has_too_few_samples_anyway_gives_clients_away(caplog):
    sizes = np.array([200, 100, 120, 100, 100, 100, 10])
    assert fill_groups(range(7), sizes, GroupSizeBounds(3, 350)) == ((0, 1, 2), (3, 4), (6, 5))
    assert caplog.text == ""


def test_a_single_small_group_stays(caplog):
    assert fill_groups(range(3), np.array([5, 5, 5]), GroupSizeBounds(11, 800)) == ((0, 1, 2),)
    assert caplog.text == ""


def test_leftovers_go_to_the_groups_with_the_fewest_samples():
    sizes = np.array([60, 60, 50, 50, 90, 90, 10])
    assert fill_groups(range(7), sizes, GroupSizeBounds(4, 100)) == ((0, 1), (2, 3, 6), (4, 5))


def test_leftovers_pass_over_full_groups_in_an_order_fixed_at_the_start():
    sizes = np.array([100, 30, 30, 40, 100, 20, 20])
    assert fill_groups(range(7), sizes, GroupSizeBounds(3, 100)) == ((0, 5), (1, 2, 3), (4, 6))


def filled_one_by_one(order, sizes, bounds):
    groups, last, samples = [], [], 0
    for client in order:
        last.append(client)
        samples += int(sizes[client])
        if bounds.complete(len(last), samples):
            groups.append(last)
            last, samples = [], 0
    return distribute_rest(groups, last, sizes, bounds)


@given(st.data(), st.lists(st.integers(0, 60), min_size=1, max_size=60), st.integers(1, 12), st.integers(1, 300))
def test_ends_of_groups_are_where_clients_one_by_one_complete_them(data, sizes, most, enough):
    order, bounds = data.draw(st.permutations(range(len(sizes)))), GroupSizeBounds(most, enough)
    sizes = np.asarray(sizes)
    assert fill_groups(order, sizes, bounds) == filled_one_by_one(order, sizes, bounds)


@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=60),
    st.integers(1, 12),
    st.integers(1, 900),
    st.integers(0, 2**40),
)
def test_groups_are_a_partition_within_bounds(sizes, most, least, seed):
    sizes = np.array(sizes)
    groups = shuffled(sizes, GroupSizeBounds(most, least), seed)
    assert sorted(client for group in groups for client in group) == list(range(len(sizes)))
    assert all(1 <= len(group) <= most for group in groups)
    assert shuffled(sizes, GroupSizeBounds(most, least), seed) == groups
    samples = [int(sizes[list(group)].sum()) for group in groups]
    short = [len(group) for group, has in zip(groups, samples, strict=True) if len(group) < most and has < least]
    needed = [has >= least > has - sizes[group[-1]] for group, has in zip(groups, samples, strict=True)]
    largest = max((len(group) for group, all_needed in zip(groups, needed, strict=True) if not all_needed), default=0)
    assert all(length >= largest - 1 for length in short)
