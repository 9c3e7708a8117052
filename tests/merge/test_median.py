from __future__ import annotations

import numpy as np
import pytest
import torch

from fedrelay.merge.median import Median


def test_the_median_is_that_of_numpy(make_inputs):
    models = np.random.default_rng(7).normal(size=(9, 4))
    for count in range(1, 10):
        merged = Median().apply(make_inputs(models[:count])).weights
        assert merged.tolist() == np.median(models[:count], axis=0).tolist()


def test_the_middle_of_huge_values(make_inputs):
    inputs = make_inputs([[3e38], [3.2e38]], dtype=torch.float32)
    assert Median().apply(inputs).weights.tolist() == pytest.approx([3.1e38])
