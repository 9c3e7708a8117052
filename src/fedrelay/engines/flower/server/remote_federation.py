"""A federation of which the server knows facts alone: the samples are at the nodes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from fedrelay.data.federation import Federation, Kind, Samples, digest
from fedrelay.data.own_samples import MOST_CLASSES
from fedrelay.data.public import PublicFederation
from fedrelay.data.wrapper import FederationWrapper
from fedrelay.errors import DataError, EngineError
from fedrelay.experiment.spec import Section

Ints = NDArray[np.int64]


class NodeFacts(Section):
    """What a node tells about its samples."""

    samples: int = Field(ge=0, le=10**12)
    tests: int = Field(ge=0, le=10**12)
    """Samples it keeps apart to judge models."""

    classes: int = Field(ge=1, le=MOST_CLASSES)
    shape: tuple[Annotated[int, Field(ge=1, le=10**6)], ...] = Field(max_length=4)
    kind: Kind
    sequence: bool
    """Whether there is a label at every position."""

    fingerprint: str = Field(max_length=128)
    histogram: tuple[Annotated[int, Field(ge=0, le=10**12)], ...] | None = None
    """How many labels of every class; only if the owner of the data allows it."""

    version: str = Field("", max_length=64)
    least_noise: float | None = Field(None, gt=0)
    """Takes part only in methods with differential privacy, and at least so much noise."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.histogram is not None and len(self.histogram) != self.classes:
            raise ValueError("a histogram of other classes")
        if self.histogram is not None and not self.sequence and sum(self.histogram) != self.samples:
            raise ValueError("a histogram of other samples")
        return self

    @property
    def judged(self) -> range:
        """How many predictions a verdict of this node may be about; some positions of a sequence may not count."""
        if self.sequence:
            return range(1, self.tests * math.prod(self.shape) + 1)
        return range(self.tests, self.tests + 1)


@dataclass(frozen=True)
class RemoteFederation:
    """Nodes as clients 0 … clients-1, in the order of their names."""

    name: str
    nodes: tuple[str, ...]
    facts: tuple[NodeFacts, ...]
    own_test: Samples | None = None
    """Test samples of the server's own."""

    def __post_init__(self) -> None:
        """See that all nodes hold the same kind of samples."""
        if not self.nodes:
            raise DataError("there are no nodes: put their public keys into the folder 'nodes'")
        first = self.facts[0]
        for name, each in zip(self.nodes, self.facts, strict=True):
            for what in ("kind", "shape", "sequence"):
                ours, theirs = getattr(first, what), getattr(each, what)
                if ours != theirs:
                    raise DataError(
                        f"the samples of node {name!r} differ from those of node {self.nodes[0]!r}: "
                        f"{what} {theirs!r}, not {ours!r}"
                    )
        if self.own_test is not None and tuple(self.own_test.x.shape[1:]) != first.shape:
            found = tuple(self.own_test.x.shape[1:])
            raise DataError(f"engine.test: samples of shape {found}, those of the nodes have {first.shape}")

    @property
    def kind(self) -> Kind:
        """What a sample is."""
        return self.facts[0].kind

    @property
    def clients(self) -> int:
        """How many nodes there are."""
        return len(self.nodes)

    @property
    def classes(self) -> int:
        """As many as any label needs."""
        own = int(self.own_test.y.max()) + 1 if self.own_test is not None else 1
        return max(own, *(each.classes for each in self.facts))

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """The shape of one sample."""
        return self.facts[0].shape

    def size(self, client: int) -> int:
        """The number of samples of one node."""
        return self.facts[client].samples

    def sizes(self) -> Ints:
        """The number of samples of every node."""
        return np.array([each.samples for each in self.facts], dtype=np.int64)

    def samples(self, client: int) -> Samples:
        """Nobody but its node has them."""
        raise EngineError(f"the samples of node {self.nodes[client]!r} stay there; what was asked for needs them here")

    def histogram(self, client: int) -> Ints:
        """How many labels of every class a node has, if it tells."""
        told = self.facts[client].histogram
        if told is None:
            raise EngineError(
                f"node {self.nodes[client]!r} does not tell how many samples of each class it has, which this method "
                "needs; start it with --share-histogram, or use another grouping.profile (clf, weights) or merge"
            )
        return np.array([*told, *(0 for _ in range(self.classes - len(told)))], dtype=np.int64)

    @property
    def test(self) -> Samples:
        """The server's own test samples; without any, none of the right shape."""
        if self.own_test is not None:
            return self.own_test
        dtype = torch.int64 if self.kind == "tokens" else torch.float32
        labels = self.sample_shape if self.facts[0].sequence else ()
        return Samples(torch.zeros(0, *self.sample_shape, dtype=dtype), torch.zeros(0, *labels, dtype=torch.int64))

    def fingerprint(self) -> str:
        """A digest of what the nodes say of their data."""
        said = [(name, each.fingerprint) for name, each in zip(self.nodes, self.facts, strict=True)]
        tested = [part.numpy() for part in self.own_test] if self.own_test is not None else []
        return digest("remote", said, *tested)


def remote_part(federation: Federation) -> RemoteFederation | None:
    """The remote federation below others, if there is one."""
    while isinstance(federation, FederationWrapper):
        federation = federation.members
    return federation if isinstance(federation, RemoteFederation) else None


def only_public_above(federation: Federation) -> bool:
    """Whether nothing but a public set was laid over the nodes' data."""
    inner = federation.members if isinstance(federation, PublicFederation) else federation
    return isinstance(inner, RemoteFederation)


def facts_from(said: Mapping[str, Any], names: Sequence[str] = tuple(NodeFacts.model_fields)) -> NodeFacts:
    """NodeFacts out of the header of a message, checked."""
    return NodeFacts.model_validate_json(json.dumps({name: said[name] for name in names if name in said}))
