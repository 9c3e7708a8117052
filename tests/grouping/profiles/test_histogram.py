from __future__ import annotations

import numpy as np
import pytest

from fedrelay.grouping.grouping import Grouping
from fedrelay.grouping.profiles import PROFILES, ProfileInputs


@pytest.fixture
def inputs(make_clients):
    return ProfileInputs(make_clients([[3, 1, 0], [0, 0, 0], [0, 0, 5]]), seed=1)


def described(name, inputs, clients):
    return PROFILES[name].compute(inputs, np.array(clients), Grouping()).vectors


def test_histograms(inputs):
    np.testing.assert_array_equal(described("counts", inputs, [0, 2]), [[3, 1, 0], [0, 0, 5]])
    np.testing.assert_array_equal(described("hist", inputs, [0, 2]), [[0.75, 0.25, 0], [0, 0, 1]])


def test_a_client_without_labels_that_count_has_equal_shares(inputs):
    np.testing.assert_allclose(described("hist", inputs, [1]), [[1 / 3] * 3])
