"""WFSL: a model is warmed up by sequential training before federated learning begins.

Paper: M. Arafeh et al. WFSL: Warmup-based Federated Sequential Learning. IEEE, 2025.

Rule: in every cycle one model goes through all chosen clients (`warmup.select`), each time through the server. From the
second client of a cycle on a regulator damps each update, θ ← (1 − α)θ + α·θ_received. After the last cycle its models
become the model with which the method proper begins: folded by the same rule in their order (`final: ema`), their mean,
or the last of them.

Deviations: the paper does not say α, nor how its last models are joined. α is 0.1, near what the authors' later
programs have; they take the mean, and switch the regulator off in the last cycle (`plain_last_cycle`). Each cycle is
one round of the run.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from fedrelay.local.terms.blend import Blend
from fedrelay.merge.base import Merge
from fedrelay.merge.fold import FoldCycle
from fedrelay.merge.last import Last
from fedrelay.routes.warmup_cycle import WarmupCycle
from fedrelay.selection.base import Selector
from fedrelay.warmup.base import Phase, Warmup


class Wfsl(Warmup):
    """Cycles of one model through chosen clients."""

    length: ClassVar[str] = "cycles"

    cycles: int = Field(50, ge=1, description="how often the model goes through the clients")
    select: Selector = Field(Selector(), description="who is chosen for a cycle")
    alpha: float = Field(0.1, ge=0, le=1, description="how much of the received model stays in a trained one")
    final: Literal["ema", "mean", "last"] = Field("ema", description="how the models of the last cycle are joined")
    plain_last_cycle: bool = Field(False, description="switch the regulator off in the last cycle")

    def phases(self) -> tuple[Phase, ...]:
        """All cycles but the last, and the last."""
        merge: Merge = Last() if self.final == "last" else FoldCycle(of=self.final)
        last = Phase(1, WarmupCycle(), (Blend(alpha=self.alpha, plain=self.plain_last_cycle),), merge)
        if self.cycles == 1:
            return (last,)
        return (Phase(self.cycles - 1, WarmupCycle(), (Blend(alpha=self.alpha),), Last()), last)

    @property
    def selector(self) -> Selector:
        """As asked for."""
        return self.select
