"""What lasts until a merge, and what a client's first hop after it finds."""

from __future__ import annotations

import torch

from fedrelay.local.state_until_merge import state_after_merges, with_merge_number
from fedrelay.local.terms.tensor_declarations import ClientState

UNTIL_MERGE = [ClientState("change", until_merge=True, added_at_merge_to="sum"), ClientState("hops", until_merge=True)]


def stored(merges):
    state = {"sum": torch.tensor([1.0, 2.0]), "change": torch.tensor([0.5, -3.0]), "hops": torch.tensor([4.0])}
    return with_merge_number(state, UNTIL_MERGE, merges)


def test_before_the_next_merge_nothing_changes():
    before = stored(7)
    assert state_after_merges(before, UNTIL_MERGE, 7) is before


def test_after_one_or_more_merges_the_change_is_added_once():
    for merges in (8, 12):
        found = state_after_merges(stored(7), UNTIL_MERGE, merges)
        assert [found[name].tolist() for name in ("sum", "change", "hops")] == [[1.5, -1.0], [0.0, 0.0], [0.0]]
    assert stored(7)["sum"].tolist() == [1.0, 2.0]  # what is stored stays as it is


def test_before_its_first_hop_a_client_has_nothing():
    assert state_after_merges({}, UNTIL_MERGE, 3) == {}


def test_methods_without_such_states_store_no_number():
    state = {"drift": torch.ones(2)}
    assert with_merge_number(state, (), 5) is state
    assert state_after_merges(state, (), 5) is state
