"""One input or several: every function keeps the structure."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fedrelay.errors import DataError
from fedrelay.models.nested_inputs import (
    call_module,
    concatenate,
    logits_of,
    rows_of,
    shapes_of,
    single_shape,
    tensors_of,
    with_float_type,
)

A, B = torch.arange(6.0).view(3, 2), torch.arange(3)
FORMS = [A, (A, B), {"a": A, "b": B}]


@pytest.mark.parametrize("inputs", FORMS)
def test_rows_and_batches_fit_together(inputs):
    parts = [rows_of(inputs, slice(0, 1)), rows_of(inputs, [1, 2])]
    joined = concatenate(parts)
    assert type(joined) is type(inputs)
    assert all(torch.equal(*pair) for pair in zip(tensors_of(joined), tensors_of(inputs), strict=True))
    assert shapes_of(joined) == shapes_of(inputs)


def test_only_one_tensor_has_a_single_shape():
    assert [single_shape(shapes_of(inputs)) for inputs in FORMS] == [(2,), None, None]
    assert single_shape(shapes_of((B,))) is None


def test_whole_numbers_keep_their_type():
    halved = with_float_type({"a": A, "b": B}, torch.float16)
    assert (halved["a"].dtype, halved["b"].dtype) == (torch.float16, torch.int64)


def test_batches_of_other_structure_cannot_be_joined():
    for first, other in ((A, torch.zeros(1, 3)), ((A, B), (A,))):
        with pytest.raises(DataError, match="cannot be joined"):
            concatenate([first, other])


def test_inputs_with_names_are_joined_by_name():
    joined = concatenate([{"ids": B, "mask": B + 10}, {"mask": B + 20, "ids": B + 30}])
    assert {name: tensor.tolist() for name, tensor in joined.items()} == {
        "ids": [0, 1, 2, 30, 31, 32],
        "mask": [10, 11, 12, 20, 21, 22],
    }


@pytest.mark.parametrize(
    ("other", "found"), [({"a": A}, "a"), ({"a": A, "c": B}, "a, c"), ((A, B), "inputs without names")]
)
def test_inputs_with_other_names_are_refused(other, found):
    with pytest.raises(DataError, match=f"^inputs: all batches must have the same names, got a, b and {found}$"):
        concatenate([{"a": A, "b": B}, other])


class Recorder(torch.nn.Module):
    def forward(self, *values, **named):
        return len(values), sorted(named)


def test_a_module_is_called_by_the_structure_of_its_inputs():
    assert [call_module(Recorder(), inputs) for inputs in FORMS] == [(1, []), (2, []), (0, ["a", "b"])]


def test_logits_are_found_in_objects_and_dicts():
    for outputs in (A, SimpleNamespace(logits=A, loss=None), {"logits": A}):
        assert logits_of(outputs) is A
    assert logits_of({"boxes": A}) == {"boxes": A}
