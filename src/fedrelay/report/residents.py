"""Who holds what, as far as it can be found out from here: the data of a run are opened again and compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.pooled import PooledFederation
from fedrelay.engines.start import at_nodes
from fedrelay.errors import FedRelayError
from fedrelay.metrics.skew import balance_ratio, median_cpd
from fedrelay.report.gathering import Seen
from fedrelay.report.holdings import joined_classes
from fedrelay.setting import outline
from fedrelay.spec import Experiment

MOST_CLIENTS = 2000
"""Class counts are taken of so many clients, the first ones."""

MOST_GROUPS = 200


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

    def of_groups(self, groups: Sequence[Sequence[int]]) -> list[dict[str, Any]]:
        """The class counts of groups, as far as all of their members are known."""
        known = [group for group in groups[:MOST_GROUPS] if group and max(group) < len(self.counts)]
        sums = [self.counts[list(group)].sum(axis=0) for group in known]
        return [{"counts": each.tolist(), "balance": balance_ratio(each)} for each in sums]


def residents_of(run: Seen) -> Residents | str:
    """The clients of a run, or why they are not known."""
    facts = run.records.facts
    if facts.get("own_data"):
        return "it was started from Python with data of its own, which are not kept in the run folder"
    if at_nodes(run.experiment):
        return "the samples are with the nodes, and a report troubles nobody"
    return _opened(run.experiment.model_dump_json(exclude={"out"}), str(facts.get("data_fingerprint")))


@lru_cache(maxsize=32)
def _opened(experiment: str, fingerprint: str) -> Residents | str:
    """The data of an experiment, opened once however often a page is made."""
    try:
        federation = outline(Experiment.model_validate_json(experiment)).federation
        if federation.fingerprint() != fingerprint:
            return "the data found here are not those of the run"
        if isinstance(federation, PooledFederation):
            federation = federation.members
        looked_at = range(min(federation.clients, MOST_CLIENTS))
        counts = np.stack([federation.histogram(client) for client in looked_at])
    except FedRelayError as error:
        return f"its data cannot be opened here: {error}"
    return Residents(
        federation.name, federation.clients, federation.classes, int(federation.sizes().sum()), joined_classes(counts)
    )
