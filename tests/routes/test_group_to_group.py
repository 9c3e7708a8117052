from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.routes.conftest import GROUPS, context

from fedrelay.routes.base import sampled_count
from fedrelay.routes.chains import Chains
from fedrelay.routes.group_to_group import GroupToGroup


def groups_of(plan, groups=GROUPS):
    return [next(i for i, group in enumerate(groups) if route.clients[0] in group) for route in plan.routes]


@given(st.integers(1, 60), st.integers(0, 2**40))
def test_merging_every_round_is_fedseq(round, seed):
    found, expected = (route.plan(context(seed=seed), round) for route in (GroupToGroup(period=1), Chains()))
    assert found.merges
    assert [route.clients for route in found.routes] == [route.clients for route in expected.routes]


@pytest.mark.parametrize(("period", "merging"), [(None, [6, 12]), (4, [4, 8, 12]), ("never", [])])
def test_merges_come_after_every_period(period, merging):
    plans = [GroupToGroup(period=period).plan(context(rounds=12), round) for round in range(1, 13)]
    assert [plan.round for plan in plans if plan.merges] == merging


@given(st.integers(2, 9), st.floats(0.1, 1), st.integers(0, 2**40))
def test_no_model_goes_to_the_group_it_has_just_left(count, fraction, seed):
    groups = tuple((i,) for i in range(count))
    left: list[int] = []
    for round in range(1, 12):
        plan = GroupToGroup(period="never").plan(context(groups, fraction, seed), round)
        visited = groups_of(plan, groups)
        assert [route.slot for route in plan.routes] == list(range(sampled_count(count, fraction)))
        assert len(set(visited)) == len(visited)
        assert all(group != before for group, before in zip(visited, left, strict=False))
        left = visited


def test_a_single_group_is_visited_again_and_again():
    plans = [GroupToGroup(period="never").plan(context(((0, 1),)), round) for round in (1, 2, 3)]
    assert [set(plan.routes[0].clients) for plan in plans] == [{0, 1}] * 3
