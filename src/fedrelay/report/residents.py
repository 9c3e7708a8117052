"""Who holds what, as far as it can be found out from here: the data of a run are opened again and compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.open import open_federation
from fedrelay.data.pooled import PooledFederation
from fedrelay.engines.start import data_at_nodes
from fedrelay.errors import FedRelayError
from fedrelay.experiment.build import below_public
from fedrelay.experiment.comparison_runs import with_public_samples
from fedrelay.experiment.method import build_method
from fedrelay.experiment.spec import DataSettings
from fedrelay.metrics.skew import balance_ratio, median_cpd
from fedrelay.report.gathering import Seen
from fedrelay.report.holdings import joined_classes
from fedrelay.warmup.base import Warmup

MOST_CLIENTS = 2000
"""Class counts are taken of so many clients, the first ones."""


@dataclass(frozen=True)
class Residents:
    """The clients of one federation and their classes."""

    name: str
    clients: int
    classes: int
    samples: int
    counts: NDArray[np.int64]
    """One row for each client looked at, one column for each shade of class."""

    @property
    def complete(self) -> bool:
        """Whether all clients were looked at."""
        return len(self.counts) == self.clients

    def facts(self) -> dict[str, Any]:
        """As the page has it."""
        return {
            "name": self.name,
            "clients": self.clients,
            "classes": self.classes,
            "samples": self.samples,
            "counts": self.counts.tolist(),
            "median_cpd": median_cpd(self.counts),
        }

    def of_groups(self, groups: Sequence[Sequence[int]], most: int) -> list[dict[str, Any]]:
        """The class counts of groups, as far as all of their members are known."""
        known = {
            number: self.counts[list(group)].sum(axis=0)
            for number, group in enumerate(groups[:most])
            if group and max(group) < len(self.counts)
        }
        return [
            {"group": number, "counts": counts.tolist(), "balance": balance_ratio(counts)}
            for number, counts in known.items()
        ]


def residents_of(run: Seen) -> Residents | str:
    """The clients of a run, or why they are not known."""
    facts = run.records.facts
    if facts.get("own_data"):
        return "it was started from Python with data of its own, which are not kept in the run folder"
    if data_at_nodes(run.experiment):
        return "the samples are with the nodes, and a report troubles nobody"
    try:
        method = build_method(run.experiment)
        [experiment] = with_public_samples([run.experiment])
        sharing = method.warmup if method.warmup is not None and method.warmup.shares_samples else None
        fingerprint = str(facts.get("data_fingerprint"))
        return _opened(experiment.data, experiment.seed, method.pools_data, sharing, fingerprint)
    except FedRelayError as error:
        return f"its data cannot be opened here: {str(error).splitlines()[0]}"  # where they were sought fills a page


@lru_cache(maxsize=256)
def _opened(data: DataSettings, seed: int, pooled: bool, sharing: Warmup | None, fingerprint: str) -> Residents | str:
    """The clients of a federation, opened once for all methods that share it, however often a page is made."""
    federation = open_federation(data, seed)
    if sharing is not None:
        federation = below_public(federation, partial(sharing.share, seed=seed))
    as_run = below_public(federation, PooledFederation) if pooled else federation
    if as_run.fingerprint() != fingerprint:
        return "the data found here are not those of the run"
    looked_at = range(min(federation.clients, MOST_CLIENTS))
    counts = np.stack([federation.histogram(client) for client in looked_at])
    return Residents(
        federation.name, federation.clients, federation.classes, int(federation.sizes().sum()), joined_classes(counts)
    )
