"""Populations that groups are formed of."""

from __future__ import annotations

import numpy as np
import pytest

from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import ArrayFederation
from fedrelay.data.partition import ClientIndices


def federation_of(histograms) -> ArrayFederation:
    """Clients that hold exactly so many samples of every class."""
    counts = np.asarray(histograms)
    labels = np.repeat(np.tile(np.arange(counts.shape[1]), len(counts)), counts.reshape(-1))
    offsets = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
    rows = np.zeros((len(labels), 2), dtype=np.float32)
    dataset = Dataset("toy", "tabular", rows, labels, rows[:1], labels[:1], counts.shape[1])
    return ArrayFederation(dataset, ClientIndices(np.arange(len(labels)), offsets), seed=0)


@pytest.fixture(scope="session")
def make_clients():
    """A federation from a table of class counts."""
    return federation_of


def dirichlet(clients: int, classes: int, alpha: float, seed: int = 0) -> np.ndarray:
    """Class counts of clients with 50 samples each."""
    rng = np.random.default_rng(seed)
    return np.array([rng.multinomial(50, shares) for shares in rng.dirichlet(np.full(classes, alpha), clients)])


@pytest.fixture(scope="session")
def make_counts():
    """Class counts drawn from a Dirichlet distribution."""
    return dirichlet
