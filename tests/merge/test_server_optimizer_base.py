"""What server optimisers have in common."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.merge.conftest import server_steps

from fedrelay.merge.adaptive import ServerAdagrad, ServerAdam, ServerYogi
from fedrelay.merge.mean import Mean
from fedrelay.merge.server_momentum import ServerMomentum

RULES = [
    ServerAdagrad(),
    ServerAdam(),
    ServerAdam(correct_bias=True),
    ServerYogi(),
    ServerMomentum(),
    ServerMomentum(velocity="average"),
]


@pytest.mark.parametrize(
    "rule",
    [ServerMomentum(beta=0), ServerAdam(lr=1, beta1=0, beta2=1, first_v=1, epsilon=1e-30)],
    ids=["momentum", "adam"],
)
@settings(max_examples=25)
@given(st.lists(st.lists(st.floats(-9, 9), min_size=3, max_size=3), min_size=1, max_size=5))
def test_without_momentum_and_adaptation_it_is_the_mean(make_inputs, rule, models):
    inputs = make_inputs(models, samples=list(range(1, len(models) + 1)), global_model=[0.5, -0.25, 3.0])
    expected = Mean().apply(inputs).weights.tolist()
    assert rule.apply(inputs).weights.tolist() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("rule", RULES, ids=repr)
class TestAllOfThem:
    def test_models_that_did_not_change_are_a_fixed_point(self, make_inputs, rule):
        inputs = make_inputs([[1.5, -2.0]] * 3, global_model=[1.5, -2.0])
        assert rule.apply(inputs).weights.tolist() == [1.5, -2.0]

    def test_without_changes_the_model_comes_to_rest(self, rule):
        steps, _ = server_steps(rule, [0.1] + [0.0] * 400)
        assert abs(steps[-1]) < 1e-12

    def test_parameters_move_and_buffers_take_the_mean(self, make_inputs, rule, batch_norm):
        models = [[1.0, 0.0, 2.0, 4.0, 3.0], [3.0, 0.0, 6.0, 8.0, 7.0]]
        inputs = make_inputs(models, samples=[1, 3], layout=batch_norm, dtype=torch.float32)
        weights, state = rule.apply(inputs)
        assert weights.dtype == torch.float32
        assert weights[1:].tolist() == [0.0, 5.0, 7.0, 7.0]
        assert {tensor.dtype for tensor in state.values()} == {torch.float32}
        assert {tuple(tensor.shape) for name, tensor in state.items() if name != "merges"} == {(2,)}

    def test_the_mean_is_by_samples_or_plain(self, make_inputs, rule):
        inputs = make_inputs([[1.0], [3.0]], samples=[1, 3])
        for weights, change in (("samples", 2.5), ("uniform", 2.0)):
            one = make_inputs([[change]], global_model=[0.0])
            chosen = rule.model_copy(update={"weights": weights})
            assert chosen.apply(inputs).weights.item() == pytest.approx(chosen.apply(one).weights.item())

    def test_without_samples_nothing_changes(self, make_inputs, rule):
        kept = {"v": torch.ones(1), "velocity": torch.ones(1)}
        inputs = make_inputs([[1.0]], samples=[0], global_model=[7.0], state=kept)
        merged = rule.apply(inputs)
        assert merged.weights.tolist() == [7.0]
        assert merged.weights.data_ptr() != inputs.global_model.data_ptr()
        assert merged.state == kept

    def test_nothing_handed_in_is_written_to(self, make_inputs, rule):
        first = rule.apply(make_inputs([[1.0], [2.0]]))
        inputs = make_inputs([[3.0], [4.0]], global_model=first.weights, state=first.state)
        before = [tensor.clone() for tensor in (inputs.global_model, inputs.arrivals[0].weights, *first.state.values())]
        rule.apply(inputs)
        assert before == [inputs.global_model, inputs.arrivals[0].weights, *first.state.values()]

    def test_sums_are_taken_in_double_precision(self, make_inputs, rule):
        models = [[1e8], [1.0], [-1e8], [1.0]]
        inputs = make_inputs(models, dtype=torch.float32)
        one = make_inputs([[0.5]], dtype=torch.float32)
        assert rule.apply(inputs).weights.tolist() == rule.apply(one).weights.tolist()

    def test_the_order_of_arrivals_does_not_matter(self, make_inputs, rule):
        inputs = make_inputs(np.random.default_rng(0).normal(size=(7, 3)), samples=[3, 1, 4, 1, 5, 9, 2])
        turned = replace(inputs, arrivals=inputs.arrivals[::-1])
        assert rule.apply(inputs).weights.tolist() == pytest.approx(rule.apply(turned).weights.tolist())
