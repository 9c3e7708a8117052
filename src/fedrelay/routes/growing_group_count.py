"""FedGSP and FedSeq2Par: few large groups at first, many small groups in the end.

Papers: S. Zeng, Z. Li, H. Yu, Y. He, Z. Xu, D. Niyato, H. Yu. Heterogeneous Federated Learning via Grouped
Sequential-to-Parallel Training. DASFAA 2022 (FedGSP); A. Silvi et al. Accelerating Federated Learning via Sequential
Training of Grouped Heterogeneous Clients. IEEE Access 2024 (FedSeq2Par).

Rule: round t has M_t = min(f(t), K) groups, where f is `route.growth`. max(1, ⌊C·M_t⌋) of them are sampled, and a copy
of the global model goes through each. FedSeq2Par forms new groups when M_t grows, FedGSP in every round.

Deviations: FedGSP's algorithm divides the sum of the sampled models by f(t), which would shrink the model; the default
merge, a mean, divides by their number. By default, FedSeq2Par's α is chosen so that groups are nearly single clients in
the end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedrelay.grouping.group_count_growth import Growth, alpha_for_full_parallel, group_count_in_round
from fedrelay.routes.base import PlanningContext, sample
from fedrelay.routes.group_routing import GroupRouting
from fedrelay.routes.plan import RoundPlan, Route


class GrowingGroupCount(GroupRouting):
    """One route for each sampled group; the number of groups grows with the rounds."""

    chooses_group_count: ClassVar[bool] = True
    growth: Growth = Field("exp", description="how the number of groups grows: constant, linear, log or exp")
    alpha: float | None = Field(
        None, ge=0, description="how fast it grows; default for exp: one client per group in the last round, else 2"
    )
    beta: int = Field(5, ge=1, description="number of groups in the first round")
    regroup: Literal["growth", "always"] = Field(
        "growth", description="when to form new groups: growth (when their number grows) or always"
    )

    step: float = Field(
        0.0,
        ge=0,
        description="regroup growth: form new groups only when their number grew by this share, to save time",
    )

    @model_validator(mode="after")
    def _a_step_needs_growth(self) -> Self:
        if self.step and self.regroup == "always":
            raise ValueError("step: has no effect with regroup 'always'")
        return self

    @property
    def setting_that_depends_on_rounds(self) -> str:
        return "route.alpha" if self.alpha is None and self.growth == "exp" else ""

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        groups = self.groups(context, round)
        sampled = sample(context, round, len(groups))
        routes = (Route(self.clients_in_order(context, round, group, groups[group])) for group in sampled)
        return RoundPlan(round, tuple(routes), self.handover)

    def groups(self, context: PlanningContext, round: int) -> tuple[tuple[int, ...], ...]:
        """The groups of a round."""
        if self.regroup == "always":
            return context.regroup(self.count(context, round), round)
        alpha = self._alpha(context)
        return context.regroup(
            *last_regrouping(self.growth, alpha, self.beta, self.step, context.client_count, context.rounds)[round - 1]
        )

    def count(self, context: PlanningContext, round: int) -> int:
        return group_count_in_round(
            round, context.client_count, growth=self.growth, alpha=self._alpha(context), beta=self.beta
        )

    def _alpha(self, context: PlanningContext) -> float:
        if self.alpha is not None:
            return self.alpha
        return (
            alpha_for_full_parallel(context.client_count, context.rounds, beta=self.beta)
            if self.growth == "exp"
            else 2.0
        )


@lru_cache(maxsize=8)
def last_regrouping(
    growth: Growth, alpha: float, beta: int, step: float, clients: int, rounds: int
) -> list[tuple[int, int]]:
    """For each round: the number of groups, and the round in which they were formed."""
    count = key = 0
    by_round: list[tuple[int, int]] = []
    for round in range(1, rounds + 1):
        wanted = group_count_in_round(round, clients, growth=growth, alpha=alpha, beta=beta)
        if wanted > count and (wanted >= (1 + step) * count or wanted == clients):
            count, key = wanted, round
        by_round.append((count, key))
    return by_round
