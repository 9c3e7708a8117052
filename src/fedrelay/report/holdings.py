"""Who holds what, in numbers: sizes, classes and how unlike each other the clients are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.federation import Federation
from fedrelay.metrics.skew import balance_ratio, median_cpd

MOST_CLIENTS = 2000
"""Class counts are taken of so many clients, evenly chosen among more."""

MOST_SHADES = 64
"""Beyond so many classes, neighbouring class numbers share a shade."""


@dataclass(frozen=True)
class HoldingsReport:
    """A partition: every client's size, and the class counts of the clients looked at."""

    name: str
    classes: int
    sizes: NDArray[np.int64]
    looked_at: NDArray[np.int64]
    histograms: NDArray[np.int64]
    test_samples: int

    @property
    def classes_held(self) -> NDArray[np.int64]:
        """How many classes each client looked at holds."""
        held: NDArray[np.int64] = (self.histograms > 0).sum(axis=1)
        return held

    def summary(self) -> dict[str, Any]:
        """The partition in one object, as `--json` prints it."""
        return {
            "data": self.name,
            "clients": len(self.sizes),
            "classes": self.classes,
            "samples": int(self.sizes.sum()),
            "test_samples": self.test_samples,
            "samples_per_client": _range(self.sizes),
            "classes_per_client": _range(self.classes_held),
            "median_cpd": median_cpd(self.histograms),
            "balance_ratio": balance_ratio(self.histograms.sum(axis=0)),
            "looked_at": len(self.looked_at),
        }


def holdings_of(federation: Federation) -> HoldingsReport:
    """Look at a federation."""
    clients = federation.clients
    looked_at = np.unique(np.linspace(0, clients - 1, min(clients, MOST_CLIENTS)).astype(np.int64))
    return HoldingsReport(
        name=federation.name,
        classes=federation.classes,
        sizes=federation.sizes(),
        looked_at=looked_at,
        histograms=np.stack([federation.histogram(client) for client in looked_at.tolist()]),
        test_samples=len(federation.test.y),
    )


def joined_classes(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Class counts, with neighbouring classes joined where there are too many to tell apart."""
    classes = counts.shape[1]
    if classes <= MOST_SHADES:
        return counts
    starts = np.arange(MOST_SHADES) * classes // MOST_SHADES
    joined: NDArray[np.int64] = np.add.reduceat(counts, starts, axis=1)
    return joined


def _range(values: NDArray[np.int64]) -> dict[str, float]:
    return {"min": int(values.min()), "median": float(np.median(values)), "max": int(values.max())}
