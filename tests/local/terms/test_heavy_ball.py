from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from tests.local.terms.conftest import Problem, number

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.experiment.method import build_method
from fedrelay.experiment.spec import experiment
from fedrelay.local.terms.heavy_ball import HeavyBall

FLAT = [[0, 0], [0, 0], [0, 0]]
"""Three clients whose loss has no slope, so that only the push moves a model."""


@pytest.mark.parametrize(
    ("settings", "sizes"), [({"lr": 0.1}, None), ({"lr": 0.3, "epochs": 4, "batch_size": 2}, [5, 1, 2])]
)
def test_a_route_is_pushed_on_by_beta_times_the_movement(settings, sizes):
    """Whatever the learning rate, the number of steps and the length of the route."""
    problem = Problem(FLAT, (HeavyBall(beta=0.5),), sizes=sizes, **settings)
    problem.server = {"movement": number(4.0)}
    torch.testing.assert_close(problem.travel((0,), (1, 2), (0, 1, 2)), [number(2.0)] * 3)


def test_the_movement_is_that_of_the_last_merges():
    term, kept = HeavyBall(tau=3), {}
    models = [number(float(each)) for each in (0, 2, 3, 7, 7, 13)]
    found = []
    for before, merged in pairwise(models):
        state, kept = term.after_merge(fr.MergedRound(merged, before, [], 3, state=kept))
        found.append(state["movement"].item() if state else None)
        assert len(kept["models"]) <= 3
    assert found == pytest.approx([None, None, 7 / 3, (7 - 2) / 3, (13 - 3) / 3])


def test_with_tau_of_one_the_movement_is_the_last_one():
    state, _ = HeavyBall(tau=1).after_merge(fr.MergedRound(number(5.0), number(2.0), [], 3))
    assert state["movement"].item() == 3


def test_the_push_reaches_clients_of_a_whole_run(toy):
    settings = {"data": toy, "rounds": 4, "fraction": 1.0, "workers": 1}
    pushed = fr.run("ghbm", terms={"heavy-ball": {"tau": 2}}, **settings)
    plain = fr.run("fedavg", **settings)
    not_yet = fr.run("ghbm", terms={"heavy-ball": {"tau": 9}}, **settings)
    assert not_yet.weights_sha256 == plain.weights_sha256 != pushed.weights_sha256
    assert pushed.bytes == plain.bytes * 3 // 2  # the movement is sent with the model


def test_other_optimizers_are_refused():
    with pytest.raises(SpecError, match=r"terms.heavy-ball: pushes steps of plain sgd"):
        build_method(experiment("ghbm", optimizer="adam"))
