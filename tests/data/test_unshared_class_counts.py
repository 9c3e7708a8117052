from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pytest
from tests.grouping.conftest import federation_of

from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.unshared_class_counts import MeanWhereNotShared, content_with_what_is_shared, sharing_clients
from fedrelay.errors import NotSharedError
from fedrelay.grouping.grouping import Grouping
from fedrelay.grouping.profiles import ProfileInputs

COUNTS = [[4, 0, 0], [0, 3, 0], [0, 0, 9], [2, 2, 2]]


@dataclass(frozen=True, repr=False)
class Secretive(FederationWrapper):
    """Some owners say nothing about their classes."""

    silent: frozenset[int]

    def histogram(self, client):
        if client in self.silent:
            raise NotSharedError(f"node {client} does not share")
        return super().histogram(client)


def secretive(*silent):
    return Secretive(federation_of(COUNTS), frozenset(silent))


def test_who_does_not_share_looks_like_the_mean_of_the_others():
    federation = MeanWhereNotShared(secretive(2))
    assert [federation.histogram(client).tolist() for client in range(4)] == [
        [4, 0, 0],
        [0, 3, 0],
        [2, 2, 1],
        [2, 2, 2],
    ]
    assert sharing_clients(federation.inner, range(4)) == [0, 1, 3]


def test_if_nobody_shares_all_look_alike():
    federation = MeanWhereNotShared(secretive(0, 1, 2, 3))
    assert {tuple(federation.histogram(client)) for client in range(4)} == {(0, 0, 0)}


@pytest.mark.parametrize("profile", ["hist", "counts"])
@pytest.mark.parametrize("silent", [(), (1,), (0, 1, 2, 3)])
def test_groups_use_what_is_shared(profile, silent):
    inputs = ProfileInputs(MeanWhereNotShared(secretive(*silent)), seed=1)
    groups = Grouping(assign="icg", profile=profile, groups=2).form_groups(inputs)
    assert sorted(client for group in groups for client in group) == [0, 1, 2, 3]
    assert {len(group) for group in groups} == {2}


def test_groups_are_random_if_nobody_shares():
    inputs = [ProfileInputs(MeanWhereNotShared(secretive(0, 1, 2, 3)), seed) for seed in range(60)]
    grouping = Grouping(assign="icg", groups=2)
    partners = [next(group for group in grouping.form_groups(each) if 0 in group) for each in inputs]
    assert np.bincount(np.ravel(partners))[1:].min() >= 10  # of 60: each of the others is a partner 20 times


def test_it_is_said_how_many_do_not_share(caplog):
    with caplog.at_level(logging.WARNING):
        content_with_what_is_shared(secretive(), "relay")
        assert not caplog.text
        content_with_what_is_shared(secretive(1, 3), "relay")
    assert "2 of 4 nodes do not share how many samples of each class they have: to the groups of relay" in caplog.text
