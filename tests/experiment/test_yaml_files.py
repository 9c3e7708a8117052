"""YAML text that is written can be read again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedrelay.experiment.yaml_files import parse_yaml, to_yaml

SCALARS = st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False) | st.text(max_size=20)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(DATA)
def test_what_is_written_is_read_again(value):
    assert parse_yaml(to_yaml(value)) == value


def test_keys_stay_in_their_order():
    assert to_yaml({"b": 1, "a": 2}) == "b: 1\na: 2\n"
