"""Single hops among the clients with the most samples: the first phase of FedTM.

Paper: R. Souza et al. FedTM, 2026 (see `warmup.large_clients_first`).

Rule: the clients of a round are sampled among those with at least `min_samples` samples; each is a route of its own.

Deviations: by default, clients with at least as many samples as clients have on average; the paper chooses by hand.
"""

from __future__ import annotations

from pydantic import Field

from fedrelay.errors import SpecError
from fedrelay.routes.base import PlanningContext, Routing, sample
from fedrelay.routes.plan import RoundPlan, Route


class LargeClients(Routing):
    """One route for each sampled client that has enough samples."""

    min_samples: int | None = Field(
        None, ge=1, description="how many samples a client needs; default as many as clients have on average"
    )

    def plan(self, context: PlanningContext, round: int) -> RoundPlan:
        large = self.large_clients(context)
        sampled = sample(context, round, len(large))
        return RoundPlan(round, tuple(Route((large[number],)) for number in sampled))

    def large_clients(self, context: PlanningContext) -> list[int]:
        """The clients with enough samples.

        Raises:
            SpecError: There is none.
        """
        sizes = [context.sample_count(client) for client in range(context.client_count)]
        needed = self.min_samples if self.min_samples is not None else sum(sizes) / len(sizes)
        large = [client for client, size in enumerate(sizes) if size >= needed]
        if not large:
            raise SpecError(
                f"warmup.min_samples: no client has {needed:g} samples; the largest has {max(sizes):,} of them"
            )
        return large
