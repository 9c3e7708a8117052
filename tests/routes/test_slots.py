from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.routes.asynchronous import Asynchronous
from fedrelay.routes.base import Scene, sampled_count
from fedrelay.routes.chains import Chains
from fedrelay.routes.slots import Slots

GROUPS = tuple((3 * i, 3 * i + 1, 3 * i + 2) for i in range(6))


def scene(groups=GROUPS, fraction=0.5, seed=1, rounds=60, **more):
    return Scene(sum(map(len, groups)), fraction, seed, groups, rounds, **more)


def groups_of(plan, groups=GROUPS):
    return [next(i for i, group in enumerate(groups) if route.clients[0] in group) for route in plan.routes]


@given(st.integers(1, 60), st.integers(0, 2**40))
def test_merging_every_round_is_fedseq(round, seed):
    found, expected = (route.plan(scene(seed=seed), round) for route in (Slots(period=1), Chains()))
    assert found.merges
    assert [route.clients for route in found.routes] == [route.clients for route in expected.routes]


@pytest.mark.parametrize(("period", "merging"), [(None, [6, 12]), (4, [4, 8, 12]), ("never", [])])
def test_merges_come_after_every_period(period, merging):
    plans = [Slots(period=period).plan(scene(rounds=12), round) for round in range(1, 13)]
    assert [plan.round for plan in plans if plan.merges] == merging


@given(st.integers(2, 9), st.floats(0.1, 1), st.integers(0, 2**40))
def test_no_model_goes_to_the_group_it_has_just_left(count, fraction, seed):
    groups = tuple((i,) for i in range(count))
    left: list[int] = []
    for round in range(1, 12):
        plan = Slots(period="never").plan(scene(groups, fraction, seed), round)
        visited = groups_of(plan, groups)
        assert [route.slot for route in plan.routes] == list(range(sampled_count(count, fraction)))
        assert len(set(visited)) == len(visited)
        assert all(group != before for group, before in zip(visited, left, strict=False))
        left = visited


def test_a_single_group_is_visited_again_and_again():
    plans = [Slots(period="never").plan(scene(((0, 1),)), round) for round in (1, 2, 3)]
    assert [set(plan.routes[0].clients) for plan in plans] == [{0, 1}] * 3


class TestAsynchronous:
    LATENCIES = (1.0, 5.0, 1.0, 2.0)
    SINGLES = ((0,), (1,), (2,), (3,))

    def timed(self, seed, factor=1.0):
        return scene(self.SINGLES, seed=seed, duration=lambda clients, relay: factor * self.LATENCIES[clients[0]])

    @given(st.integers(1, 40), st.integers(0, 2**40), st.integers(1, 9))
    def test_equal_latencies_give_fedseqinter(self, round, seed, period):
        found = Asynchronous(period=period).plan(scene(seed=seed), round)
        assert replace(found, seconds=None) == Slots(period=period).plan(scene(seed=seed), round)
        assert found.seconds == 3.0

    @given(st.integers(1, 30), st.integers(0, 2**40), st.booleans())
    def test_only_proportions_of_latencies_matter(self, round, seed, wait):
        route = Asynchronous(period=3, wait=wait)
        slow, fast = route.plan(self.timed(seed, 2.0), round), route.plan(self.timed(seed), round)
        assert slow.routes == fast.routes
        assert slow.seconds == 2 * fast.seconds

    def two_rounds(self, wait):
        route = Asynchronous(period=2, wait=wait)
        return lambda seed: [route.plan(self.timed(seed), round) for round in (1, 2)]

    def is_the_timeline(self, plans):
        """Slot 0 is done with group 0 after 1 s and with group 2 after 2 s; slot 1 is busy at group 1 until 5 s."""
        first, second = ([(route.slot, route.clients) for route in plan.routes] for plan in plans)
        return first == [(0, (0,))] and second[0] == (0, (2,)) and second[1:] in ([], [(1, (1,))])

    @pytest.mark.parametrize(("wait", "seconds", "slots"), [(False, 2.0, [0]), (True, 5.0, [0, 1])])
    def test_a_slow_model_is_left_out_of_the_merge_or_waited_for(self, wait, seconds, slots):
        plans = next(plans for plans in map(self.two_rounds(wait), range(500)) if self.is_the_timeline(plans))
        assert [plan.merges for plan in plans] == [False, True]
        assert sum(plan.seconds for plan in plans) == seconds
        assert [route.slot for route in plans[1].routes] == slots

    @given(st.integers(0, 2**40), st.floats(0.2, 1), st.booleans(), st.integers(1, 12))
    def test_the_fastest_model_defines_the_round(self, seed, fraction, wait, period):
        groups = tuple((i,) for i in range(7))
        timed = scene(groups, fraction, seed, duration=lambda clients, relay: 1.0 + clients[0] % 4)
        done = dict.fromkeys(range(7), 0)
        for round in range(1, 20):
            plan = Asynchronous(period=period, wait=wait).plan(timed, round)
            assert plan.seconds is not None
            assert plan.seconds > 0
            for route in plan.routes:
                assert route.slot is not None
                done[route.slot] += len(route.clients)
            in_era = (round - 1) % period + 1
            assert max(done.values()) == in_era
            if plan.merges:
                done = dict.fromkeys(range(7), 0)
