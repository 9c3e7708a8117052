"""A node's own samples, as a federation with one client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.public_samples import FederationWithPublicSamples
from fedrelay.data.samples import Samples, SampleSource


@dataclass(frozen=True)
class NodeFederation(FederationWrapper):
    """One client's samples, whatever number the server gives that client."""

    all_classes: int
    """Classes of the whole federation."""

    mean_size: float
    """Mean number of samples of all clients."""

    @property
    def class_count(self) -> int:
        return self.all_classes

    def sample_count(self, client: int) -> int:
        return self.inner.sample_count(0)

    def sample_counts(self) -> NDArray[Any]:
        """All that is known of the clients' sizes: their mean."""
        return np.array([self.mean_size])

    def train_samples(self, client: int) -> SampleSource:
        return self.inner.train_samples(0)


@dataclass(frozen=True)
class NodeFederationWithPublicSamples(FederationWithPublicSamples):
    """The same with public samples that the server has sent."""

    sent: Samples

    def __post_init__(self) -> None:
        """Nothing is taken out of the node's samples."""

    @property
    def public(self) -> Samples:
        return self.sent

    @property
    def test(self) -> SampleSource:
        return self.inner.test
