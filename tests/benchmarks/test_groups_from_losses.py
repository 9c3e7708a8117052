"""Groups from losses: what the method finds where losses tell everything."""

import numpy as np
import pytest


@pytest.fixture
def script(load_benchmark):
    return load_benchmark("groups_from_losses")


def test_losses_that_tell_everything_give_groups_with_all_classes(script):
    classes = np.arange(100) % 10
    rng = np.random.default_rng(1)
    reported = []
    for _ in range(600):
        chain = rng.permutation(100)[:10].tolist()
        for place, client in enumerate(chain):
            follows_its_like = place > 0 and classes[chain[place - 1]] == classes[client]
            reported.append(script.Reported(1, client, tuple(chain[:place]), 0.1 if follows_its_like else 1.0))
    points = script.positions(script.similarities(reported, script.standardised(reported)))
    assert script.classes_in_groups(points, classes) == 10


def test_losses_are_standardised_for_every_pass_and_place(script):
    losses = {(1, 0): (1, 2), (1, 1): (5, 9), (2, 0): (0.1, 0.05)}
    reported = [
        script.Reported(number, client, tuple(range(place)), loss)
        for (number, place), pair in losses.items()
        for client, loss in enumerate(pair)
    ]
    assert script.standardised(reported) == pytest.approx([-1, 1, -1, 1, 1, -1], abs=1e-6)
