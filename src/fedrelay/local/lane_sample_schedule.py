"""Which samples each lane uses at which step when clients of different sizes are trained as batched models.

Lanes are sorted by their number of steps, the largest first, so that the lanes that are active at a step are always the
first.
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

STEPS_PER_BLOCK = 32
"""Limits the memory of the tensors that are prepared for a whole block."""

SampleOrder = Sequence[NDArray[np.int64]]
"""The order of a client's samples in each epoch, the last of which may end early."""


@dataclass(frozen=True)
class LaneSampleBlock:
    """Consecutive steps of all lanes."""

    rows: Tensor
    """Row of each sample in the concatenated samples of all clients, `[steps, lanes, batch]`."""
    sample_weights: Tensor
    """Weight of each sample, `[steps, lanes, 1, batch]`: 1/b in a batch of b, 0 for padding."""
    active_lanes: list[int]
    """The number of lanes that take part in each step."""

    def spans(self) -> Iterator[tuple[slice, int]]:
        """Spans of steps with the same number of active lanes, and that number."""
        begin = 0
        for lanes, steps in groupby(self.active_lanes):
            end = begin + len(list(steps))
            yield slice(begin, end), lanes
            begin = end


def schedule(
    orders: Sequence[SampleOrder], sizes: Sequence[int], steps: Sequence[int], width: int, models: Tensor
) -> Iterator[LaneSampleBlock]:
    """All steps of clients of these sizes, in batches of `width` samples, in the type and on the device of models."""
    padding = padding_for(tuple(sizes), tuple(steps), width, models.dtype, models.device)
    rows = padding.first_rows.copy()
    rows[padding.positions] += np.concatenate([order for client in orders for order in client])
    all_rows = torch.from_numpy(rows).view(len(padding.active_lanes), len(sizes), width).to(models.device)
    for first in range(0, len(padding.active_lanes), STEPS_PER_BLOCK):
        span = slice(first, first + STEPS_PER_BLOCK)
        yield LaneSampleBlock(all_rows[span], padding.sample_weights[span], padding.active_lanes[span])


@dataclass(frozen=True)
class BatchPadding:
    """The part of a schedule that depends on the sizes of the clients alone; cached, so read-only."""

    first_rows: NDArray[np.int64]
    """For each position of each step, the row of the client's first sample; padding uses this sample."""
    positions: NDArray[np.int64]
    """Positions of the first client's samples in their order, then of the second client's, …"""
    sample_weights: Tensor
    active_lanes: list[int]


@lru_cache(maxsize=64)  # the same sizes come again and again where clients are alike
def padding_for(
    sizes: tuple[int, ...], steps: tuple[int, ...], width: int, dtype: torch.dtype, device: torch.device
) -> BatchPadding:
    """The padding of batches of `width` samples for clients of these sizes, with this many steps each."""
    samples, ends = np.array(sizes), np.array(steps)
    weights = sample_weights(samples, ends, width)
    numbers = np.arange(weights.size).reshape(-1, len(sizes), width).transpose(1, 0, 2)
    starts = np.minimum(samples.cumsum() - samples, samples.sum() - 1)  # the last clients may have no samples
    return BatchPadding(
        np.tile(np.repeat(starts, width), weights.shape[1]),
        numbers[weights > 0],
        torch.from_numpy(weights).transpose(0, 1).unsqueeze(2).to(device, dtype),
        (ends > np.arange(weights.shape[1])[:, None]).sum(1).tolist(),
    )


def sample_weights(sizes: NDArray[np.int64], steps: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """The weight of each position, `[lanes, steps, width]`; the last batch of an epoch may be short."""
    step = np.arange(steps.max())
    batch = step % np.maximum(-(-sizes // width), 1)[:, None]
    taken = np.minimum(sizes[:, None] - batch * width, width)
    taken[step >= steps[:, None]] = 0
    weights: NDArray[np.float64] = (np.arange(width) < taken[..., None]) / np.maximum(taken, 1)[..., None]
    return weights
