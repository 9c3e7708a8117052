"""Names of clients, where the data have any."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import TensorDataset

import fedrelay as fr
from fedrelay.data.client_names import client_names, known_client_names
from fedrelay.data.federation import build_federation
from fedrelay.data.registry import load_dataset
from fedrelay.data.stratified_subset import subset


def test_clients_are_named_by_their_ids_datasets_nodes_or_numbers():
    x, y = np.arange(4.0)[:, None], np.arange(4) % 2
    named = fr.federate(x, y, x, y, client_ids=["south", "north", "north", "south"])
    assert client_names(named) == ("north", "south")
    assert client_names(named, ["a", "b"]) == ("a", "b")
    plain = fr.federate(x, y, x, y, clients=2, partition="iid")
    assert known_client_names(plain) is None
    assert client_names(plain) == ("0", "1")
    dataset = TensorDataset(torch.zeros(2, 1), torch.tensor([0, 1]))
    assert client_names(fr.federate_datasets({"lab": dataset}, dataset, classes=2)) == ("lab",)


def test_a_part_of_the_natural_clients_keeps_its_names():
    data = load_dataset("heart-disease")
    some = known_client_names(build_federation(data, clients=2, partition="natural", seed=3))
    assert len(some) == 2
    assert set(some) < set(data.client_names)
    assert known_client_names(build_federation(subset(data, 60, None, 1))) == data.client_names
