from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np
import pytest

from fedrelay.errors import SpecError
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.grouping.grouping import Grouping
from fedrelay.grouping.profiles import PROFILES, ProfileInputs


@pytest.fixture
def inputs(make_clients):
    return ProfileInputs(make_clients([[3, 1, 0], [0, 0, 0], [0, 0, 5]]), seed=1)


def described(name, inputs, clients, **options):
    return PROFILES[name].compute(inputs, np.array(clients), Grouping(assign="icg", **options)).vectors


def test_histograms(inputs):
    np.testing.assert_array_equal(described("counts", inputs, [0, 2]), [[3, 1, 0], [0, 0, 5]])
    np.testing.assert_array_equal(described("hist", inputs, [0, 2]), [[0.75, 0.25, 0], [0, 0, 1]])


def test_a_client_without_labels_that_count_has_equal_shares(inputs):
    np.testing.assert_allclose(described("hist", inputs, [1]), [[1 / 3] * 3])


def test_counts_with_noise(inputs):
    exact, noisy = (described("counts", inputs, [0, 2], epsilon=epsilon) for epsilon in (1000.0, 0.1))
    np.testing.assert_array_equal(exact, [[3, 1, 0], [0, 0, 5]])
    assert not np.array_equal(noisy, exact)
    np.testing.assert_array_equal(noisy, np.round(noisy))
    assert (noisy >= 0).all()
    np.testing.assert_array_equal(described("counts", inputs, [2], epsilon=0.1), noisy[1:])  # whoever else is there
    other = described("counts", replace(inputs, seed=2), [0, 2], epsilon=0.1)
    assert not np.array_equal(other, noisy)
    shares = described("hist", inputs, [0, 1, 2], epsilon=0.1)
    np.testing.assert_allclose(shares.sum(axis=1), 1)


def test_noise_is_an_option_of_histograms_alone():
    with pytest.raises(SpecError, match=r"grouping.epsilon: .*it is an option of profile 'hist', 'counts'"):
        prepare(experiment("fedseq", grouping={"assign": "icg", "profile": "clf", "epsilon": 1.0}))


def test_exact_counts_beside_noisy_ones_are_a_warning(caplog):
    settings = {"data": "digits", "clients": 12, "model": "mlp", "grouping": {"assign": "icg", "epsilon": 1.0}}
    with caplog.at_level(logging.WARNING):
        prepare(experiment("fedseq", **settings))
        assert "grouping.epsilon" not in caplog.text
        prepare(experiment("fedseq+feddisco", **settings))
    assert "grouping.epsilon: class weights, the merge or the order of routes use counts without noise" in caplog.text


def test_samples_that_are_set_aside_by_label_are_a_warning(caplog):
    settings = {"data": {"name": "digits", "clients": 12, "validation": 0.2}, "model": "mlp"}
    with caplog.at_level(logging.WARNING):
        prepare(experiment("fedseq", **settings, grouping={"assign": "icg", "epsilon": 1.0}))
    assert "grouping.epsilon: samples are set aside by label, so one label can change more than two" in caplog.text


def test_owners_of_nodes_add_the_noise_themselves():
    with pytest.raises(SpecError, match=r"grouping.epsilon: is for simulations; .* --histogram-epsilon EPSILON"):
        prepare(experiment("relay", grouping={"epsilon": 1.0}, engine={"name": "flower"}))
