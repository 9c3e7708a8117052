"""What methods send in a round, counted from their plans; nothing is trained."""

from __future__ import annotations

import fedrelay as fr
from fedrelay.experiment.prepare import prepare
from fedrelay_reproduce.experiments.base import ComparedMethods, Values

COUNTED_ROUND = 2
"""In the first round some methods send less."""


class TransferCounts(ComparedMethods):
    """The transfers of methods in one round."""

    def measure(self, seed: int) -> dict[str, Values]:
        return {name: transfers(experiment) for name, experiment in self.with_seed(seed).items()}


def transfers(experiment: fr.Experiment) -> Values:
    """The measures of one round of a method."""
    run = prepare(experiment)
    plan = run.planner.plan(COUNTED_ROUND)
    totals = run.costs.transfers(plan)
    return {
        "hops": plan.client_updates,
        "chains": len(plan.routes),
        "longest_route": plan.longest,
        **totals.counts(),
        "transfers": totals.total,
        "bytes": totals.bytes,
        "parameters": run.prepared.layout.trained_size,
    }
