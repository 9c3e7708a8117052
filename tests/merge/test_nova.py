from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.merge.mean import Mean
from fedrelay.merge.nova import Nova, change_factors, hop_norm


def test_changes_are_divided_by_steps(make_inputs):
    inputs = make_inputs([[-0.2], [-1.2]], hops=[[2], [6]])
    assert Nova().apply(inputs).weights.tolist() == pytest.approx([-0.6])
    assert Mean().apply(inputs).weights.tolist() == pytest.approx([-0.7])


def test_the_work_of_a_hop():
    assert hop_norm(7, 0.0, 0.0) == 7
    assert hop_norm(7, 0.9, 0.0) == pytest.approx(23.046721)
    assert hop_norm(7, 0.0, 0.1 * 0.5) == pytest.approx(6.033254, abs=5e-7)
    assert hop_norm(0, 0.9, 0.1) == 0


@settings(max_examples=60)
@given(st.integers(1, 60), st.floats(0, 0.99), st.floats(1e-3, 0.9))
def test_the_work_is_the_closed_form_of_the_paper(steps, momentum, pull):
    expected = (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
    assert hop_norm(steps, momentum, 0.0) == pytest.approx(expected, rel=1e-6)
    assert hop_norm(steps, 0.0, pull) == pytest.approx((1 - (1 - pull) ** steps) / pull)


@settings(max_examples=60)
@given(st.integers(1, 12), st.floats(0, 0.95), st.floats(0, 3))
def test_the_work_is_how_much_of_each_gradient_arrives(steps, momentum, pull):
    shares = []
    for impulse in range(steps):  # what one unit gradient, at one step, leaves in the model
        moved = velocity = 0.0
        for step in range(steps):
            velocity = momentum * velocity + (step == impulse) - pull * moved
            moved += velocity
        shares.append(abs(moved))
    assert hop_norm(steps, momentum, pull) == pytest.approx(sum(shares))


def test_momentum_starts_anew_at_every_hop(make_inputs):
    train = TrainSettings(momentum=0.9)
    inputs = make_inputs([[1.0], [1.0]], hops=[[3, 4], [7]], train=train)
    works = [hop_norm(3, 0.9, 0.0) + hop_norm(4, 0.9, 0.0), hop_norm(7, 0.9, 0.0)]
    assert change_factors(inputs) == pytest.approx([sum(works) / 2 / 2 / work for work in works])


def test_with_a_proximal_term_the_mean_counts_steps(make_inputs):
    inputs = make_inputs(
        [[1.0], [1.0]], hops=[[2], [6]], samples=[1, 3], train=TrainSettings(lr=0.1), terms=[ProximalPenalty(mu=0.5)]
    )
    works = [(1 - 0.95**2) / 0.05, (1 - 0.95**6) / 0.05]
    assert change_factors(inputs) == pytest.approx([5 * 0.25 / works[0], 5 * 0.75 / works[1]])
    assert change_factors(make_inputs([[1.0]], hops=[[2]], terms=[ProximalPenalty(mu=0.0)])) == [1.0]


def test_smaller_steps_count_for_less(make_inputs):
    """A hop with half the learning rate of the round moves the model half as far."""
    inputs = make_inputs([[1.0], [1.0]], hops=[[4, 4], [8]], train=TrainSettings(lr=0.2))
    first, second = inputs.arrivals
    halved = replace(first, hops=(replace(first.hops[0], lr=0.2), replace(first.hops[1], lr=0.1)))
    inputs = replace(inputs, arrivals=[halved, second])
    assert change_factors(inputs) == pytest.approx([7 / 2 / 6, 7 / 2 / 8])  # 4 + 2 steps against 8
    with_pull = replace(inputs, terms=[ProximalPenalty(mu=0.5)])
    works = [(1 - 0.9**4) / 0.1 + 0.5 * (1 - 0.95**4) / 0.05, (1 - 0.9**8) / 0.1]
    assert change_factors(with_pull) == pytest.approx([7 / 2 / work for work in works])


@settings(max_examples=60)
@given(st.integers(1, 9), st.lists(st.tuples(st.floats(-9, 9), st.integers(1, 50)), min_size=1, max_size=6))
def test_equal_steps_are_the_mean(make_inputs, steps, found):
    models, samples = [[value] for value, _ in found], [n for _, n in found]
    inputs = make_inputs(models, samples=samples, hops=[[steps]] * len(found), global_model=[0.5])
    assert Nova().apply(inputs).weights.tolist() == pytest.approx(Mean().apply(inputs).weights.tolist(), abs=1e-12)


def test_routes_of_equal_length_through_the_same_clients_are_the_mean(make_inputs):
    inputs = make_inputs(
        [[1.0], [2.0], [4.0]], hops=[[1, 5, 2], [5, 2, 1], [2, 1, 5]], train=TrainSettings(momentum=0.5)
    )
    assert Nova().apply(inputs).weights.tolist() == pytest.approx([7 / 3])


def test_a_route_without_steps_does_not_count(make_inputs):
    inputs = make_inputs([[9.0], [-1.2], [-0.2]], hops=[[0], [0, 6], [2]], samples=[5, 1, 1])
    assert Nova().apply(inputs).weights.tolist() == pytest.approx([-0.6])
    assert change_factors(inputs)[0] == 0


@pytest.mark.parametrize("how", [{"hops": [[0], [0]]}, {"samples": [0, 0]}])
def test_without_steps_or_samples_the_model_stays(make_inputs, how):
    inputs = make_inputs([[1.0], [2.0]], global_model=[7.0], **{"samples": [0, 0], **how})
    merged = Nova().apply(inputs)
    assert (merged.weights.tolist(), merged.state) == ([7.0], {})
    assert merged.weights.data_ptr() != inputs.global_model.data_ptr()


def test_more_steps_do_not_pull_harder(make_inputs):
    def at_rest(rule):
        """Where rounds lead to: quadratic losses with optima 0 and 1, the second client takes ten times the steps."""

        def next_round(start):  # affine in the start
            models = [[start * 0.999**2], [1 + (start - 1) * 0.999**20]]
            return rule.apply(make_inputs(models, hops=[[2], [20]], global_model=[start])).weights.item()

        return next_round(0.0) / (1 - (next_round(1.0) - next_round(0.0)))

    assert at_rest(Nova()) == pytest.approx(0.5, abs=0.01)
    assert at_rest(Mean()) > 0.9


def test_buffers_take_the_mean_by_samples(make_inputs, batch_norm):
    models = [[1.0, 0.0, 2.0, 4.0, 3.0], [3.0, 0.0, 6.0, 8.0, 7.0]]
    inputs = make_inputs(models, samples=[1, 3], hops=[[1], [4]], layout=batch_norm, dtype=torch.float32)
    merged = Nova().apply(inputs).weights
    assert merged.dtype == torch.float32
    assert merged[2:].tolist() == [5.0, 7.0, 7.0]
    assert merged[0].item() == pytest.approx(3.25 * (0.25 * 1 / 1 + 0.75 * 3 / 4))


def test_the_order_of_arrivals_does_not_matter(make_inputs):
    rng = np.random.default_rng(0)
    models, samples, steps = rng.normal(size=(6, 4)), rng.integers(1, 9, 6).tolist(), rng.integers(1, 9, 6)
    order = rng.permutation(6)
    one = make_inputs(models, samples=samples, hops=[[n] for n in steps])
    two = make_inputs(models[order], samples=[samples[i] for i in order], hops=[[steps[i]] for i in order])
    assert Nova().apply(one).weights.tolist() == pytest.approx(Nova().apply(two).weights.tolist())
