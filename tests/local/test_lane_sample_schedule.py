"""Which samples meet at which step."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.local.lane_sample_schedule import STEPS_PER_BLOCK, schedule


def test_exact_numbers():
    orders = [[np.array([2, 0, 4, 1, 3])], [np.array([1, 0])]]
    (block,) = schedule(orders, [5, 2], [2, 1], 3, torch.empty(0, dtype=torch.float64))
    assert block.rows.tolist() == [[[2, 0, 4], [6, 5, 5]], [[1, 3, 0], [5, 5, 5]]]
    assert block.sample_weights.squeeze(2).tolist() == [
        [[1 / 3, 1 / 3, 1 / 3], [1 / 2, 1 / 2, 0]],
        [[1 / 2, 1 / 2, 0], [0, 0, 0]],
    ]
    assert block.active_lanes == [2, 1]


def test_long_ways_are_divided():
    sizes = [STEPS_PER_BLOCK + 5, 2, 0]
    orders = [[np.arange(STEPS_PER_BLOCK + 5)], [np.arange(2)], [np.arange(0)]]
    first, second = schedule(orders, sizes, sizes, 1, torch.empty(0))
    assert first.active_lanes == [2, 2] + (STEPS_PER_BLOCK - 2) * [1]
    assert list(first.spans()) == [(slice(0, 2), 2), (slice(2, STEPS_PER_BLOCK), 1)]
    assert second.active_lanes == 5 * [1]
    assert second.rows[:, 0, 0].tolist() == [STEPS_PER_BLOCK + number for number in range(5)]
    assert list(schedule([[np.arange(0)]], [0], [0], 1, torch.empty(0))) == []


@given(st.data(), st.integers(1, 5), st.integers(1, 3))
def test_every_sample_is_seen_once_an_epoch_in_its_order_until_the_steps_are_done(data, width, epochs):
    sizes = data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
    per_epoch = [-(-size // width) for size in sizes]
    steps = [data.draw(st.integers(0, epochs * each)) for each in per_epoch]
    lanes = sorted(range(len(sizes)), key=lambda lane: -steps[lane])
    sizes, per_epoch, steps = ([each[lane] for lane in lanes] for each in (sizes, per_epoch, steps))
    rng = np.random.default_rng(0)
    orders = []
    for size, each, end in zip(sizes, per_epoch, steps, strict=True):
        whole, rest = divmod(end, max(1, each))
        orders.append([*(rng.permutation(size) for _ in range(whole)), rng.permutation(size)[: rest * width]])
    seen: list[list[int]] = [[] for _ in sizes]
    for block in schedule(orders, sizes, steps, width, torch.empty(0, dtype=torch.float64)):
        for rows, counts, active in zip(block.rows, block.sample_weights.squeeze(2), block.active_lanes, strict=True):
            expected = (torch.arange(len(sizes)) < active).double()
            torch.testing.assert_close(counts.sum(1), expected)
            for lane, (row, count) in enumerate(zip(rows, counts, strict=True)):
                seen[lane] += row[count > 0].tolist()
    starts = np.cumsum([0, *sizes])
    for lane, start in enumerate(starts[:-1]):
        assert seen[lane] == [start + number for order in orders[lane] for number in order]
