"""FedTM: rounds of FedAvg among the large clients, then one model travels through all of them.

Paper: R. Souza et al. Combining federated learning and travelling model boosts performance and opens opportunities for
digital health equity. npj Digital Medicine, 2026.

Rule: in the warm-up only clients with at least `min_samples` samples take part, in rounds of FedAvg. Then one model
visits all clients in turn, however few samples they have.

Deviations: the paper chooses its large sites by hand; here they are the clients with at least as many samples as
clients have on average, unless `min_samples` says otherwise. With a route of another name (`fedtm+fedseq`) that route
follows the warm-up. The travelling model visits clients in a new random order each round; set `route.order` for others.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from fedrelay.merge.mean import Mean
from fedrelay.routes.large_clients import LargeClients
from fedrelay.warmup.base import Phase, Warmup


class LargeClientsFirst(Warmup):
    """FedAvg among large clients for some rounds."""

    length: ClassVar[str] = "rounds"

    rounds: int = Field(10, ge=1, description="number of rounds of FedAvg; they count among the rounds of the run")
    min_samples: int | None = Field(
        None, ge=1, description="how many samples a client needs; default as many as clients have on average"
    )

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(self.rounds, LargeClients(min_samples=self.min_samples), (), Mean()),)
