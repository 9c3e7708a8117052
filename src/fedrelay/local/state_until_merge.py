"""Client states that last until a merge, and what a client's first hop after it finds.

No message says that a merge took place. Every hop knows how many merges there were before, and a client stores that
number with its state. If it differs at the client's next hop, a merge came between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedrelay.local.terms.tensor_declarations import ClientState

MERGES = "number of merges"
"""The name under which a client stores it; names of term tensors have no spaces."""


def with_merge_number(
    state: Mapping[str, Tensor], until_merge: Sequence[ClientState], merges: int
) -> Mapping[str, Tensor]:
    """What a client stores after a hop: its state and, if some of it lasts until a merge, the number of merges."""
    return {**state, MERGES: torch.tensor([merges])} if until_merge else state


def state_after_merges(
    stored: Mapping[str, Tensor], until_merge: Sequence[ClientState], merges: int
) -> Mapping[str, Tensor]:
    """The client state that a hop finds.

    Args:
        stored: What the client stored after its last hop; empty before its first.
        until_merge: The states of the method that last until a merge.
        merges: How many merges there were before the hop.

    Example:
        >>> found = state_after_merges(
        ...     {"sum": torch.tensor([5.0]), "change": torch.tensor([2.0]), MERGES: torch.tensor([3])},
        ...     [ClientState("change", until_merge=True, added_at_merge_to="sum")],
        ...     merges=4,
        ... )
        >>> found["sum"], found["change"]
        (tensor([7.]), tensor([0.]))
    """
    if not until_merge or int(stored.get(MERGES, merges)) == merges:
        return stored
    found = dict(stored)
    for state in until_merge:
        change = found[state.name]
        if target := state.added_at_merge_to:
            found[target] = found[target] + change
        found[state.name] = torch.zeros_like(change)
    return found
