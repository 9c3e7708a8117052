from __future__ import annotations

import numpy as np

from fedrelay.local.class_weighted_batches import class_weighted_order


def test_all_classes_and_all_samples_of_a_class_are_equally_likely():
    labels = np.array([0] * 9000 + [2] * 900 + [5] * 100)
    drawn = class_weighted_order(labels, np.random.default_rng(1))
    assert len(drawn) == 10_000
    shares = [float((labels[drawn] == each).mean()) for each in (0, 2, 5)]
    assert np.allclose(shares, 1 / 3, atol=4 * np.sqrt(2 / 9 / 10_000))  # four standard errors
    often = np.bincount(drawn, minlength=10_000)[-100:]
    assert abs(often.mean() - 100 / 3) < 4
    assert often.min() > 5


def test_one_class_is_drawn_with_replacement():
    drawn = class_weighted_order(np.zeros(50, dtype=np.int64), np.random.default_rng(1))
    assert len(drawn) == 50
    assert len(set(drawn.tolist())) < 50
