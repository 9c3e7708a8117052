"""What visits cost a client's privacy: (ε, δ) of repeated Gaussian mechanisms, by Rényi divergences."""

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
    """Adds up visits, each a Gaussian mechanism with `noise` standard deviations for every unit of sensitivity."""

    noise: float
    delta: float

    def epsilon(self, visits: int) -> float:
        """ε after so many visits; infinite without noise."""
        return _epsilon(self.noise, self.delta, visits)

    def most_visits(self, budget: float) -> int:
        """The greatest number of visits that stay within a budget; 0 where one is too many already."""
        beyond = 1
        while self.epsilon(beyond) <= budget:
            beyond *= 2
        within = beyond // 2
        while beyond - within > 1:
            middle = (within + beyond) // 2
            within, beyond = (middle, beyond) if self.epsilon(middle) <= budget else (within, middle)
        return within

    def spent(self, visits: Mapping[int, int], holders: Iterable[int]) -> dict[str, Any]:
        """What clients that hold data have spent: the most, the median, and what belongs to these numbers."""
        counts = [visits.get(client, 0) for client in holders]
        epsilons = [self.epsilon(count) for count in counts]
        return {
            "delta": self.delta,
            "epsilon_max": max(epsilons, default=0.0),
            "epsilon_median": median(epsilons) if epsilons else 0.0,
            "visits_max": max(counts, default=0),
        }


@lru_cache(maxsize=4096)
def _epsilon(noise: float, delta: float, visits: int) -> float:
    if not visits:
        return 0.0
    if not noise:
        return math.inf
    try:  # takes seconds to load, and only those need it who ask for privacy
        from dp_accounting import GaussianDpEvent
        from dp_accounting.rdp import RdpAccountant
    except ImportError:
        raise SpecError("terms.dp: needs the package dp-accounting; pip install 'fedrelay[dp]'") from None
    accountant = RdpAccountant()
    accountant.compose(GaussianDpEvent(noise), visits)
    return float(accountant.get_epsilon(delta))
