"""The small protocol behind which engines hide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from fedrelay.cost.ledger import SERVER
from fedrelay.local.arrival import Arrival
from fedrelay.local.client_profile import ClientProfiler, ProfileVector
from fedrelay.local.evaluation import EvaluationSums
from fedrelay.robustness.guard import NO_HOPS_YET, TypicalHop
from fedrelay.routes.plan import RoundPlan


@dataclass(frozen=True)
class RoundInputs:
    """What the server sends out in a round."""

    weights: Tensor
    """The model of the round."""

    starts: Mapping[int, Tensor] = field(default_factory=dict)
    """The models of routes that set off with another one."""

    server: Mapping[str, Tensor] = field(default_factory=dict)
    """What the terms of the method keep at the server; what is missing is zero."""

    payload: Mapping[int, Mapping[str, Tensor]] = field(default_factory=dict)
    """What routes with a model of their own have with them already."""

    usual: TypicalHop = NO_HOPS_YET
    """What turns are like, for a guard that asks."""

    legs: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """Groups that the models of routes have been through since the last merge, in a race."""


class RouteTraits(Protocol):
    """What an engine needs to know of a way of travelling before it begins."""

    @property
    def asynchronous(self) -> bool:
        """Whether it depends on times of arrival who goes where."""

    @property
    def needs_client_samples(self) -> str:
        """The setting by which the server would have to look at samples of clients, if there is one."""


@dataclass(frozen=True)
class EngineEvent:
    """Something that happened besides what the reports of hops say, and what was done about it."""

    what: str
    done: str
    client: int = SERVER


class Engine(Protocol):
    """Takes hops and yields arrivals. It also looks after what clients keep, wherever that is."""

    def travel(self, plan: RoundPlan, departure: RoundInputs) -> list[Arrival]:
        """Carry out all routes of a round that have clients; arrivals in their order, valid until the next call."""

    def keep(self) -> None:
        """Have clients keep what they wrote while models last travelled; otherwise they go on with what they had."""

    def portray(
        self, portrait: ClientProfiler, clients: Sequence[int], weights: Tensor
    ) -> Iterator[tuple[int, ProfileVector]]:
        """Have clients describe themselves, each from these weights: (place in `clients`, vector), as they come."""

    def evaluate(self, weights: Tensor) -> EvaluationSums:
        """Judge a model on the federation's test samples."""

    def news(self) -> list[EngineEvent]:
        """What happened since it was last asked."""

    def close(self) -> None:
        """Let go of processes and memory."""
