from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.merge.conftest import server_steps

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import validate
from fedrelay.merge.adaptive import ServerAdagrad, ServerAdam, ServerYogi


@pytest.mark.parametrize(
    ("rule", "v", "step"),
    [(ServerAdam(), 1.0099e-4, 0.0905028), (ServerYogi(), 1.01e-4, 0.0904988), (ServerAdagrad(), 0.010001, 0.0990050)],
    ids=lambda value: type(value).__name__,
)
def test_the_first_step(rule, v, step):
    steps, state = server_steps(rule, [0.1])
    assert state["v"].item() == pytest.approx(v)
    assert steps == pytest.approx([step], abs=5e-8)


def reference(rule, changes):
    """The same in plain NumPy, straight from the paper."""
    m, v, steps = 0.0, rule.epsilon**2 if rule.first_v is None else rule.first_v, []
    for change in changes:
        beta1, beta2 = getattr(rule, "beta1", 0.0), getattr(rule, "beta2", 0.0)
        m = beta1 * m + (1 - beta1) * change
        square = change**2
        if isinstance(rule, ServerAdagrad):
            v = v + square
        elif isinstance(rule, ServerAdam):
            v = beta2 * v + (1 - beta2) * square
        else:
            v = v - (1 - beta2) * square * np.sign(v - square)
        steps.append(rule.lr * m / (np.sqrt(v) + rule.epsilon))
    return steps


@settings(max_examples=25)
@given(st.lists(st.floats(-2, 2), min_size=1, max_size=8), st.sampled_from([None, 0.0, 0.5]))
def test_many_steps_follow_the_paper(changes, first_v):
    for kind in (ServerAdagrad, ServerAdam, ServerYogi):
        rule = kind(first_v=first_v)
        steps, state = server_steps(rule, changes)
        assert steps == pytest.approx(reference(rule, changes), abs=1e-12)
        assert state["v"].item() >= 0


def test_bias_correction_is_that_of_flower():
    changes = [0.1, -0.3, 0.2]
    steps, state = server_steps(ServerAdam(correct_bias=True), changes)
    plain, _ = server_steps(ServerAdam(), changes)
    change_factors = [np.sqrt(1 - 0.99 ** (t + 1)) / (1 - 0.9 ** (t + 1)) for t in (1, 2, 3)]
    assert steps == pytest.approx(np.multiply(plain, change_factors).tolist())
    assert state["merges"].item() == 3


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (ServerAdagrad, {"beta1": 0.9}, "merge.beta1: unknown key 'beta1'"),
        (ServerAdam, {"epsilon": 0}, "merge.epsilon: must be greater than 0, got 0"),
        (ServerYogi, {"correct_bias": True}, "merge.correct_bias: unknown key"),
    ],
)
def test_impossible_options_are_refused(rule, options, message):
    with pytest.raises(SpecError) as refused:
        validate(rule, options, "merge.")
    assert message in str(refused.value)
