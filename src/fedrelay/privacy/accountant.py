"""Privacy accounting: the (ε, δ) of repeated Gaussian mechanisms, by Rényi differential privacy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import median
from typing import Any

from fedrelay.errors import SpecError


@dataclass(frozen=True)
class Accountant:
    """Adds up the privacy loss of a client's hops. Each hop is one Gaussian mechanism with noise multiplier `noise`."""

    noise: float
    delta: float

    def epsilon(self, hops: int) -> float:
        """ε after this many hops; infinite without noise."""
        return _epsilon(self.noise, self.delta, hops)

    def max_hops(self, budget: float) -> int:
        """The largest number of hops within the ε budget; 0 if a single hop exceeds it."""
        beyond = 1
        while self.epsilon(beyond) <= budget:
            beyond *= 2
        within = beyond // 2
        while beyond - within > 1:
            middle = (within + beyond) // 2
            within, beyond = (middle, beyond) if self.epsilon(middle) <= budget else (within, middle)
        return within

    def spent(self, hops: Mapping[int, int], clients: Iterable[int]) -> dict[str, Any]:
        """The privacy loss of clients after these hops, for the summary of a run: maximum and median.

        Args:
            hops: Client → number of its hops; clients that are missing had none.
            clients: The clients that have samples.
        """
        counts = [hops.get(client, 0) for client in clients]
        epsilons = [self.epsilon(count) for count in counts]
        return {
            "delta": self.delta,
            "epsilon_max": max(epsilons, default=0.0),
            "epsilon_median": median(epsilons) if epsilons else 0.0,
            "hops_max": max(counts, default=0),
        }


@lru_cache(maxsize=4096)
def _epsilon(noise: float, delta: float, hops: int) -> float:
    if not hops:
        return 0.0
    if not noise:
        return math.inf
    try:  # takes seconds to import, and only private runs need it
        from dp_accounting import GaussianDpEvent
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        raise SpecError(
            "terms.dp: needs the package dp-accounting; install it with pip install 'fedrelay[dp]'"
        ) from None
    accountant = RdpAccountant()
    accountant.compose(GaussianDpEvent(noise), hops)
    return float(accountant.get_epsilon(delta))
