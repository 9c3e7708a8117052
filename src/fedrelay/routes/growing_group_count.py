"""FedGSP and FedSeq2Par: few large groups at first, many small groups in the end.

Papers: S. Zeng, Z. Li, H. Yu, Y. He, Z. Xu, D. Niyato, H. Yu. Heterogeneous Federated Learning via Grouped
Sequential-to-Parallel Training. DASFAA 2022 (FedGSP); A. Silvi et al. Accelerating Federated Learning via Sequential
Training of Grouped Heterogeneous Clients. IEEE Access 2024 (FedSeq2Par).

Rule: round t has M_t = min(f(t), K) groups, where f is `route.growth`. max(1, ⌊C·M_t⌋) of them are sampled, and a copy
of the global model goes through each. FedSeq2Par forms new groups when M_t grows, FedGSP in every round.

Deviations: FedGSP's algorithm divides the sum of the sampled models by f(t), which would shrink the model; the default
merge, a mean, divides by their number. By default, FedSeq2Par's α is chosen so that groups are nearly single clients in
the end. FedGSP's α = 2, β = 10 were found for 368 clients and 500 rounds (`pace: paper`); with 100 clients they start
with groups of ten and end with single clients. So by default they scale with the federation (`pace: federation`).
"""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Sampling
from fedrelay.grouping.group_count_growth import (
    PAPER_ALPHA,
    PAPER_BETA,
    SEQUENTIAL_SHARE,
    Growth,
    alpha_for_full_parallel,
    group_count_in_round,
    scaled_alpha,
    scaled_beta,
)
from fedrelay.routes.base import PlanningContext, sample
from fedrelay.routes.group_routing import GroupRouting
from fedrelay.routes.plan import RoundPlan, Route

Pace = Literal["full-parallel", "federation", "paper"]


class GrowingGroupCount(GroupRouting):
    """One route for each sampled group; the number of groups grows with the rounds."""

    chooses_group_count: ClassVar[bool] = True
    growth: Growth = Field("exp", description="how the number of groups grows: constant, linear, log or exp")
    pace: Pace = Field(
        "full-parallel",
        description="α and β if they are not given: full-parallel (β = 5; exp growth to one client per group in the "
        "last round, other growth with α = 2), federation (FedGSP's, scaled with the numbers of clients and rounds) or "
        "paper (FedGSP's own: α = 2, β = 10)",
    )
    alpha: float | None = Field(None, ge=0, description="how fast it grows; default: see pace")
    beta: int | None = Field(None, ge=1, description="number of groups in the first round; default: see pace")
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
        return "route.alpha" if self.alpha is None and self.growth == "exp" and self.pace != "paper" else ""

    @property
    def may_depend_on_rounds(self) -> bool:
        """α is often the paper's, whatever the number of rounds."""
        return self.alpha is None and self.pace == "federation"

    @property
    def advice_for_longer_runs(self) -> str:
        return "give route.alpha a number"

    def check_sampling(self, sampling: Sampling) -> None:
        if sampling == "passes":
            raise SpecError("sampling: 'passes' needs a fixed number of groups, and here it grows; use random")

    def planning_warning(self, context: PlanningContext) -> str | None:
        """Say when a method that should stay sequential for most rounds does not."""
        rounds, half = range(1, context.rounds + 1), context.client_count // 2
        last = bisect_right(rounds, half, key=lambda round: self.count(context, round))
        if self.pace == "full-parallel" or context.client_count == 1 or last >= int(SEQUENTIAL_SHARE * context.rounds):
            return None
        return (
            f"route: from round {last + 1} of {context.rounds} on, there are more groups than half of the "
            f"{context.client_count} clients, so most models visit one client only; lower route.alpha or route.beta"
        )

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        groups = self.groups(context, round)
        sampled = sample(context, round, len(groups))
        routes = (Route(self.clients_in_order(context, round, group, groups[group])) for group in sampled)
        return RoundPlan(round, tuple(routes), self.handover)

    def groups(self, context: PlanningContext, round: int) -> tuple[tuple[int, ...], ...]:
        """The groups of a round."""
        if self.regroup == "always":
            return context.regroup(self.count(context, round), round)
        alpha, beta = self._alpha_and_beta(context)
        return context.regroup(
            *last_regrouping(self.growth, alpha, beta, self.step, context.client_count, context.rounds)[round - 1]
        )

    def count(self, context: PlanningContext, round: int) -> int:
        alpha, beta = self._alpha_and_beta(context)
        return group_count_in_round(round, context.client_count, growth=self.growth, alpha=alpha, beta=beta)

    def _alpha_and_beta(self, context: PlanningContext) -> tuple[float, int]:
        """α and β: as given, or by the pace."""
        clients, rounds = context.client_count, context.rounds
        if self.pace == "federation":
            beta = self.beta or scaled_beta(clients)
            alpha = scaled_alpha(clients, rounds, growth=self.growth, beta=beta)
        else:
            beta, alpha = self.beta or (PAPER_BETA if self.pace == "paper" else 5), PAPER_ALPHA
            if self.pace == "full-parallel" and self.growth == "exp":
                alpha = alpha_for_full_parallel(clients, rounds, beta=beta)
        return (alpha if self.alpha is None else self.alpha), beta


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
