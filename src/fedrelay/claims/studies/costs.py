"""What methods send in a round, counted from their plans."""

from __future__ import annotations

from fedrelay.claims.studies.base import Measures, Quick, WithMethods
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import Experiment

COSTED_ROUND = 2
"""The round that is looked at: in the first some methods send less."""


class CostStudy(WithMethods, Quick):
    """Transfers of methods, before anything is trained."""

    def measured(self, seed: int) -> dict[str, Measures]:
        """All methods."""
        return {name: cost(experiment) for (name, of), (_, experiment) in self.runs.items() if of == seed}


def cost(experiment: Experiment) -> Measures:
    """One round of a method in numbers."""
    setting = prepare(experiment)
    plan = setting.plan(COSTED_ROUND)
    tally = setting.tally(plan)
    return {
        "hops": plan.client_updates,
        "chains": len(plan.routes),
        "longest_route": plan.longest,
        **tally.counts(),
        "transfers": tally.total,
        "bytes": tally.bytes,
        "parameters": setting.layout.trainable,
    }
