from __future__ import annotations

import torch

from fedrelay.merge.drift import MeanPlusDrift


def test_the_mean_is_moved_by_the_mean_drift_of_all_clients(make_inputs):
    """Two of four clients took part, and moved by 1 and 3: H = 4/4, then H = 1 + 4/4."""
    first = MeanPlusDrift().apply(make_inputs([[1.0], [3.0]], samples=[9, 1], clients=4))
    assert (first.weights.tolist(), first.state["drift"].tolist()) == ([3.0], [1.0])
    moved = [first.weights + 1, first.weights + 3]
    second = MeanPlusDrift().apply(make_inputs(moved, clients=4, global_model=first.weights, state=first.state))
    assert (second.weights.tolist(), second.state["drift"].tolist()) == ([7.0], [2.0])
    assert first.state["drift"].tolist() == [1.0]


def test_buffers_take_the_plain_mean(make_inputs, batch_norm):
    models = [[1.0, 0.0, 2.0, 4.0, 3.0], [3.0, 0.0, 6.0, 8.0, 7.0]]
    merged = MeanPlusDrift().apply(make_inputs(models, samples=[1, 3], layout=batch_norm, dtype=torch.float32))
    assert merged.weights.tolist() == [4.0, 0.0, 4.0, 6.0, 7.0]
    assert merged.state["drift"].tolist() == [2.0, 0.0]
