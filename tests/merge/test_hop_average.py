from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedrelay.merge.hop_average import HopAverage


@pytest.mark.parametrize(("of", "trained"), [("ema", [5.0, 6.0]), ("mean", [1.5, 2.5])])
def test_the_trained_part_is_the_fold_or_the_mean_of_the_route_and_buffers_are_the_last(
    make_inputs, batch_norm, of, trained
):
    inputs = make_inputs(
        [[1.0, 2.0, 3.0, 4.0, 5.0]], hops=[[1, 1]], global_model=[0.0] * 5, layout=batch_norm, dtype=torch.float32
    )
    payload = {"fold": torch.tensor([5.0, 6.0, 0.0, 0.0, 0.0]), "sum": torch.tensor([3.0, 5.0, 0.0, 0.0, 0.0])}
    inputs = replace(inputs, arrivals=[replace(inputs.arrivals[0], payload=payload)])
    assert HopAverage(of=of).apply(inputs).weights.tolist() == [*trained, 3.0, 4.0, 5.0]
    assert inputs.arrivals[0].weights.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
