"""Rounds of FedAvg before another method, as SPFL's authors begin.

Paper: H. Liang et al. SPFL, NeurIPS 2025: 100 rounds of FedAvg, then 50 of SPFL.

Rule: the method's own rounds begin with the model of the last round of FedAvg; nothing else is handed over.

Deviations: none.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedrelay.merge.mean import Mean
from fedrelay.routes.singletons import Singletons
from fedrelay.warmup.base import Phase, Warmup


class FedAvgFirst(Warmup):
    """Ordinary federated learning for some rounds."""

    length: ClassVar[str] = "rounds"

    rounds: int = Field(100, ge=1, description="rounds of FedAvg; they count among the rounds of the run")

    def phases(self) -> tuple[Phase, ...]:
        """One."""
        return (Phase(self.rounds, Singletons(), (), Mean()),)
