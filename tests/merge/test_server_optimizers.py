from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import validate
from fedrelay.merge.mean import Mean
from fedrelay.merge.momentum import Momentum
from fedrelay.merge.server_optimizers import Adagrad, Adam, Yogi

RULES = [Adagrad(), Adam(), Adam(correct_bias=True), Yogi(), Momentum(), Momentum(velocity="average")]


def rounds(make_home, rule, changes):
    """The steps a rule makes of given mean changes."""
    weights, memory, steps = torch.zeros(1, dtype=torch.float64), {}, []
    for change in changes:
        home = make_home([weights + change], current=weights, memory=memory)
        moved, memory = rule.apply(home)
        steps.append((moved - weights).item())
        weights = moved
    return steps, memory


@pytest.mark.parametrize(
    ("rule", "v", "step"),
    [(Adam(), 1.0099e-4, 0.0905028), (Yogi(), 1.01e-4, 0.0904988), (Adagrad(), 0.010001, 0.0990050)],
    ids=lambda value: type(value).__name__,
)
def test_the_first_step(make_home, rule, v, step):
    steps, memory = rounds(make_home, rule, [0.1])
    assert memory["v"].item() == pytest.approx(v)
    assert steps == pytest.approx([step], abs=5e-8)


def reference(rule, changes):
    """The same in plain NumPy, straight from the paper."""
    m, v, steps = 0.0, rule.epsilon**2 if rule.first_v is None else rule.first_v, []
    for change in changes:
        beta1, beta2 = getattr(rule, "beta1", 0.0), getattr(rule, "beta2", 0.0)
        m = beta1 * m + (1 - beta1) * change
        square = change**2
        if isinstance(rule, Adagrad):
            v = v + square
        elif isinstance(rule, Adam):
            v = beta2 * v + (1 - beta2) * square
        else:
            v = v - (1 - beta2) * square * np.sign(v - square)
        steps.append(rule.lr * m / (np.sqrt(v) + rule.epsilon))
    return steps


@settings(max_examples=25)
@given(st.lists(st.floats(-2, 2), min_size=1, max_size=8), st.sampled_from([None, 0.0, 0.5]))
def test_many_steps_follow_the_paper(make_home, changes, first_v):
    for kind in (Adagrad, Adam, Yogi):
        rule = kind(first_v=first_v)
        steps, memory = rounds(make_home, rule, changes)
        assert steps == pytest.approx(reference(rule, changes), abs=1e-12)
        assert memory["v"].item() >= 0


def test_bias_correction_is_that_of_flower(make_home):
    changes = [0.1, -0.3, 0.2]
    steps, memory = rounds(make_home, Adam(correct_bias=True), changes)
    plain, _ = rounds(make_home, Adam(), changes)
    factors = [np.sqrt(1 - 0.99 ** (t + 1)) / (1 - 0.9 ** (t + 1)) for t in (1, 2, 3)]
    assert steps == pytest.approx(np.multiply(plain, factors).tolist())
    assert memory["merges"].item() == 3


def test_momentum_adds_up(make_home):
    steps, memory = rounds(make_home, Momentum(), [0.1] * 200)
    assert steps[:3] == pytest.approx([0.1, 0.19, 0.271])
    assert steps[-1] == pytest.approx(1)
    assert memory["velocity"].item() == pytest.approx(1)


def test_momentum_as_an_average(make_home):
    steps, _ = rounds(make_home, Momentum(velocity="average", lr=2.0), [0.1] * 200)
    assert steps[:2] == pytest.approx([0.02, 0.038])
    assert steps[-1] == pytest.approx(0.2)


@pytest.mark.parametrize(
    "rule", [Momentum(beta=0), Adam(lr=1, beta1=0, beta2=1, first_v=1, epsilon=1e-30)], ids=["momentum", "adam"]
)
@settings(max_examples=25)
@given(st.lists(st.lists(st.floats(-9, 9), min_size=3, max_size=3), min_size=1, max_size=5))
def test_without_momentum_and_adaptation_it_is_the_mean(make_home, rule, models):
    home = make_home(models, samples=list(range(1, len(models) + 1)), current=[0.5, -0.25, 3.0])
    expected = Mean().apply(home).weights.tolist()
    assert rule.apply(home).weights.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=repr)
class TestAllOfThem:
    def test_models_that_did_not_change_are_a_fixed_point(self, make_home, rule):
        home = make_home([[1.5, -2.0]] * 3, current=[1.5, -2.0])
        assert rule.apply(home).weights.tolist() == [1.5, -2.0]

    def test_without_changes_the_model_comes_to_rest(self, make_home, rule):
        steps, _ = rounds(make_home, rule, [0.1] + [0.0] * 400)
        assert abs(steps[-1]) < 1e-12

    def test_parameters_move_and_buffers_take_the_mean(self, make_home, rule, batch_norm):
        models = [[1.0, 0.0, 2.0, 4.0, 3.0], [3.0, 0.0, 6.0, 8.0, 7.0]]
        home = make_home(models, samples=[1, 3], layout=batch_norm, dtype=torch.float32)
        weights, memory = rule.apply(home)
        assert weights.dtype == torch.float32
        assert weights[1:].tolist() == [0.0, 5.0, 7.0, 7.0]
        assert {tensor.dtype for tensor in memory.values()} == {torch.float32}
        assert {tuple(tensor.shape) for name, tensor in memory.items() if name != "merges"} == {(2,)}

    def test_the_mean_is_by_samples_or_plain(self, make_home, rule):
        home = make_home([[1.0], [3.0]], samples=[1, 3])
        for weights, change in (("samples", 2.5), ("uniform", 2.0)):
            one = make_home([[change]], current=[0.0])
            chosen = rule.model_copy(update={"weights": weights})
            assert chosen.apply(home).weights.item() == pytest.approx(chosen.apply(one).weights.item())

    def test_without_samples_nothing_changes(self, make_home, rule):
        kept = {"v": torch.ones(1), "velocity": torch.ones(1)}
        home = make_home([[1.0]], samples=[0], current=[7.0], memory=kept)
        merged = rule.apply(home)
        assert merged.weights.tolist() == [7.0]
        assert merged.weights.data_ptr() != home.current.data_ptr()
        assert merged.memory == kept

    def test_nothing_handed_in_is_written_to(self, make_home, rule):
        first = rule.apply(make_home([[1.0], [2.0]]))
        home = make_home([[3.0], [4.0]], current=first.weights, memory=first.memory)
        before = [tensor.clone() for tensor in (home.current, home.arrivals[0].weights, *first.memory.values())]
        rule.apply(home)
        assert before == [home.current, home.arrivals[0].weights, *first.memory.values()]

    def test_sums_are_taken_in_double_precision(self, make_home, rule):
        models = [[1e8], [1.0], [-1e8], [1.0]]
        home = make_home(models, dtype=torch.float32)
        one = make_home([[0.5]], dtype=torch.float32)
        assert rule.apply(home).weights.tolist() == rule.apply(one).weights.tolist()

    def test_the_order_of_arrivals_does_not_matter(self, make_home, rule):
        home = make_home(np.random.default_rng(0).normal(size=(7, 3)), samples=[3, 1, 4, 1, 5, 9, 2])
        turned = replace(home, arrivals=home.arrivals[::-1])
        assert rule.apply(home).weights.tolist() == pytest.approx(rule.apply(turned).weights.tolist())


@pytest.mark.parametrize(
    ("rule", "options", "message"),
    [
        (Adagrad, {"beta1": 0.9}, "merge.beta1: unknown key 'beta1'"),
        (Adam, {"epsilon": 0}, "merge.epsilon: must be greater than 0, got 0"),
        (Yogi, {"correct_bias": True}, "merge.correct_bias: unknown key"),
        (Momentum, {"beta": 1}, "merge.beta: must be less than 1, got 1"),
        (Momentum, {"velocity": "mean"}, "merge.velocity: must be 'sum' or 'average', got 'mean'"),
    ],
)
def test_impossible_options_are_refused(rule, options, message):
    with pytest.raises(SpecError) as refused:
        validate(rule, options, "merge.")
    assert message in str(refused.value)
