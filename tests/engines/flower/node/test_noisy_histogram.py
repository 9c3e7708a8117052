from __future__ import annotations

import stat

import numpy as np
import pytest

from fedrelay.engines.flower.node.noisy_histogram import FILE, epsilons_of_draws, noisy_histogram
from fedrelay.errors import DataError

COUNTS = np.array([40, 0, 3, 7, 500, 12])


def test_noise_is_drawn_once_and_kept(tmp_path):
    first = noisy_histogram(tmp_path, COUNTS, 0.1)
    assert first != tuple(COUNTS)
    other = noisy_histogram(tmp_path, COUNTS, 0.2)
    changed = noisy_histogram(tmp_path, COUNTS + 1, 0.1)
    assert len({first, other, changed}) == 3
    assert [noisy_histogram(tmp_path, COUNTS, 0.1) for _ in range(3)] == [first] * 3
    assert noisy_histogram(tmp_path, COUNTS, 0.2) == other
    assert epsilons_of_draws(tmp_path) == [0.1, 0.2, 0.1]
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_nobody_can_repeat_the_noise(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    assert noisy_histogram(tmp_path / "a", COUNTS, 0.1) != noisy_histogram(tmp_path / "b", COUNTS, 0.1)


@pytest.mark.parametrize(
    "content", ["", "{}{", '[{"epsilon": 1}]', '[{"epsilon": 1, "exact": [1], "noisy": []}]', "[3]"]
)
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / FILE).write_text(content)
    with pytest.raises(DataError, match=r"noisy-histogram.json: is damaged .*; remove it to draw new noise"):
        noisy_histogram(tmp_path, COUNTS, 1.0)
    assert (tmp_path / FILE).read_text() == content
