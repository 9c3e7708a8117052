from __future__ import annotations

import pytest
from tests.merge.conftest import server_steps

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import validate
from fedrelay.merge.server_momentum import ServerMomentum


def test_momentum_adds_up():
    steps, state = server_steps(ServerMomentum(), [0.1] * 200)
    assert steps[:3] == pytest.approx([0.1, 0.19, 0.271])
    assert steps[-1] == pytest.approx(1)
    assert state["velocity"].item() == pytest.approx(1)


def test_momentum_as_an_average():
    steps, _ = server_steps(ServerMomentum(velocity="average", lr=2.0), [0.1] * 200)
    assert steps[:2] == pytest.approx([0.02, 0.038])
    assert steps[-1] == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 1}, "merge.beta: must be less than 1, got 1"),
        ({"velocity": "mean"}, "merge.velocity: must be 'sum' or 'average', got 'mean'"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(SpecError) as refused:
        validate(ServerMomentum, options, "merge.")
    assert message in str(refused.value)
