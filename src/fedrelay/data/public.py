"""The public set: a few test samples of every class that everybody may look at, and that nobody is judged by.

Paper: the exemplars of R. Zaccone et al., FedSeq, ICPR 2022 (ten for each class, taken from the test set).

Rule: of every class so many test samples are chosen at random and taken out of the test set, for all methods of a
comparison alike, so that their test sets stay equal.

Deviations: a class with too few test samples gives what it has, but keeps one of several for the test.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.federation import Federation, Samples, digest
from fedrelay.data.wrapper import FederationWrapper
from fedrelay.errors import DataError
from fedrelay.rng import generator


@dataclass(frozen=True, repr=False)
class PublicFederation(FederationWrapper):
    """A federation with a public set apart from its test set."""

    per_class: int
    seed: int

    def __post_init__(self) -> None:
        """See that something is left to test with."""
        if self.members.test.y.dim() > 1:
            raise DataError(
                f"data.public: needs one label for each sample; {self.members.name!r} has one at every position"
            )
        if not len(self.members.test.y):
            raise DataError(f"data.public: {self.members.name!r} has no test samples here that could be made public")
        if len(self._chosen) == len(self.members.test.y):
            raise DataError(
                f"data.public: {self.members.name!r} has too few test samples ({len(self._chosen)}): none would be left"
            )

    @cached_property
    def public(self) -> Samples:
        """The samples that everybody may look at, class after class."""
        chosen = torch.from_numpy(self._chosen)
        return Samples(self.members.test.x[chosen], self.members.test.y[chosen])

    @cached_property
    def test(self) -> Samples:
        """The members' test samples without the public ones."""
        kept = torch.ones(len(self.members.test.y), dtype=torch.bool)
        kept[torch.from_numpy(self._chosen)] = False
        return Samples(self.members.test.x[kept], self.members.test.y[kept])

    def fingerprint(self) -> str:
        """A digest that differs from the members' own."""
        return digest("public", self.per_class, self.seed, self.members.fingerprint())

    @cached_property
    def _chosen(self) -> NDArray[np.int64]:
        """Which test samples are public, class after class."""
        labels = self.members.test.y.numpy()
        found = [np.flatnonzero(labels == each) for each in range(self.classes)]
        chosen = [
            generator(self.seed, "public", number).choice(rows, min(self.per_class, max(1, len(rows) - 1)), False)
            for number, rows in enumerate(found)
            if len(rows)
        ]
        return np.concatenate([np.sort(rows) for rows in chosen])


def with_public(federation: Federation, per_class: int, seed: int) -> Federation:
    """The federation with so many test samples of every class made public; 0 = as it is."""
    return PublicFederation(federation, per_class, seed) if per_class else federation
