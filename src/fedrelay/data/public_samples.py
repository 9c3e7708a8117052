"""The public set: a few test samples of each class that all participants may use. They do not count in evaluation.

Paper: the exemplars of R. Zaccone et al., FedSeq, ICPR 2022 (ten per class, from the test set).

Rule: `data.public` random test samples of each class are removed from the test set. All methods of a comparison have
the same public samples, so that their test sets are equal.

Deviations: a class with fewer test samples gives all of them except one. Data without classes give `data.public`
samples in all.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay.data.federation import Federation, Samples, digest
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.errors import DataError
from fedrelay.rng import generator


@dataclass(frozen=True, repr=False)
class PublicFederation(FederationWrapper):
    """A federation with a public set, which is not part of the test set."""

    per_class: int
    seed: int

    def __post_init__(self) -> None:
        if self.classes and self.inner.test.y.dim() > 1:
            raise DataError(f"data.public: needs one label per sample; {self.inner.name!r} has one label per position")
        if not len(self.inner.test.y):
            raise DataError(f"data.public: {self.inner.name!r} has no test samples to make public")
        if len(self._public_indices) == len(self.inner.test.y):
            raise DataError(
                f"data.public: {self.inner.name!r} has only {len(self._public_indices)} test samples; "
                "none would be left to test with"
            )

    @cached_property
    def public(self) -> Samples:
        """The public samples, sorted by class."""
        rows = torch.from_numpy(self._public_indices)
        return Samples(self.inner.test.x[rows], self.inner.test.y[rows])

    @cached_property
    def test(self) -> Samples:
        """The test samples without the public ones."""
        kept = torch.ones(len(self.inner.test.y), dtype=torch.bool)
        kept[torch.from_numpy(self._public_indices)] = False
        return Samples(self.inner.test.x[kept], self.inner.test.y[kept])

    def fingerprint(self) -> str:
        return digest("public", self.per_class, self.seed, self.inner.fingerprint())

    @cached_property
    def _public_indices(self) -> NDArray[np.int64]:
        """The indices of the public test samples, sorted by class."""
        labels = self.inner.test.y.numpy()
        if not self.classes:
            count = min(self.per_class, len(labels))
            return np.sort(generator(self.seed, "public").choice(len(labels), count, replace=False))
        by_class = [np.flatnonzero(labels == label) for label in range(self.classes)]
        public = [
            generator(self.seed, "public", label).choice(rows, min(self.per_class, max(1, len(rows) - 1)), False)
            for label, rows in enumerate(by_class)
            if len(rows)
        ]
        return np.concatenate([np.sort(rows) for rows in public])


def with_public(federation: Federation, per_class: int, seed: int) -> Federation:
    """The federation with `per_class` public samples of each class, or in all without classes; unchanged if 0."""
    return PublicFederation(federation, per_class, seed) if per_class else federation
