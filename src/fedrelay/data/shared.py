"""Shared samples: every client gives a few of its samples to all others.

Paper: the Shared-Raw baseline of M. Arafeh et al., WFSL, 2025.

Rule: a share of every client's samples, at least one, is collected by the server. Every client then holds its own
samples and all that others have shared.

Deviations: none. What a client shared itself it does not get twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from fedrelay.data.federation import Samples, class_counts, digest
from fedrelay.data.partition import Ints
from fedrelay.data.wrapper import FederationWrapper
from fedrelay.rng import generator


@dataclass(frozen=True, repr=False)
class SharedFederation(FederationWrapper):
    """Clients with what is shared among them. One more than there are clients stands for the shared samples alone."""

    ratio: float
    seed: int

    def size(self, client: int) -> int:
        """The number of a client's own samples and of those it gets from others."""
        if client == self.clients:
            return len(self.pool.y)
        own = self.members.size(client)
        return own + len(self.pool.y) - len(self.given(client)) if own else 0

    def sizes(self) -> Ints:
        """The number of samples of every client."""
        return np.array([self.size(client) for client in range(self.clients)])

    def samples(self, client: int) -> Samples:
        """A client's own samples, then those of others."""
        if client == self.clients:
            return self.pool
        own, others = self.members.samples(client), self._owners != client
        return Samples(torch.cat([own.x, self.pool.x[others]]), torch.cat([own.y, self.pool.y[others]]))

    def histogram(self, client: int) -> Ints:
        """How many labels of every class a client has."""
        return class_counts(self.samples(client).y.numpy(), self.classes)

    def fingerprint(self) -> str:
        """A digest that differs from the members' own."""
        return digest("shared", self.members.fingerprint(), f"{self.ratio}", f"{self.seed}")

    def given(self, client: int) -> Ints:
        """Which of its samples a client shares."""
        own = self.members.size(client)
        count = max(1, int(self.ratio * own + 1e-9)) if own and self.ratio else 0
        return np.sort(generator(self.seed, "shared", client).choice(own, count, replace=False))

    @cached_property
    def pool(self) -> Samples:
        """Everything that is shared, in the order of the clients."""
        parts = [self.members.samples(client) for client in range(self.clients)]
        chosen = [torch.from_numpy(self.given(client)) for client in range(self.clients)]
        return Samples(
            torch.cat([part.x[index] for part, index in zip(parts, chosen, strict=True)]),
            torch.cat([part.y[index] for part, index in zip(parts, chosen, strict=True)]),
        )

    @cached_property
    def _owners(self) -> torch.Tensor:
        counts = torch.tensor([len(self.given(client)) for client in range(self.clients)])
        return torch.repeat_interleave(torch.arange(self.clients), counts)
