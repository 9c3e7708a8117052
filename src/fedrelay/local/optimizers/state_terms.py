"""Where the state of an optimiser stays between hops: with each client, or in the payload of each route.

`train.optimizer_state` adds one of these terms to every method, warm-ups included. Without one, every hop starts anew.

Rule: before the first step of a hop the optimiser takes over the state, after the last step it is written back. As
payload it comes back to the server with the model; the server takes the mean over all arrivals, weighted by samples,
and the routes of the next round start with it.

Deviations: if two routes reach a client in the same step, the client keeps the state of the route with the higher
number: unlike control variates, running means of squares do not add up. The mean over arrivals is taken whatever the
merge does with their models.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from pydantic import Field
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.hop_context import HopContext, TrainedHop
from fedrelay.local.optimizers.base import State, StateTensor
from fedrelay.local.optimizers.build import build_optimizer
from fedrelay.local.terms.base import MergedRound, Term, TermResult, mean_of_payloads
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, TermTensor


class OptimizerStateTerm(Term):
    """State of the optimiser that outlives a hop."""

    in_warmup: ClassVar[bool] = True
    state: tuple[StateTensor, ...] = Field(description="what the optimizer remembers from step to step")

    @abstractmethod
    def read(self, context: HopContext) -> State:
        """A copy of the state that the optimiser starts with."""

    @abstractmethod
    def written_to(self, context: HopContext) -> Mapping[str, Tensor]:
        """The tensors that take the state after the hop."""

    def write_state_and_payload(self, context: HopContext, outcome: TrainedHop) -> None:
        targets = self.written_to(context)
        for each in self.state:
            targets[tensor_name(each)].copy_(outcome.optimizer_state[each.name])

    def _copy(self, tensors: Mapping[str, Tensor]) -> State:
        return {each.name: tensors[tensor_name(each)].clone() for each in self.state}


class ClientOptimizerStateTerm(OptimizerStateTerm):
    """Each client keeps the state from one of its hops to the next."""

    @property
    def tensors(self) -> tuple[TermTensor, ...]:  # type: ignore[override]  # depend on the optimiser
        return tuple(ClientState(tensor_name(each), additive=False, scalar=each.scalar) for each in self.state)

    def read(self, context: HopContext) -> State:
        return self._copy(context.client_state)

    def written_to(self, context: HopContext) -> Mapping[str, Tensor]:
        return context.new_client_state


class PayloadOptimizerStateTerm(OptimizerStateTerm):
    """The state travels with the model."""

    payload_reveals_data: ClassVar[bool] = True

    @property
    def tensors(self) -> tuple[TermTensor, ...]:  # type: ignore[override]  # depend on the optimiser
        return tuple(Payload(tensor_name(each), resumes=True, scalar=each.scalar) for each in self.state)

    def read(self, context: HopContext) -> State:
        return self._copy(context.payload)

    def written_to(self, context: HopContext) -> Mapping[str, Tensor]:
        return context.payload

    def after_merge(self, round: MergedRound) -> TermResult:
        names = [tensor_name(each) for each in self.state]
        return TermResult({name: mean_of_payloads(round.arrivals, name) for name in names})


def tensor_name(tensor: StateTensor) -> str:
    """The name among the tensors of all terms."""
    return f"optimizer-{tensor.name}"


def optimizer_state_terms(train: TrainSettings) -> tuple[OptimizerStateTerm, ...]:
    """The term that keeps the state of the optimiser, if it is kept.

    Raises:
        SpecError: The optimiser remembers nothing.
    """
    if train.optimizer_state == "reset":
        return ()
    state = build_optimizer(train).state_tensors(train)
    if not state:
        raise SpecError(f"train.optimizer_state: {train.optimizer} remembers nothing between steps; use 'reset'")
    kind = ClientOptimizerStateTerm if train.optimizer_state == "client" else PayloadOptimizerStateTerm
    return (kind(state=state),)


def first_state(terms: Sequence[Term], context: HopContext) -> State | None:
    """The state that the optimiser starts a hop with; None if every hop starts anew."""
    return next((term.read(context) for term in terms if isinstance(term, OptimizerStateTerm)), None)
