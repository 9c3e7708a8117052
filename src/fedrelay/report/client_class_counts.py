"""Which classes each client holds, and how much clients differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Federation
from fedrelay.data.open_federation import open_federation
from fedrelay.data.pooled_federation import PooledFederation
from fedrelay.engines.start import data_at_nodes
from fedrelay.errors import FedRelayError
from fedrelay.experiment.data_and_model import below_public, named_task
from fedrelay.experiment.method import build_method
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.experiment.spec import DataSettings, Experiment
from fedrelay.metrics.skew import balance_ratio, median_cpd
from fedrelay.report.load_runs import RunView
from fedrelay.warmup.base import Warmup

MOST_CLIENTS = 2000
"""The most clients whose class counts are taken."""

Counts = NDArray[np.int64]
"""One row per client or group, one column per class."""


@dataclass(frozen=True)
class ClientClassCounts:
    """The clients of a federation: every client's size, and the class counts of `counted` clients."""

    name: str
    classes: int
    sizes: NDArray[np.int64]
    counted: NDArray[np.int64]
    counts: Counts
    test_samples: int

    @property
    def clients(self) -> int:
        return len(self.sizes)

    @property
    def samples(self) -> int:
        return int(self.sizes.sum())

    @property
    def classes_held(self) -> NDArray[np.int64]:
        """How many classes each counted client holds."""
        held: NDArray[np.int64] = (self.counts > 0).sum(axis=1)
        return held

    def summary(self) -> dict[str, Any]:
        """Return what `fedrelay data show --json` prints."""
        return {
            "data": self.name,
            "clients": self.clients,
            "classes": self.classes,
            "samples": self.samples,
            "test_samples": self.test_samples,
            "samples_per_client": _range(self.sizes),
            "classes_per_client": _range(self.classes_held),
            "median_cpd": median_cpd(self.counts),
            "balance_ratio": balance_ratio(self.counts.sum(axis=0)),
            "looked_at": len(self.counted),
        }

    def group_counts(self, groups: Sequence[Sequence[int]], most: int) -> dict[int, NDArray[np.int64]]:
        """Add up the class counts of the first groups; groups with uncounted members are left out.

        Args:
            groups: the clients of each group; needs class counts of clients 0, 1, 2, …
            most: the most groups to look at.
        """
        return {
            number: self.counts[list(group)].sum(axis=0)
            for number, group in enumerate(groups[:most])
            if group and max(group) < len(self.counts)
        }


def partition_of(federation: Federation, *, first: bool = False) -> ClientClassCounts:
    """Count the classes of a federation's clients.

    Args:
        federation: the clients.
        first: of very many clients count the first, instead of evenly chosen ones.
    """
    clients, most = federation.client_count, min(federation.client_count, MOST_CLIENTS)
    counted = np.arange(most) if first else np.unique(np.linspace(0, clients - 1, most).astype(np.int64))
    return ClientClassCounts(
        name=federation.name,
        classes=federation.class_count,
        sizes=federation.sample_counts(),
        counted=counted,
        counts=np.stack([federation.histogram(client) for client in counted.tolist()]),
        test_samples=federation.test.size,
    )


def merge_classes(counts: Counts, most: int) -> tuple[Counts, list[str]]:
    """Add up neighbouring classes until at most `most` columns are left.

    Returns:
        The counts, and the name of each column: `7`, or `12–15` for merged classes.
    """
    classes = counts.shape[1]
    if classes <= most:
        return counts, list(map(str, range(classes)))
    starts = np.arange(most) * classes // most
    ends = [*(starts[1:] - 1), classes - 1]
    names = [str(low) if low == high else f"{low}–{high}" for low, high in zip(starts, ends, strict=True)]
    merged: Counts = np.add.reduceat(counts, starts, axis=1)
    return merged, names


def partition_of_run(run: RunView) -> ClientClassCounts | str:
    """Open the data of a run again; return the reason if that is not possible."""
    facts = run.records.facts
    if facts.get("own_data"):
        return "the run used data from Python, which the run folder does not contain"
    if data_at_nodes(run.experiment):
        return "the samples are at the nodes, and reports do not contact nodes"
    try:
        experiment, fingerprint = run.experiment, str(facts.get("data_fingerprint"))
        pooled, task = run.records.training == "pooled", named_task(experiment)
        return _opened(experiment.data, experiment.seed, task, pooled, _sharing(experiment), fingerprint)
    except FedRelayError as error:
        return f"the data cannot be opened here: {str(error).splitlines()[0]}"  # the rest lists searched folders


def _sharing(experiment: Experiment) -> Warmup | None:
    """The warm-up that shares samples, if the run had one. Reports import no plug-ins, so it must be built in."""
    names = [name.strip() for name in experiment.method.split("+")]
    entries = [METHODS[name] for name in names if name in METHODS]
    shares = any(entry.warmup is not None and entry.warmup.shares_samples for entry in entries)
    return build_method(experiment).warmup if shares and len(entries) == len(names) and not experiment.plugins else None


@lru_cache(maxsize=256)
def _opened(
    data: DataSettings, seed: int, task: str | None, pooled: bool, sharing: Warmup | None, fingerprint: str
) -> ClientClassCounts | str:
    """Open each federation once, however many methods share it and however often a page is made."""
    federation = open_federation(data, seed, task)
    if sharing is not None:
        federation = below_public(federation, partial(sharing.with_samples_shared_by_clients, seed=seed))
    as_run = below_public(federation, PooledFederation) if pooled else federation
    if as_run.fingerprint() != fingerprint:
        return "the data found here are not the data of the run"
    if not federation.class_count:
        return "the samples have no classes"
    return partition_of(federation, first=True)


def _range(values: NDArray[np.int64]) -> dict[str, float]:
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}
