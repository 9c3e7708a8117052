"""ψ_hist: the class histogram of a client, as shares (`hist`) or as numbers of samples (`counts`).

Papers: the class histograms of S. Zeng et al., FedGSP, DASFAA 2022 (counts), and of the code of R. Zaccone et al.,
FedSeq, ICPR 2022 (shares).

Rule: V_k counts the labels of client k by class; q_k = V_k / Σ V_k. With `epsilon`, every client adds noise to V_k
before it sends it (`fedrelay/data/noisy_counts.py`); in a simulation the noise comes from the run's seed.

Deviations: none without `epsilon`. Every client sends its histogram to the server; the other profiles exist to avoid
that. A client whose labels are all ignored (padding only), or whose noisy counts are all 0, has equal shares. At nodes,
owners who share no counts can be described by the mean of the others (`mean_for_unshared`).
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.noisy_counts import noisy_counts
from fedrelay.errors import NotSharedError, SpecError
from fedrelay.grouping.distances import DistanceName
from fedrelay.grouping.profiles.base import Profile, ProfileInputs, ProfileOptions, ProfilingResult, Vectors
from fedrelay.rng import KeyedRandom


class ClassCountsProfile(Profile):
    """The number of labels of each class."""

    non_negative: ClassVar[bool] = True
    needs_class_counts: ClassVar[bool] = True
    options: ClassVar[frozenset[str]] = frozenset({"epsilon"})

    def check_inputs(self, inputs: ProfileInputs, options: ProfileOptions) -> None:
        if options.epsilon is not None and inputs.federation.target_shape:
            raise SpecError("grouping.epsilon: is the privacy of one label; samples of these data have several")

    def compute(self, inputs: ProfileInputs, clients: NDArray[np.int64], options: ProfileOptions) -> ProfilingResult:
        classes, counts = inputs.federation.class_count, _shared_counts(inputs, clients)
        if options.epsilon is not None:
            keyed = KeyedRandom(inputs.seed, "class-counts")
            counts = {
                client: noisy_counts(row, options.epsilon, 1.0 - keyed.at(client).random(2 * len(row)))
                for client, row in counts.items()
            }
        shared = self.vectors_of(np.array(list(counts.values()), dtype=np.float64).reshape(len(counts), classes))
        if len(counts) == len(clients):
            return ProfilingResult(shared)
        vectors: Vectors = np.empty((len(clients), classes))
        is_shared = np.isin(clients, list(counts))
        vectors[is_shared] = shared
        vectors[~is_shared] = shared.mean(axis=0) if counts else 1 / max(1, classes)
        return ProfilingResult(vectors, unshared=tuple(clients[~is_shared].tolist()))

    def vectors_of(self, counts: Vectors) -> Vectors:
        """The vectors of clients with these numbers of labels."""
        return counts


def _shared_counts(inputs: ProfileInputs, clients: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """Client → its labels by class, without clients whose owners need not share them and do not."""
    found = {}
    for client in clients.tolist():
        try:
            found[client] = inputs.federation.histogram(client)
        except NotSharedError:
            if not inputs.mean_for_unshared:
                raise
    return found


class HistogramProfile(ClassCountsProfile):
    """The share of each class."""

    probabilities: ClassVar[bool] = True
    default_distance: ClassVar[DistanceName] = "kl"

    def vectors_of(self, counts: Vectors) -> Vectors:
        totals = counts.sum(axis=1, keepdims=True)
        shares: Vectors = np.where(totals > 0, counts / np.maximum(1, totals), 1 / max(1, counts.shape[1]))
        return shares
