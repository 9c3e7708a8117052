from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.experiment.method import build_method
from fedrelay.experiment.spec import experiment
from fedrelay.routes import passes
from fedrelay.routes.base import PlanningContext, sample
from fedrelay.routes.passes import sample_in_passes
from fedrelay.routes.singletons import Singletons

SEEDS = st.integers(0, 2**40)


@given(SEEDS, st.integers(1, 30), st.data())
def test_everybody_takes_part_before_anyone_does_again(seed, population, data):
    count = data.draw(st.integers(1, population))
    counts: Counter[int] = Counter(dict.fromkeys(range(population), 0))
    for round in range(1, 3 * population // count + 5):
        found = sample_in_passes(seed, population, count, round)
        assert len(set(found)) == len(found) == count
        counts.update(found)
        assert max(counts.values()) - min(counts.values()) <= 1
    assert set(counts) == set(range(population))


@given(SEEDS, st.integers(2, 40), st.integers(1, 200), st.data())
def test_any_round_can_be_planned_first(seed, population, round, data):
    count = data.draw(st.integers(1, population))
    passes._order_after.cache_clear()
    alone = sample_in_passes(seed, population, count, round)
    for each in range(1, round):
        sample_in_passes(seed, population, count, each)
    assert sample_in_passes(seed, population, count, round) == alone


def test_passes_differ_from_each_other():
    rounds = [sample_in_passes(1, 50, 50, round) for round in (1, 2, 3)]
    assert len(set(rounds)) == 3


def test_a_late_round_of_many_clients_needs_no_deep_recursion():
    assert len(set(sample_in_passes(1, 3001, 2000, 2900))) == 2000


def test_a_route_samples_in_passes_where_the_spec_says_so():
    context = PlanningContext(10, 0.5, 3, sampling="passes")
    halves = [{route.clients[0] for route in Singletons().plan(context, round).routes} for round in (1, 2, 3, 4)]
    assert halves[0] | halves[1] == halves[2] | halves[3] == set(range(10))
    assert halves[0] != halves[2]
    assert sample(PlanningContext(10, 0.5, 3), 1, 10) != sample(context, 1, 10)


@pytest.mark.parametrize(
    ("method", "settings", "message"),
    [
        ("fedseq2par", {"sampling": "passes"}, "sampling: 'passes' needs a fixed number of groups, and here it grows"),
        ("fedasyncseq", {"sampling": "passes"}, "sampling: 'passes' does not go with models that go on to any idle"),
        ("fedseq", {"route.regroup": "pass"}, "route.regroup: 'pass' needs sampling 'passes', got 'random'"),
        ("fedavg", {"sampling": "epochs"}, "sampling: must be 'random' or 'passes', got 'epochs'"),
    ],
)
def test_what_does_not_go_with_passes_is_refused(method, settings, message):
    with pytest.raises(SpecError) as refused:
        build_method(experiment(method, **settings))
    assert message in str(refused.value)


def test_a_client_that_fails_loses_its_turn_until_the_next_pass(toy):
    """Plans do not depend on faults: with them, the same clients are asked, and one of them does not train."""
    settings = {"data": toy, "rounds": 6, "fraction": 0.5, "sampling": "passes", "workers": 1, "seed": 2}
    failing = [{"what": "dropout", "clients": [3], "last": 2}]
    trained: dict[int, list[int]] = {}

    class Notes(fr.Callback):
        def on_round_end(self, context):
            for route in context.plan.routes:
                trained.setdefault(context.round, []).extend(route.clients)

    fr.run("fedavg", faults=failing, callbacks=Notes(), **settings)
    first, second, third = (Counter(trained[2 * each + 1] + trained[2 * each + 2]) for each in range(3))
    assert first == Counter(set(range(6)) - {3})
    assert second == third == Counter(range(6))
