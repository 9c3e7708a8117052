"""Rounds of FedAvg before another method, as in the SPFL paper.

Paper: H. Liang et al. SPFL, NeurIPS 2025: 100 rounds of FedAvg, then 50 of SPFL.

Rule: the method's own rounds start with the model of the last round of FedAvg, and nothing else.

Deviations: none.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedrelay.merge.mean import Mean
from fedrelay.routes.singletons import Singletons
from fedrelay.warmup.base import Phase, Warmup


class FedAvgFirst(Warmup):
    """FedAvg for some rounds."""

    length: ClassVar[str] = "rounds"

    rounds: int = Field(100, ge=1, description="number of rounds of FedAvg; they count among the rounds of the run")

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(self.rounds, Singletons(), (), Mean()),)
