"""ψ_hist: the classes a client truly holds, as shares (`hist`) or as numbers of samples (`counts`).

Papers: the class histograms of S. Zeng et al., FedGSP, DASFAA 2022 (counts), and of the code of R. Zaccone et al.,
FedSeq, ICPR 2022 (shares).

Rule: V_k counts the labels of client k by class; q_k = V_k / Σ V_k.

Deviations: none. Every client tells the server its histogram, which the other profiles are there to avoid. A client
none of whose labels count (padding only) has equal shares.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedrelay.grouping.profiles.base import Profile, ProfileInputs, ProfilingResult, Vectors


def class_counts(evidence: ProfileInputs, clients: NDArray[np.int64]) -> Vectors:
    """The number of labels of every class."""
    rows = [evidence.federation.histogram(client) for client in clients.tolist()]
    return np.array(rows, dtype=np.float64).reshape(len(clients), evidence.federation.classes)


def class_shares(evidence: ProfileInputs, clients: NDArray[np.int64]) -> Vectors:
    """The share of every class."""
    counts = class_counts(evidence, clients)
    totals = counts.sum(axis=1, keepdims=True)
    shares: Vectors = np.where(totals > 0, counts / np.maximum(1, totals), 1 / counts.shape[1])
    return shares


HIST = Profile(
    lambda evidence, clients, _: ProfilingResult(class_shares(evidence, clients)),
    probabilities=True,
    non_negative=True,
    usual_distance="kl",
    needs_histograms=True,
)
COUNTS = Profile(
    lambda evidence, clients, _: ProfilingResult(class_counts(evidence, clients)),
    probabilities=False,
    non_negative=True,
    needs_histograms=True,
)
