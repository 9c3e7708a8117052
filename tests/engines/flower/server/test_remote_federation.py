"""What nodes say of their samples is checked before anything is made of it."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from pydantic import ValidationError

from fedrelay.engines.flower.node_facts import describe_inputs, parse_facts
from fedrelay.engines.flower.server.remote_federation import RemoteFederation
from fedrelay.errors import DataError

GOOD = {"samples": 5, "tests": 0, "classes": 2, "shape": [3], "kind": "tabular", "fingerprint": "f"}


def test_facts_as_a_node_tells_them():
    found = parse_facts({**GOOD, "histogram": [2, 3], "kind of request": "who"})
    assert (found.samples, found.shape, found.histogram) == (5, (3,), (2, 3))
    everywhere = parse_facts({**GOOD, "histogram": [90, 3], "target_shape": [3]})  # a label at every position
    assert everywhere.histogram == (90, 3)
    numbers = parse_facts({**GOOD, "classes": 0, "task": "regression", "histogram": []})  # shared, but nothing to count
    assert numbers.histogram == ()


MASK = {"name": "mask", "shape": [6], "dtype": "bool"}
SEVERAL = {**GOOD, "kind": "multi-input", "shape": [], "inputs": [{**MASK, "name": "ids", "dtype": "int64"}, MASK]}


def test_facts_about_several_inputs():
    found = parse_facts(SEVERAL)
    assert {name: (each.shape, each.dtype) for name, each in found.empty_inputs().items()} == {
        "ids": ((0, 6), torch.int64),
        "mask": ((0, 6), torch.bool),
    }
    assert describe_inputs(found.empty_inputs()) == found.inputs
    in_order = parse_facts({**SEVERAL, "inputs": [{**MASK, "name": None}] * 2})
    assert [each.shape for each in in_order.empty_inputs()] == [(0, 6), (0, 6)]
    federation = RemoteFederation("nodes", ("a", "b"), (found, found))
    assert (federation.sample_shape, federation.test.size) == ({"ids": (6,), "mask": (6,)}, 0)


@pytest.mark.parametrize(
    ("changes", "differ"),
    [
        ({"name": "marks"}, True),
        ({"dtype": "float32"}, True),
        ({"shape": [6, 6]}, True),
        ({"shape": [7]}, False),  # batches may be padded to any length
    ],
)
def test_nodes_with_other_inputs_are_refused(changes, differ):
    facts = parse_facts(SEVERAL), parse_facts({**SEVERAL, "inputs": [{**MASK, **changes}, SEVERAL["inputs"][0]]})
    message = "the samples of node 'b' differ from those of node 'a': shape {.*1-d torch.int64.*}, not {.*}"
    with pytest.raises(DataError, match=message) if differ else nullcontext():
        RemoteFederation("nodes", ("a", "b"), facts)


@pytest.mark.parametrize(
    "lie",
    [
        {"inputs": [MASK]},
        {"kind": "multi-input"},
        {"kind": "multi-input", "inputs": [MASK]},
        {"kind": "multi-input", "shape": [], "inputs": [MASK, MASK]},
        {"kind": "multi-input", "shape": [], "inputs": [MASK, {**MASK, "name": None}]},
        {"kind": "multi-input", "shape": [], "inputs": [{**MASK, "dtype": "object"}]},
        {"histogram": [2, 3, 0]},
        {"histogram": [5]},
        {"histogram": [2, 2]},
        {"histogram": [6, -1]},
        {"shape": [0]},
        {"shape": [-3]},
        {"shape": [10**9]},
        {"samples": -1},
        {"classes": 10**9},
        {"kind": "magic"},
    ],
    ids=str,
)
def test_impossible_facts_are_refused(lie):
    with pytest.raises(ValidationError):
        parse_facts({**GOOD, **lie})
