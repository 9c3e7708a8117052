"""Which samples meet at which step when clients of unequal size are trained side by side.

Lanes are sorted, the largest clients first, so that the lanes under way at a step are always the first ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STEPS_AT_ONCE = 32
"""The most steps of a block: what is laid out for all steps of a block at once must not take much room."""

Orders = Sequence[NDArray[np.int64]]
"""The order of a client's samples in every epoch."""


@dataclass(frozen=True)
class StepBlock:
    """Some steps of all lanes."""

    rows: Tensor
    """Samples, as rows of all clients' samples one after another, `[steps, lanes, width]`."""
    shares: Tensor
    """How much each counts, `[steps, lanes, 1, width]`: 1/b in a batch of b, 0 for a place left empty."""
    under_way: list[int]
    """How many lanes take part in each step."""

    def stretches(self) -> Iterator[tuple[slice, int]]:
        """Steps of the same lanes, and how many lanes these are."""
        begin = 0
        for lanes, steps in groupby(self.under_way):
            end = begin + len(list(steps))
            yield slice(begin, end), lanes
            begin = end


def schedule(orders: Sequence[Orders], sizes: Sequence[int], width: int, dtype: torch.dtype) -> Iterator[StepBlock]:
    """All steps of clients of those sizes, in batches of a width."""
    frame = frame_of(tuple(sizes), len(orders[0]), width, dtype)
    rows = frame.firsts.copy()
    rows[frame.places] += np.concatenate([order for client in orders for order in client])
    all_rows = torch.from_numpy(rows).view(len(frame.under_way), len(sizes), width)
    for first in range(0, len(frame.under_way), STEPS_AT_ONCE):
        span = slice(first, first + STEPS_AT_ONCE)
        yield StepBlock(all_rows[span], frame.shares[span], frame.under_way[span])


@dataclass(frozen=True)
class BatchFrame:
    """What a schedule takes from the sizes of the clients alone; not to be written to."""

    firsts: NDArray[np.int64]
    """The first sample of the client at every place of every step, which stays where a place is left empty."""
    places: NDArray[np.int64]
    """Where the samples of the first client go, in the order in which they are seen, then those of the second, …"""
    shares: Tensor
    under_way: list[int]


@lru_cache(maxsize=64)
def frame_of(sizes: tuple[int, ...], epochs: int, width: int, dtype: torch.dtype) -> BatchFrame:
    """Kept, because where clients are alike the same sizes come again and again."""
    samples = np.array(sizes)
    steps = epochs * -(-samples // width)
    counts = shares(samples, steps, width)
    numbers = np.arange(counts.size).reshape(-1, len(sizes), width).transpose(1, 0, 2)
    starts = np.minimum(samples.cumsum() - samples, samples.sum() - 1)  # the last may be those of clients without any
    return BatchFrame(
        np.tile(np.repeat(starts, width), counts.shape[1]),
        numbers[counts > 0],
        torch.from_numpy(counts).transpose(0, 1).unsqueeze(2).to(dtype),
        (steps > np.arange(counts.shape[1])[:, None]).sum(1).tolist(),
    )


def shares(sizes: NDArray[np.int64], steps: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """How much each place counts, `[lanes, steps, width]`; the last batch of an epoch may be short."""
    step = np.arange(steps.max())
    batch = step % np.maximum(-(-sizes // width), 1)[:, None]
    taken = np.minimum(sizes[:, None] - batch * width, width)
    taken[step >= steps[:, None]] = 0
    counts: NDArray[np.float64] = (np.arange(width) < taken[..., None]) / np.maximum(taken, 1)[..., None]
    return counts
