from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.errors import DivergedError, SpecError
from fedrelay.experiment.spec import validate
from fedrelay.selection.warmup_selector import OPTIONS, Selection, SelectorName, WarmupSelector

SIZES = np.array([5, 0, 9, 3, 8, 0, 4, 7])
HOLDERS = [0, 2, 3, 4, 6, 7]
VECTORS = np.random.default_rng(0).normal(size=(8, 12))


def rng(seed=0):
    return np.random.default_rng(seed)


def test_names_of_options_are_names_of_settings():
    assert set(get_args(SelectorName)) == set(OPTIONS)
    assert {"by"}.union(*OPTIONS.values()) == set(WarmupSelector.model_fields)
    assert all(field.description for field in WarmupSelector.model_fields.values())


def test_all_clients_that_hold_data_in_random_order():
    chosen = WarmupSelector().select_clients(SIZES, rng())
    assert sorted(chosen.clients) == HOLDERS
    assert chosen.scores == ()
    assert chosen.seconds >= 0
    assert {WarmupSelector().select_clients(SIZES, rng(seed)).clients for seed in range(20)} != {chosen.clients}


def test_random_clients():
    selector = WarmupSelector(by="random", count=3)
    chosen = [selector.select_clients(SIZES, rng(seed)).clients for seed in range(200)]
    assert all(len(set(each)) == 3 and set(each) <= set(HOLDERS) for each in chosen)
    assert {client for each in chosen for client in each} == set(HOLDERS)
    assert sorted(WarmupSelector(by="random", count=99).select_clients(SIZES, rng()).clients) == HOLDERS


def test_genetic_choice_of_few_is_the_best_of_all():
    sizes = np.array([5, 0, 90, 3, 80, 0, 4, 70])
    chosen = WarmupSelector(by="genetic", count=3, clusters=1, similarity=0).select_clients(sizes, rng(), VECTORS)
    assert sorted(chosen.clients) == [2, 4, 7]
    assert chosen.scores == (1.0,)


@pytest.mark.parametrize("clusters", [1, 4, 50])
def test_genetic_choice_of_many(clusters):
    sizes, vectors = rng(1).integers(0, 50, 80), rng(2).normal(size=(80, 30))
    selector = WarmupSelector(by="genetic", count=6, clusters=clusters, population=31, iterations=8)
    chosen = selector.select_clients(sizes, rng(), vectors)
    assert len(set(chosen.clients)) == 6
    assert all(sizes[client] and isinstance(client, int) for client in chosen.clients)
    assert len(chosen.scores) == 9
    assert list(chosen.scores) == sorted(chosen.scores)
    assert selector.select_clients(sizes, rng(), vectors) == chosen
    assert selector.select_clients(sizes, rng(5), vectors) != chosen


def test_similar_models_or_large_clients():
    # Clients 0 … 4 agree, clients 5 … 9 have the data.
    vectors = np.concatenate([np.ones((5, 5)) + 0.01 * np.eye(5), np.eye(5)])
    sizes = np.repeat([10, 100], 5)
    chosen = {
        name: sorted(
            WarmupSelector(by="genetic", count=4, clusters=1, similarity=name)
            .select_clients(sizes, rng(), vectors)
            .clients
        )
        for name in ("text", "code")
    }
    assert set(chosen["text"]) < set(range(5))
    assert set(chosen["code"]) < set(range(5, 10))


def test_whole_models_or_what_training_changed():
    # Clients 0 … 3 changed in one direction by very different lengths, the others a little in all directions.
    start = np.array([1000.0, 0, 0, 0, 0, 0])
    updates = 0.1 * np.concatenate([np.zeros((4, 6)), np.eye(6)])
    updates[:4, 1] = [1, 100, 400, 1000]
    sizes, chosen = np.ones(10, np.int64), {}
    for vectors in ("raw", "update"):
        selector = WarmupSelector(by="genetic", count=4, clusters=1, similarity=1, vectors=vectors)
        chosen[vectors] = set(selector.select_clients(sizes, rng(), start + updates, start).clients)
    assert chosen["update"] == {0, 1, 2, 3}
    assert chosen["raw"] <= {4, 5, 6, 7, 8, 9}


def test_a_pool_lasts_as_long_as_it_can_fill_a_cycle():
    selector = WarmupSelector(by="genetic", count=3)
    assert [list(selector.remembered_cycles(cycle, 11)) for cycle in range(1, 6)] == [[], [1], [1, 2], [], [4]]
    assert [list(selector.remembered_cycles(cycle, 3)) for cycle in (1, 2)] == [[], []]
    assert [list(selector.remembered_cycles(cycle, 2)) for cycle in (1, 2)] == [[], []]  # fewer than it wants
    forgetful = (WarmupSelector(by="genetic", count=3, memory=False), WarmupSelector(by="random", count=3))
    assert [list(each.remembered_cycles(3, 11)) for each in forgetful] == [[], []]


def test_clients_that_are_remembered_are_not_selected():
    selector = WarmupSelector(by="genetic", count=3, clusters=2, population=20, iterations=5)
    for seed in range(10):
        first = selector.select_clients(SIZES, rng(seed), VECTORS).clients
        second = selector.select_clients(SIZES, rng(seed + 100), VECTORS, remembered=first).clients
        assert sorted(first + second) == HOLDERS


@given(
    st.lists(st.integers(0, 9), max_size=12),
    st.sampled_from(["all", "random", "genetic"]),
    st.integers(1, 15),
    st.integers(0, 99),
)
@settings(max_examples=60)
def test_any_sizes_at_all(sizes, by, count, seed):
    selector = WarmupSelector(by=by) if by == "all" else WarmupSelector(by=by, count=count)
    vectors = rng(seed).integers(0, 2, (len(sizes), 3)).astype(np.float32)
    chosen = selector.select_clients(np.array(sizes, np.int64), rng(seed), vectors).clients
    holders = np.flatnonzero(sizes).tolist()
    assert len(set(chosen)) == len(chosen) == (len(holders) if by == "all" else min(count, len(holders)))
    assert set(chosen) <= set(holders)


def test_the_time_taken_makes_no_difference():
    assert Selection((1, 2), (0.5,), 1.0) == Selection((1, 2), (0.5,), 2.0)


def test_who_needs_vectors():
    assert [WarmupSelector(by=by).needs_vectors for by in ("all", "random", "genetic")] == [False, False, True]
    with pytest.raises(ValueError, match="needs the clients' vectors"):
        WarmupSelector(by="genetic").select_clients(SIZES, rng())
    with pytest.raises(ValueError, match="the start model"):
        WarmupSelector(by="genetic", vectors="update").select_clients(SIZES, rng(), VECTORS)


def test_a_model_that_is_not_finite_names_the_client():
    vectors = VECTORS.copy()
    vectors[[1, 4]] = np.nan  # client 1 holds no data
    with pytest.raises(DivergedError, match="the model of client 4 has non-finite values"):
        WarmupSelector(by="genetic").select_clients(SIZES, rng(), vectors)


def test_weights_by_name_and_number():
    given = ["text", "code", 0.3, "3e-1"]
    found = [validate(WarmupSelector, {"by": "genetic", "similarity": each}).similarity for each in given]
    assert found == [0.8, 0.2, 0.3, 0.3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "genetics"}, "selector.by: must be 'all', 'random' or 'genetic', got 'genetics' (did you mean 'gen"),
        ({"cont": 3}, "selector.cont: unknown key 'cont' (did you mean 'count'?)"),
        ({"count": 3}, "selector.count: has no effect with by 'all'; it is an option of 'random', 'genetic'"),
        ({"by": "random", "clusters": 3}, "selector.clusters: has no effect with by 'random'; it is an option of 'gen"),
        ({"by": "random", "vectors": "update"}, "selector.vectors: has no effect with by 'random'"),
        ({"by": "genetic", "count": 0}, "selector.count: must be greater than or equal to 1, got 0"),
        ({"by": "genetic", "population": 1}, "selector.population: must be greater than or equal to 2"),
        ({"by": "genetic", "mutation": 2}, "selector.mutation: must be less than or equal to 1"),
        ({"by": "genetic", "similarity": 1.5}, "selector.similarity: must be less than or equal to 1"),
        ({"by": "genetic", "similarity": True}, "selector.similarity: must not be true or false"),
        (
            {"by": "genetic", "similarity": "cod"},
            "selector.similarity: must be a number or a name; unknown name 'cod' (did you mean 'code'?); "
            "allowed: text, code",
        ),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    with pytest.raises(SpecError) as refused:
        validate(WarmupSelector, options, "selector.")
    assert message in str(refused.value)


def test_a_default_that_is_spelled_out_is_no_mistake():
    for by in OPTIONS:
        assert WarmupSelector(**{**WarmupSelector().model_dump(), "by": by}) == WarmupSelector(by=by)
