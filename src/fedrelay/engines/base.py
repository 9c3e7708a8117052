"""What every engine does, and what it gets for a round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from fedrelay.cost.ledger import SERVER
from fedrelay.data.evaluation_samples import EvaluationSet
from fedrelay.data.samples import Rows
from fedrelay.local.client_evaluation import ClientEvaluation, ClientEvaluationSettings
from fedrelay.local.client_profiler import ClientProfiler, ProfileVector
from fedrelay.robustness.guard import NO_HOPS_YET, TypicalHop
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.async_progress import LegsForFreeModels
from fedrelay.routes.execution_overlay import ExecutionOverlay
from fedrelay.routes.plan import RoundPlan
from fedrelay.tasks.base import EvaluationSums


@dataclass(frozen=True)
class RoundInputs:
    """What the server sends out in a round."""

    weights: Tensor
    """The model of the round."""

    starts: Mapping[int, Tensor] = field(default_factory=dict)
    """Route → the model it starts with, where that is another one."""

    server: Mapping[str, Tensor] = field(default_factory=dict)
    """Server state of the terms; what is missing is zero."""

    payload: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
    """Route → the payload that travels with its own model."""

    typical_hop: TypicalHop = NO_HOPS_YET
    """What hops are like, for a guard that asks."""

    legs: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Route → the groups that its model has been through since the last merge, where real arrivals decide."""

    legs_for_free_models: LegsForFreeModels | None = None
    """Decides which model goes where, where real arrivals decide."""

    merges: int = 0
    """How many merges there were before. It tells clients when a merge ends what they keep until one."""


class RouteRequirements(Protocol):
    """What an engine needs to know of a route before the run starts."""

    @property
    def depends_on_arrival_times(self) -> bool:
        """Whether times of arrival decide which model goes where."""

    @property
    def is_sealed(self) -> bool:
        """Whether models travel so that the server cannot read them between clients."""

    @property
    def setting_that_needs_client_samples_at_server(self) -> str:
        """The setting that makes the server look at samples of clients, if there is one."""


@dataclass(frozen=True)
class EngineEvent:
    """A fault event that belongs to no hop, and the reaction to it."""

    what: str
    done: str
    client: int = SERVER


class Engine(Protocol):
    """Runs the hops of a plan and returns arrivals. It also stores client state, wherever the clients are."""

    def run_round(self, plan: RoundPlan, overlay: ExecutionOverlay, inputs: RoundInputs) -> list[Arrival]:
        """Run all routes that have clients.

        Returns:
            One arrival for each of these routes, in their order; valid until the next call.
        """

    def commit_client_state(self) -> None:
        """Keep the client state that the last round wrote; without this call, clients keep their earlier state."""

    def profile_clients(
        self, profiler: ClientProfiler, clients: Sequence[int], weights: Tensor
    ) -> Iterator[tuple[int, ProfileVector]]:
        """Compute the profile of each client, each from these weights: (place in `clients`, vector), as they come."""

    def evaluate(self, weights: Tensor, on: EvaluationSet = "test", rows: Rows | None = None) -> EvaluationSums:
        """Evaluate a model on the federation's test samples, or on its validation samples where it has any.

        Args:
            weights: The model.
            on: Which samples.
            rows: Some of them, by their numbers; default all. Samples at nodes are always evaluated all.
        """

    def evaluate_models(
        self, models: Sequence[Tensor], on: EvaluationSet = "test", rows: Rows | None = None
    ) -> list[EvaluationSums]:
        """Evaluate several models, each on the same samples."""

    def evaluate_clients(
        self, models: Tensor | Mapping[int, Tensor], wanted: ClientEvaluationSettings
    ) -> dict[int, ClientEvaluation]:
        """Evaluate a model on the held-out samples of each client that has any: client → its evaluation.

        Args:
            models: One model for all clients, or the own model of each client that is evaluated.
            wanted: How they are evaluated.
        """

    def take_events(self) -> list[EngineEvent]:
        """What happened since the last call."""

    def close(self) -> None:
        """Release processes and memory."""
