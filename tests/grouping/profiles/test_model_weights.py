from __future__ import annotations

import numpy as np
from tests.grouping.profiles.conftest import profiled


def test_all_weights_or_their_change():
    layers = profiled("clf", variance=None, epochs=1).prepared.profiling.vectors
    whole = profiled("weights", variance=None)
    assert whole.prepared.profiling.vectors.shape == (12, whole.prepared.layout.trained_size)
    np.testing.assert_array_equal(whole.prepared.profiling.vectors[:, : 64 * 8], layers[:, : 64 * 8])
    change = profiled("weights", variance=None, relative=True).prepared.profiling.vectors
    start = whole.prepared.layout.flatten(whole.prepared.module).numpy()[: whole.prepared.layout.trained_size]
    np.testing.assert_allclose(change, whole.prepared.profiling.vectors - start, atol=1e-6)
    assert np.abs(change).max() > 0
