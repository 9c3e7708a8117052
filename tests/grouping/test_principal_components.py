from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA

from fedrelay.grouping.principal_components import principal_components


def test_components_are_those_of_a_full_decomposition():
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(30, 6)) @ rng.normal(size=(6, 9000)) + rng.normal(size=(30, 9000))).astype(np.float32)
    expected = PCA(n_components=0.9, svd_solver="full").fit_transform(rows.astype(np.float64))
    found = principal_components(rows, 0.9)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-6, atol=1e-6)
    scaled = (rows - rows.mean(axis=0, dtype=np.float64)) / rows.std(axis=0, dtype=np.float64)
    found = principal_components(rows, 0.9, standardise=True)
    expected = PCA(n_components=0.9, svd_solver="full").fit_transform(scaled)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), rtol=1e-6, atol=1e-6)
    assert principal_components(rows, 1.0).shape == (30, 29)


def test_clients_that_do_not_differ_are_all_at_zero():
    np.testing.assert_array_equal(principal_components(np.ones((4, 7), dtype=np.float32), 0.9), np.zeros((4, 1)))
    np.testing.assert_array_equal(principal_components(np.ones((1, 7)), 0.9, standardise=True), np.zeros((1, 1)))


def test_a_part_of_many_clients_defines_the_components():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(400, 2)) * (5, 3) @ rng.normal(size=(2, 30)) + rng.normal(size=(400, 30)) * 0.01
    whole, part = principal_components(rows, 0.9), principal_components(rows, 0.9, fitted=rng.permutation(400)[:50])
    assert part.shape == whole.shape == (400, 2)
    distances = [np.linalg.norm(each[:, None] - each, axis=2) for each in (whole, part)]
    np.testing.assert_allclose(distances[0], distances[1], atol=0.1)
    everybody = principal_components(rows, 0.9, fitted=np.arange(400))
    np.testing.assert_allclose(everybody, whole, atol=1e-9)
