"""The federation as the server sees it: facts about every node. The samples stay at the nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.data.federation import Federation, SampleKind, digest
from fedrelay.data.federation_wrapper import innermost
from fedrelay.data.lazy_dataset_samples import first_and_last
from fedrelay.data.public_samples import FederationWithPublicSamples
from fedrelay.data.samples import Samples, SampleSource
from fedrelay.data.table_federation import TableFederation
from fedrelay.engines.flower.node_facts import NodeFacts
from fedrelay.engines.flower.server.claims import Remark
from fedrelay.errors import DataError, EngineError, NotSharedError
from fedrelay.models.nested_inputs import Inputs, InputShapes, map_inputs, shapes_of

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RemoteFederation:
    """Nodes as clients 0 … clients-1, in the order of their names."""

    name: str
    nodes: tuple[str, ...]
    facts: tuple[NodeFacts, ...]
    server_test: SampleSource | None = None
    """Test samples at the server."""

    remarks: tuple[Remark, ...] = ()
    """What is unusual about the facts; the engine reports it in its first round."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise DataError("there are no nodes: put their public keys into the folder 'nodes'")
        first = self.facts[0]
        for name, facts in zip(self.nodes, self.facts, strict=True):
            for what, ours in _form(first).items():
                theirs = _form(facts)[what]
                if ours != theirs:
                    raise DataError(
                        f"the samples of node {name!r} differ from those of node {self.nodes[0]!r}: "
                        f"{what} {theirs!r}, not {ours!r}"
                    )
        if self.server_test is None:
            return
        tested = _input_form(next(self.server_test.pieces(range(1), 1, 0)).x)
        wanted = _input_form(first.empty_inputs())
        if tested != wanted:
            raise DataError(f"engine.test: samples of shape {tested}, those of the nodes have {wanted}")

    @property
    def kind(self) -> SampleKind:
        return self.facts[0].kind

    @property
    def client_count(self) -> int:
        return len(self.nodes)

    @property
    def class_count(self) -> int:
        if not all(facts.classes for facts in self.facts):
            return 0
        own = int(self.server_test.y.max()) + 1 if isinstance(self.server_test, Samples) else 1
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
    def sample_shape(self) -> InputShapes:
        return shapes_of(self.facts[0].empty_inputs())

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
            raise NotSharedError(
                f"node {self.nodes[client]!r} does not share how many samples of each class it has, which this method "
                "needs; start it with --share-histogram, or use grouping.assign=random, another grouping.profile (clf, "
                "weights), merge or route.order"
            )
        return np.array([*shared, *(0 for _ in range(self.class_count - len(shared)))], dtype=np.int64)

    @property
    def test(self) -> SampleSource:
        """The test samples at the server; empty if there are none."""
        if self.server_test is not None:
            return self.server_test
        targets = torch.zeros(0, *self.target_shape, dtype=torch.int64 if self.class_count else torch.float32)
        return Samples(self.facts[0].empty_inputs(), targets)

    def fingerprint(self) -> str:
        """A digest of the nodes' own (salted) fingerprints and the test samples."""
        told = [(name, facts.fingerprint) for name, facts in zip(self.nodes, self.facts, strict=True)]
        tested = [part.numpy() for piece in self._hashed_test() for part in piece.tensors]
        return digest("remote", told, *tested)

    def _hashed_test(self) -> list[Samples]:
        """The test samples of which a change is noticed: hashing those of a dataset would read all."""
        if self.server_test is None:
            return []
        return [self.server_test] if isinstance(self.server_test, Samples) else first_and_last(self.server_test)


def _form(facts: NodeFacts) -> dict[str, object]:
    """What the samples of all nodes must have in common."""
    inputs = {"kind": facts.kind, "shape": _input_form(facts.empty_inputs())}
    return {**inputs, "target_shape": facts.target_shape, "task": facts.task}


def _input_form(x: Inputs) -> object:
    """The shape of an input; of several inputs, names, numbers of axes and types, because sizes may differ."""
    return shapes_of(x) if isinstance(x, Tensor) else map_inputs(lambda each: f"{each.dim() - 1}-d {each.dtype}", x)


def remote_part(federation: Federation) -> RemoteFederation | None:
    """The remote federation inside wrappers, if there is one."""
    found = innermost(federation)
    return found if isinstance(found, RemoteFederation) else None


def only_public_above(federation: Federation) -> bool:
    """Whether nothing but a public set and the encoding of tables wraps the nodes' data."""
    inner = federation.inner if isinstance(federation, FederationWithPublicSamples) else federation
    inner = inner.inner if isinstance(inner, TableFederation) else inner
    return isinstance(inner, RemoteFederation)
