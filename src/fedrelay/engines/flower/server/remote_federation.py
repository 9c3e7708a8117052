"""The federation as the server sees it: facts about every node. The samples stay at the nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.federation import Federation, Kind, digest
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.public_samples import FederationWithPublicSamples
from fedrelay.data.samples import Samples
from fedrelay.data.table_federation import TableFederation
from fedrelay.engines.flower.node_facts import NodeFacts
from fedrelay.errors import DataError, EngineError
from fedrelay.models.inputs_and_outputs import shapes_of

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RemoteFederation:
    """Nodes as clients 0 … clients-1, in the order of their names."""

    name: str
    nodes: tuple[str, ...]
    facts: tuple[NodeFacts, ...]
    server_test: Samples | None = None
    """Test samples at the server."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise DataError("there are no nodes: put their public keys into the folder 'nodes'")
        first = self.facts[0]
        for name, facts in zip(self.nodes, self.facts, strict=True):
            for what in ("kind", "shape", "target_shape", "task"):
                ours, theirs = getattr(first, what), getattr(facts, what)
                if ours != theirs:
                    raise DataError(
                        f"the samples of node {name!r} differ from those of node {self.nodes[0]!r}: "
                        f"{what} {theirs!r}, not {ours!r}"
                    )
        found = shapes_of(self.server_test.x) if self.server_test is not None else first.shape
        if found != first.shape:
            raise DataError(f"engine.test: samples of shape {found}, those of the nodes have {first.shape}")

    @property
    def kind(self) -> Kind:
        return self.facts[0].kind

    @property
    def client_count(self) -> int:
        return len(self.nodes)

    @property
    def class_count(self) -> int:
        if not all(facts.classes for facts in self.facts):
            return 0
        own = int(self.server_test.y.max()) + 1 if self.server_test is not None else 1
        return max(own, *(facts.classes for facts in self.facts))

    @property
    def task(self) -> str:
        return self.facts[0].task

    @property
    def target_shape(self) -> tuple[int, ...]:
        return self.facts[0].target_shape

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return self.facts[0].shape

    def sample_count(self, client: int) -> int:
        return self.facts[client].samples

    def sample_counts(self) -> Ints:
        return np.array([facts.samples for facts in self.facts], dtype=np.int64)

    def train_samples(self, client: int) -> Samples:
        raise EngineError(f"the samples of node {self.nodes[client]!r} stay there, but this method needs them here")

    def histogram(self, client: int) -> Ints:
        """Labels of every class, if the node's owner shares them."""
        shared = self.facts[client].histogram
        if shared is None:
            raise EngineError(
                f"node {self.nodes[client]!r} does not share how many samples of each class it has, which this method "
                "needs; start it with --share-histogram, or use another grouping.profile (clf, weights) or merge"
            )
        return np.array([*shared, *(0 for _ in range(self.class_count - len(shared)))], dtype=np.int64)

    @property
    def test(self) -> Samples:
        """The test samples at the server; empty if there are none."""
        if self.server_test is not None:
            return self.server_test
        dtype = torch.int64 if self.kind == "tokens" else torch.float32
        targets = torch.zeros(0, *self.target_shape, dtype=torch.int64 if self.class_count else torch.float32)
        return Samples(torch.zeros(0, *self.sample_shape, dtype=dtype), targets)

    def fingerprint(self) -> str:
        """A digest of the nodes' own (salted) fingerprints and the test samples."""
        told = [(name, facts.fingerprint) for name, facts in zip(self.nodes, self.facts, strict=True)]
        tested = [part.numpy() for part in self.server_test.tensors] if self.server_test is not None else []
        return digest("remote", told, *tested)


def remote_part(federation: Federation) -> RemoteFederation | None:
    """The remote federation inside wrappers, if there is one."""
    while isinstance(federation, FederationWrapper):
        federation = federation.inner
    return federation if isinstance(federation, RemoteFederation) else None


def only_public_above(federation: Federation) -> bool:
    """Whether nothing but a public set and the encoding of tables wraps the nodes' data."""
    inner = federation.inner if isinstance(federation, FederationWithPublicSamples) else federation
    inner = inner.inner if isinstance(inner, TableFederation) else inner
    return isinstance(inner, RemoteFederation)
