"""What a node holds is one client's, whatever its number, in a federation that knows no others."""

from __future__ import annotations

import pytest
import torch

from fedrelay.data.samples import Samples
from fedrelay.engines.flower.node.node_federation import NodeFederation, NodeFederationWithPublicSamples


@pytest.fixture
def holding(ask):
    return NodeFederation(ask.job().federation, 7, 12.5)


@pytest.mark.parametrize("client", [0, 5, 10**9])
def test_every_number_is_this_client(holding, client):
    assert holding.sample_count(client) == 8
    assert torch.equal(holding.train_samples(client).x, holding.inner.train_samples(0).x)


def test_it_knows_the_classes_and_mean_size_of_all_clients(holding):
    assert holding.class_count == 7
    assert holding.sample_counts().tolist() == [12.5]
    assert holding.sample_shape == (3,)


def test_public_samples_are_not_taken_from_the_nodes_own(holding):
    public = Samples(torch.ones(2, 3), torch.tensor([0, 6]))
    shown = NodeFederationWithPublicSamples(holding, 0, 0, public)
    assert shown.public is public
    assert len(shown.test.y) == 4
    assert shown.sample_count(3) == 8
    assert shown.class_count == 7
