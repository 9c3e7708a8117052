"""What a node holds, as the only client of a federation that knows no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Samples
from fedrelay.data.public import PublicFederation
from fedrelay.data.wrapper import FederationWrapper


@dataclass(frozen=True)
class NodeFederation(FederationWrapper):
    """One client's samples, whatever number the server gives it."""

    among: int
    """The classes of the whole federation."""

    mean_size: float
    """The samples that its clients have on average."""

    @property
    def classes(self) -> int:
        """As many as the federation has."""
        return self.among

    def size(self, client: int) -> int:
        """The number of samples."""
        return self.members.size(0)

    def sizes(self) -> NDArray[Any]:
        """What is known of all clients' sizes: their mean."""
        return np.array([self.mean_size])

    def samples(self, client: int) -> Samples:
        """All samples."""
        return self.members.samples(0)


@dataclass(frozen=True)
class NodeFederationWithPublic(PublicFederation):
    """The same with public samples that the server has shown."""

    shown: Samples

    def __post_init__(self) -> None:
        """Nothing is taken out of anything."""

    @property
    def public(self) -> Samples:
        """As shown."""
        return self.shown

    @property
    def test(self) -> Samples:
        """The owner's own."""
        return self.members.test
