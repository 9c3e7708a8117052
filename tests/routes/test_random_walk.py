from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import validate
from fedrelay.routes import random_walk
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.random_walk import RandomWalk

STAR = tuple((0, leaf) for leaf in range(1, 6))
"""Everybody knows client 0 and nobody else."""


def walk(route, rounds, clients=6, fraction=0.5, seed=1):
    context = PlanningContext(clients, fraction, seed)
    return [client for round in range(1, rounds + 1) for client in route.plan(context, round).routes[0].clients]


@given(st.integers(0, 2**40), st.sampled_from(["metropolis", "simple"]))
def test_every_hop_is_along_an_edge(seed, steps):
    visited = walk(RandomWalk(graph="given", edges=STAR, steps=steps), rounds=8, seed=seed)
    assert len(visited) == 24
    for here, there in pairwise(visited):
        assert here == there or 0 in (here, there)
        assert steps == "metropolis" or here != there


def test_on_a_ring_the_model_goes_to_a_neighbour_by_number():
    visited = walk(RandomWalk(), rounds=30, clients=7, fraction=1.0)
    assert {(there - here) % 7 for here, there in pairwise(visited)} == {1, 6}


@pytest.mark.parametrize(("steps", "share"), [("metropolis", 1 / 6), ("simple", 1 / 2)])
def test_how_often_the_middle_of_a_star_trains(steps, share):
    visited = walk(RandomWalk(graph="given", edges=STAR, steps=steps), rounds=2000, fraction=1.0)
    assert Counter(visited)[0] / len(visited) == pytest.approx(share, abs=0.02)


def test_any_round_can_be_planned_first():
    route, context = RandomWalk(graph="complete"), PlanningContext(9, 0.4, 5)
    random_walk._walk.cache_clear()
    ahead = route.plan(context, 300)
    assert [route.plan(context, round) for round in range(1, 301)][-1] == ahead


def test_a_single_client_keeps_the_model():
    assert walk(RandomWalk(), rounds=3, clients=1) == [0, 0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph": "given"}, "route.edges: are needed with graph 'given', and only then"),
        ({"edges": [[0, 1]]}, "route.edges: are needed with graph 'given', and only then"),
        ({"graph": "given", "edges": [[0, 9]]}, "route.edges: there is no client 9; the last of 6 is 5"),
        ({"graph": "given", "edges": [[0, 1], [2, 3], [1, 4], [4, 5]]}, "no way leads from client 0 to client 2"),
    ],
)
def test_impossible_graphs_are_refused(options, message):
    with pytest.raises(SpecError) as refused:
        walk(validate(RandomWalk, options, "route."), rounds=1)
    assert message in str(refused.value)
