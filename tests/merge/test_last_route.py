from __future__ import annotations

from fedrelay.merge.last_route import LastRoute


def test_last_takes_the_model_of_the_last_route(make_inputs):
    inputs = make_inputs([[1.0, 0.0], [4.0, 3.0]], samples=[5, 1])
    merged = LastRoute().apply(inputs)
    assert (merged.weights.tolist(), merged.state) == ([4.0, 3.0], {})
    merged.weights.zero_()
    assert inputs.arrivals[1].weights.tolist() == [4.0, 3.0]
