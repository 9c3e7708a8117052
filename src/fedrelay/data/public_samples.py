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
from numpy.typing import NDArray

from fedrelay.data.federation import Federation, digest
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.samples import Samples, SampleSource
from fedrelay.errors import DataError
from fedrelay.rng import generator


@dataclass(frozen=True, repr=False)
class FederationWithPublicSamples(FederationWrapper):
    """A federation with a public set, which is not part of the test set."""

    per_class: int
    seed: int

    def __post_init__(self) -> None:
        if self.class_count and self.inner.target_shape:
            raise DataError(f"data.public: needs one label per sample; {self.inner.name!r} has one label per position")
        if not self.inner.test.size:
            raise DataError(f"data.public: {self.inner.name!r} has no test samples to make public")
        if len(self._public_indices) == self.inner.test.size:
            raise DataError(
                f"data.public: {self.inner.name!r} has only {len(self._public_indices)} test samples; "
                "none would be left to test with"
            )

    @cached_property
    def public(self) -> Samples:
        """The public samples, sorted by class."""
        return self.inner.test.select(self._public_indices).load()

    @cached_property
    def test(self) -> SampleSource:
        """The test samples without the public ones."""
        return self.inner.test.select(self.kept_indices)

    @property
    def kept_indices(self) -> NDArray[np.int64]:
        """The indices of the test samples that are not public."""
        return np.setdiff1d(np.arange(self.inner.test.size), self._public_indices)

    def fingerprint(self) -> str:
        return digest("public", self.per_class, self.seed, self.inner.fingerprint())

    @cached_property
    def _public_indices(self) -> NDArray[np.int64]:
        """The indices of the public test samples, sorted by class."""
        if not self.class_count:
            size = self.inner.test.size
            return np.sort(generator(self.seed, "public").choice(size, min(self.per_class, size), replace=False))
        labels = self.inner.test.targets().numpy()
        by_class = [np.flatnonzero(labels == label) for label in range(self.class_count)]
        public = [
            generator(self.seed, "public", label).choice(rows, min(self.per_class, max(1, len(rows) - 1)), False)
            for label, rows in enumerate(by_class)
            if len(rows)
        ]
        return np.concatenate([np.sort(rows) for rows in public])


def with_public(federation: Federation, per_class: int, seed: int) -> Federation:
    """The federation with `per_class` public samples of each class, or in all without classes; unchanged if 0."""
    return FederationWithPublicSamples(federation, per_class, seed) if per_class else federation
