from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import numpy as np
import pytest

from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.errors import NotSharedError, SpecError
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


@dataclass(frozen=True, repr=False)
class Secretive(FederationWrapper):
    """Some owners do not share their class counts."""

    silent: frozenset[int]

    def histogram(self, client):
        if client in self.silent:
            raise NotSharedError(f"node {client} does not share")
        return super().histogram(client)


def secretive(make_clients, counts, *silent, mean=True):
    return ProfileInputs(Secretive(make_clients(counts), frozenset(silent)), seed=1, mean_for_unshared=mean)


def test_who_need_not_share_has_the_mean_of_those_who_do(make_clients):
    inputs = secretive(make_clients, [[4, 0, 0], [0, 3, 0], [0, 0, 9], [1, 1, 2]], 2)
    found = PROFILES["counts"].compute(inputs, np.arange(4), Grouping(assign="icg"))
    np.testing.assert_allclose(found.vectors, [[4, 0, 0], [0, 3, 0], [5 / 3, 4 / 3, 2 / 3], [1, 1, 2]])
    assert found.unshared == (2,)
    shares = described("hist", inputs, [0, 2, 3])
    np.testing.assert_allclose(shares, [[1, 0, 0], [5 / 8, 1 / 8, 1 / 4], [1 / 4, 1 / 4, 1 / 2]])


def test_the_mean_of_many_classes_is_not_rounded_away(make_clients):
    inputs = secretive(make_clients, np.eye(62, dtype=int), 7)
    np.testing.assert_allclose(described("counts", inputs, [7, 8]).sum(axis=1), [1, 1])


@pytest.mark.parametrize("profile", ["hist", "counts"])
def test_if_nobody_shares_all_look_alike_and_groups_are_random(profile, make_clients):
    inputs = secretive(make_clients, [[4, 0], [4, 0], [0, 4], [0, 4]], 0, 1, 2, 3)
    np.testing.assert_allclose(described(profile, inputs, [0, 1, 2, 3]), 1 / 2)
    grouping = Grouping(assign="icg", profile=profile, groups=2)
    formed = [grouping.form_groups(replace(inputs, seed=seed)) for seed in range(60)]
    partners = [next(group for group in groups if 0 in group) for groups in formed]
    assert np.bincount(np.ravel(partners))[1:].min() >= 10  # of 60: each of the others is a partner 20 times


def test_what_is_shared_separates_clients_that_are_alike(make_clients):
    inputs = secretive(make_clients, [[4, 0], [4, 0], [0, 4], [0, 4], [4, 0], [0, 4]], 4, 5)
    for seed in range(10):
        groups = Grouping(assign="icg", groups=3).form_groups(replace(inputs, seed=seed))
        assert not {(0, 1), (2, 3)} & {tuple(sorted(group)) for group in groups}


def test_who_must_share_is_named(make_clients):
    inputs = secretive(make_clients, [[4, 0], [0, 4]], 1, mean=False)
    with pytest.raises(NotSharedError, match="node 1 does not share"):
        described("hist", inputs, [0, 1])


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
