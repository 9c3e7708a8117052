"""What a merge may return."""

from __future__ import annotations

import pytest
import torch

from fedrelay.merge.base import MergeResult, checked_result

W = torch.zeros(2)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "must return a MergeResult, got NoneType"),
        (W, "must return a MergeResult, got Tensor"),
        ((W, {}), "must return a MergeResult, got tuple"),
        (MergeResult(W[:1]), "must return a MergeResult with 2 weights of torch.float32, got (1,) torch.float32"),
        (MergeResult(W.double()), "with 2 weights of torch.float32, got (2,) torch.float64"),
        (MergeResult([1, 2]), "with 2 weights of torch.float32, got list"),
        (MergeResult(W, {"k": 3}), "the state of a MergeResult must map names to tensors, got 'k': 3"),
        (MergeResult(W, {1: W}), "the state of a MergeResult must map names to tensors, got 1: "),
        (MergeResult(W, [W]), "the state of a MergeResult must be a mapping, got list"),
    ],
)
def test_other_things_than_weights_and_tensors_are_refused(make_inputs, returned, message):
    with pytest.raises(TypeError) as refused:
        checked_result(returned, make_inputs([[1, 2], [3, 4]], dtype=torch.float32))
    assert message in str(refused.value)


def test_weights_must_be_new_because_those_of_arrivals_are_valid_for_one_round_only(make_inputs):
    inputs = make_inputs([[1, 2], [3, 4]], dtype=torch.float32)
    for old in (inputs.global_model, inputs.arrivals[1].weights, inputs.arrivals[0].weights[:]):
        with pytest.raises(ValueError, match="must return new weights; clone"):
            checked_result(MergeResult(old), inputs)
        assert checked_result(MergeResult(old.clone()), inputs).weights.tolist() == old.tolist()
