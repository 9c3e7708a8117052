"""The base class of federations that wrap another one and change part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from fedrelay.data.federation import Federation, SampleKind, ShortRepr
from fedrelay.data.partition import Ints
from fedrelay.data.samples import SampleSource
from fedrelay.models.nested_inputs import InputShapes

W = TypeVar("W", bound="FederationWrapper")


@dataclass(frozen=True, repr=False)
class FederationWrapper(ShortRepr):
    """Forwards everything to the wrapped federation. Subclasses override what they change."""

    inner: Federation

    @property
    def name(self) -> str:
        return self.inner.name

    @property
    def in_memory(self) -> bool:
        return self.inner.in_memory

    @property
    def kind(self) -> SampleKind:
        return self.inner.kind

    @property
    def client_count(self) -> int:
        return self.inner.client_count

    @property
    def class_count(self) -> int:
        return self.inner.class_count

    @property
    def task(self) -> str:
        return self.inner.task

    @property
    def target_shape(self) -> tuple[int, ...]:
        return self.inner.target_shape

    @property
    def sample_shape(self) -> InputShapes:
        return self.inner.sample_shape

    @property
    def test(self) -> SampleSource:
        return self.inner.test

    def sample_count(self, client: int) -> int:
        return self.inner.sample_count(client)

    def sample_counts(self) -> Ints:
        return self.inner.sample_counts()

    def train_samples(self, client: int) -> SampleSource:
        return self.inner.train_samples(client)

    def histogram(self, client: int) -> Ints:
        return self.inner.histogram(client)

    def fingerprint(self) -> str:
        """The hash of the wrapped federation; a subclass that changes data must override this."""
        return self.inner.fingerprint()


def innermost(federation: Federation) -> Federation:
    """The federation inside all wrappers."""
    while isinstance(federation, FederationWrapper):
        federation = federation.inner
    return federation


def find_wrapper(federation: Federation, kind: type[W]) -> W | None:
    """The outermost wrapper of a kind around a federation; None if there is none."""
    while isinstance(federation, FederationWrapper):
        if isinstance(federation, kind):
            return federation
        federation = federation.inner
    return None
