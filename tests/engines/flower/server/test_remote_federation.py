"""What nodes say of their samples is checked before anything is made of it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from fedrelay.engines.flower.node_facts import parse_facts

GOOD = {"samples": 5, "tests": 0, "classes": 2, "shape": [3], "kind": "tabular", "fingerprint": "f"}


def test_facts_as_a_node_tells_them():
    found = parse_facts({**GOOD, "histogram": [2, 3], "kind of request": "who"})
    assert (found.samples, found.shape, found.histogram) == (5, (3,), (2, 3))
    everywhere = parse_facts({**GOOD, "histogram": [90, 3], "target_shape": [3]})  # a label at every position
    assert everywhere.histogram == (90, 3)


@pytest.mark.parametrize(
    "lie",
    [
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
