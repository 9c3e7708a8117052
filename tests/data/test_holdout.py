"""Held-out samples of clients: a share of their own, class by class, or their own test samples."""

from __future__ import annotations

import numpy as np
import pytest
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.data.federation_wrapper import find_wrapper
from fedrelay.data.holdout import FederationWithHoldout, held_out_samples, with_holdout, without_pooling
from fedrelay.data.node_samples import owner_federation
from fedrelay.data.pooled_federation import PooledFederation
from fedrelay.data.public_samples import with_public
from fedrelay.data.validation_samples import with_validation
from fedrelay.errors import DataError

SIZES = [10, 1, 0, 40, 5, 2]


@pytest.fixture
def plain():
    return make_federation(SIZES)


def rows_of(samples):
    return {tuple(row) for row in samples.x.tolist()}


def test_the_share_is_rounded_up_and_a_sample_stays_for_training(plain):
    data = FederationWithHoldout(plain, 0.1, seed=1)
    assert held_out_samples(data).counts == [1, 0, 0, 4, 1, 1]
    assert data.sample_counts().tolist() == [9, 1, 0, 36, 4, 1]
    assert FederationWithHoldout(plain, 0.9, seed=1).reserved_counts.tolist() == [9, 0, 0, 36, 4, 1]
    assert FederationWithHoldout(make_federation([30]), 0.1, seed=1).reserved_counts.tolist() == [3]  # 0.1 · 30 > 3


def test_held_out_and_train_samples_are_all_samples_and_share_none(plain):
    data = FederationWithHoldout(plain, 0.3, seed=4)
    for client in (0, 3, 4, 5):
        train, held_out = rows_of(data.train_samples(client)), rows_of(held_out_samples(data).of(client))
        assert not train & held_out
        assert train | held_out == rows_of(plain.train_samples(client))
        assert data.histogram(client).sum() == data.sample_count(client)


def test_the_draw_depends_on_seed_and_client_alone(plain):
    def drawn(seed):
        return [FederationWithHoldout(plain, 0.3, seed).reserved_rows(client).tolist() for client in (3, 0)]

    assert drawn(4) == drawn(4) != drawn(5)
    backwards = FederationWithHoldout(plain, 0.3, 4)
    assert backwards.reserved_rows(0).tolist() == drawn(4)[1]
    assert backwards.fingerprint() != FederationWithHoldout(plain, 0.3, 5).fingerprint()


@pytest.mark.parametrize("targets", [np.arange(37) % 5, np.arange(37) / 7 + 0.1, np.arange(74).reshape(37, 2) % 3 == 0])
def test_a_node_holds_out_the_same_samples_as_a_simulation_with_seed_1(targets):
    x = np.arange(37.0, dtype=np.float32)[:, None]
    owners = np.arange(37) % 3 == 0  # 24 samples of one client, 13 of the other
    data = fr.federate(x, targets, x[:1], targets[:1], client_ids=owners.astype(int))
    held_out = held_out_samples(with_holdout(data, 0.3, seed=1))
    for client, count in enumerate((8, 4)):
        own = owners == bool(client)
        node = owner_federation({"x": x[own], "y": targets[own]}, hold_out=0.3)
        assert node.test.x.tolist() == held_out.of(client).x.tolist()
        assert len(node.test.x) == count


def test_classes_keep_their_shares():
    y = np.repeat([0, 1], [80, 20])
    data = fr.federate(y[:, None] + 0.5, y, y[:, None] + 0.5, y, client_ids=np.zeros(100, int))
    held_out = held_out_samples(FederationWithHoldout(data, 0.25, 1)).of(0)
    assert np.bincount(held_out.y).tolist() == [20, 5]


def test_clients_with_one_sample_each_cannot_hold_any_out():
    with pytest.raises(DataError, match=r"data\.holdout: no client of .* has two samples"):
        FederationWithHoldout(make_federation([1, 1]), 0.5, 1)


def test_wrappers_above_keep_the_held_out_samples(plain):
    data = with_public(PooledFederation(with_validation(FederationWithHoldout(plain, 0.3, 1), 0.2, 1)), 1, 1)
    assert find_wrapper(data, FederationWithHoldout).share == 0.3
    assert held_out_samples(data).counts == [3, 0, 0, 12, 2, 1]
    assert data.client_count == 1
    assert without_pooling(data).client_count == len(SIZES)
    assert without_pooling(plain) is plain


def test_own_test_samples_are_the_held_out_ones_where_data_say_whose_they_are():
    x, y = np.arange(12.0)[:, None], np.arange(12) % 2
    owners, test_owners = ["b"] * 6 + ["a"] * 6, ["a", "b", "a", "a"]
    data = fr.federate(x, y, x[:4], y[:4], client_ids=owners, client_ids_test=test_owners)
    found = held_out_samples(data)
    assert found.counts == [3, 1]  # clients in the order of their names
    assert found.of(0).x.flatten().tolist() == [0, 2, 3]
    assert held_out_samples(fr.federate(x, y, x[:4], y[:4], client_ids=owners)) is None
    public = with_public(data, 1, 1)
    assert sum(held_out_samples(public).counts) == public.test.size == 2


def test_hospitals_have_test_samples_of_their_own_unless_rows_are_divided_otherwise():
    assert held_out_samples(fr.load_data("heart-disease")).counts == [61, 59, 25, 40]
    assert held_out_samples(fr.load_data("heart-disease", clients=4, partition="iid")) is None


def test_test_samples_of_unknown_clients_are_refused():
    x, y = np.arange(4.0)[:, None], np.arange(4) % 2
    with pytest.raises(DataError, match="client_ids_test: client 'c' has no train samples"):
        fr.federate(x, y, x, y, client_ids=list("aabb"), client_ids_test=list("abbc"))
    with pytest.raises(DataError, match="client_ids_test: needs client_ids"):
        fr.federate(x, y, x, y, client_ids_test=list("abbc"))
