from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import ClassVar

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import make_federation
from tests.routes.conftest import context

import fedrelay as fr
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.simulation_engine import start_local
from fedrelay.experiment.prepare import prepare
from fedrelay.routes.asynchronous import Asynchronous
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.group_to_group import GroupToGroup
from fedrelay.routes.plan import RoundPlan, Route


class TestPlan:
    LATENCIES = (1.0, 5.0, 1.0, 2.0)
    SINGLES = ((0,), (1,), (2,), (3,))

    def timed(self, seed, factor=1.0):
        return context(
            self.SINGLES, seed=seed, route_seconds=lambda clients, handover: factor * self.LATENCIES[clients[0]]
        )

    @given(st.integers(1, 40), st.integers(0, 2**40), st.integers(1, 9))
    def test_equal_latencies_give_fedseqinter(self, round, seed, period):
        found = Asynchronous(period=period).plan(context(seed=seed), round)
        assert replace(found, asynchronous=None) == GroupToGroup(period=period).plan(context(seed=seed), round)
        assert found.asynchronous.seconds == 3.0

    @given(st.integers(1, 30), st.integers(0, 2**40), st.booleans())
    def test_only_proportions_of_latencies_matter(self, round, seed, wait):
        route = Asynchronous(period=3, wait=wait)
        slow, fast = route.plan(self.timed(seed, 2.0), round), route.plan(self.timed(seed), round)
        assert slow.routes == fast.routes
        assert slow.asynchronous.seconds == 2 * fast.asynchronous.seconds

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
        assert sum(plan.asynchronous.seconds for plan in plans) == seconds
        assert [route.slot for route in plans[1].routes] == slots

    @pytest.mark.parametrize("wait", [False, True])
    def test_hops_at_a_client_are_in_the_order_of_virtual_time(self, wait):
        """Groups outnumber models, so no model waits: leg after leg, its time is the sum of its groups' times."""
        seconds, groups, shared = (1.0, 9.0, 0.9, 2.0, 0.4, 5.0, 0.7), tuple((i, 7 + i) for i in range(7)), 0
        for seed in range(40):
            timed = context(groups, 0.5, seed, route_seconds=lambda clients, handover: seconds[clients[0] % 7])
            times = dict.fromkeys(range(3), 0.0)
            for round in range(1, 9):
                plan = Asynchronous(period=8, wait=wait).plan(timed, round)
                visits: dict[int, list[tuple[float, int, int]]] = {}
                for number, route in enumerate(plan.routes):
                    for index in range(0, len(route.clients), 2):
                        times[route.slot] += seconds[route.clients[index] % 7]
                        for hop in (index, index + 1):
                            visit = (times[route.slot], plan.steps[number][hop], number)
                            visits.setdefault(route.clients[hop], []).append(visit)
                for met in map(sorted, visits.values()):
                    steps = [step for _, step, _ in met]
                    assert steps == sorted(set(steps))
                    shared += len({number for _, _, number in met}) > 1
        assert shared > 5

    @given(st.integers(0, 2**40), st.floats(0.2, 1), st.booleans(), st.integers(1, 12))
    def test_the_fastest_model_defines_the_round(self, seed, fraction, wait, period):
        groups = tuple((i,) for i in range(7))
        timed = context(groups, fraction, seed, route_seconds=lambda clients, handover: 1.0 + clients[0] % 4)
        done = dict.fromkeys(range(7), 0)
        for round in range(1, 20):
            plan = Asynchronous(period=period, wait=wait).plan(timed, round)
            assert plan.asynchronous.seconds > 0
            for route in plan.routes:
                assert route.slot is not None
                done[route.slot] += len(route.clients)
            in_era = (round - 1) % period + 1
            assert max(done.values()) == in_era
            if plan.merges:
                done = dict.fromkeys(range(7), 0)


class TestClientState:
    """Three rounds of FedDyn. In the third, two models go through client 6, first the one on the longer route."""

    SIZES = (1, 40, 3, 20, 5, 1, 30, 2, 60, 4, 9, 1, 7, 90, 2, 2, 50, 3, 1, 8)
    SETTINGS: ClassVar = {
        "seed": 156,
        "rounds": 3,
        "fraction": 0.5,
        "batch_size": 100,  # one batch: no randomness to tell hops apart
        "lr": 0.3,
        "model": "mlp",
        "route": {"period": 20},
        "grouping": {"assign": "random", "max_clients": 4, "min_samples": 20},
        "clock": {"profile": "log-normal", "speed_sigma": 2.0, "link_sigma": 2.0},
    }

    def legs(self, run):
        """(when it is over, slot, clients) of every leg of the run, in that order."""
        group_of = {client: number for number, group in enumerate(run.prepared.groups) for client in group}
        times: dict[int, float] = {}
        for round in (1, 2, 3):
            for route in run.planner.plan(round).routes:
                for _, hops in groupby(route.clients, group_of.get):
                    clients = tuple(hops)
                    times[route.slot] = times.get(route.slot, 0.0) + run.costs.route_seconds(clients, "direct")
                    yield times[route.slot], route.slot, clients

    @pytest.mark.parametrize("workers", [1, 2])
    def test_hops_read_what_was_written_before_them_in_virtual_time(self, workers):
        federation = make_federation(list(self.SIZES))
        found = fr.run("fedasyncseq+feddyn", data=federation, workers=workers, **self.SETTINGS)
        run = prepare(found.experiment, federation=federation)
        first = run.prepared.layout.flatten(run.prepared.module)
        assert [route.clients[-1] for route in run.planner.plan(3).routes] == [6, 6]
        engine, models, samples = start_local(run.prepared.job(), 1), {}, Counter()
        for _, slot, clients in sorted(self.legs(run)):
            start = RoundInputs(models.get(slot, first))
            (arrival,) = engine.run_round(RoundPlan(1, (Route(clients),)), AS_PLANNED, start)
            engine.commit_client_state()
            models[slot] = arrival.weights.clone()
            samples[slot] += arrival.samples
        expected = sum(samples[slot] * model for slot, model in models.items()) / samples.total()
        torch.testing.assert_close(found.weights, expected)
