from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from fedrelay.grouping.profiles import PROFILES, Evidence, ProfileName


@pytest.fixture
def evidence(make_clients):
    return Evidence(make_clients([[3, 1, 0], [0, 0, 0], [0, 0, 5]]), seed=1)


def test_every_profile_has_a_name():
    assert set(get_args(ProfileName)) == set(PROFILES)


def test_histograms(evidence):
    holders = np.array([0, 2])
    np.testing.assert_array_equal(PROFILES["counts"].describe(evidence, holders), [[3, 1, 0], [0, 0, 5]])
    np.testing.assert_array_equal(PROFILES["hist"].describe(evidence, holders), [[0.75, 0.25, 0], [0, 0, 1]])


def test_a_client_without_labels_that_count_has_equal_shares(evidence):
    np.testing.assert_allclose(PROFILES["hist"].describe(evidence, np.array([1])), [[1 / 3] * 3])


@pytest.mark.parametrize("name", PROFILES)
def test_what_is_said_of_a_profile_is_true(evidence, name):
    profile, vectors = PROFILES[name], PROFILES[name].describe(evidence, np.array([0, 2]))
    assert vectors.dtype == np.float64
    assert not profile.non_negative or (vectors >= 0).all()
    if profile.probabilities:
        assert profile.non_negative
        np.testing.assert_allclose(vectors.sum(axis=1), 1)
