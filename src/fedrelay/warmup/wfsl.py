"""WFSL: sequential training warms up a model before federated learning starts.

Paper: M. Arafeh et al. WFSL: Warmup-based Federated Sequential Learning. IEEE, 2025.

Rule: in every cycle, one model goes through all selected clients (`warmup.select`), each time through the server. From
the second client of a cycle on, a regulator damps each update: θ ← (1 − α)θ + α·θ_received. The models of the last
cycle become the model with which the method starts: their moving average by the same rule (`final: ema`), their mean,
or the last one.

Deviations: the paper does not give α, nor how the last models are combined. α is 0.1, close to the authors' later
programs, which take the mean and switch off the regulator in the last cycle (`plain_last_cycle`). Each cycle is one
round of the run.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fedrelay.local.terms.blend_with_received import BlendWithReceived
from fedrelay.merge.base import Merge
from fedrelay.merge.hop_average import HopAverage
from fedrelay.merge.last_route import LastRoute
from fedrelay.routes.warmup_cycle import WarmupCycle
from fedrelay.selection.warmup_selector import WarmupSelector
from fedrelay.warmup.base import Phase, Warmup


class Wfsl(Warmup):
    """Cycles of one model through selected clients."""

    length: ClassVar[str] = "cycles"

    cycles: int = Field(50, ge=1, description="number of cycles through the clients")
    select: WarmupSelector = Field(WarmupSelector(), description="which clients take part in a cycle")
    alpha: float = Field(0.1, ge=0, le=1, description="share of the received model in the trained one")
    final: Literal["ema", "mean", "last"] = Field("ema", description="how the models of the last cycle are combined")
    plain_last_cycle: bool = Field(False, description="switch off the regulator in the last cycle")

    def phases(self) -> tuple[Phase, ...]:
        merge: Merge = LastRoute() if self.final == "last" else HopAverage(of=self.final)
        last = Phase(1, WarmupCycle(), (BlendWithReceived(alpha=self.alpha, plain=self.plain_last_cycle),), merge)
        if self.cycles == 1:
            return (last,)
        return (Phase(self.cycles - 1, WarmupCycle(), (BlendWithReceived(alpha=self.alpha),), LastRoute()), last)

    @property
    def selector(self) -> WarmupSelector:
        return self.select
