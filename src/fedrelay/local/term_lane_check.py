"""A trial of the user's own terms before a run: models that are trained together must not influence each other.

Batched models are the rows of one tensor. A hook that takes a norm over all of them instead of along the last axis, or
draws random numbers for all of them at once, would give other results with other `engine.lanes`. So each hook is
called once for two models together and once for each alone, with random numbers, and the changes are compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.local.batched_trainer import batched_model_for
from fedrelay.local.hop_context import HopContext, TrainedHop
from fedrelay.local.terms.base import Term, overriding
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import TORCH_GLOBALS
from fedrelay.user_code import error_in_one_line, is_built_in

LANES = 2
TOLERANCE = 1e-6
"""Allowed difference, relative to the largest change. The trial computes in float64."""

ADVICE = "or set batchable = False in the class"


@dataclass(frozen=True)
class HookInputs:
    """The arguments of hooks, for batched models or for one."""

    theta: Tensor
    gradient: Tensor
    noise: Tensor
    steps: Tensor
    context: HopContext

    def map(self, change: Callable[[Tensor], Tensor]) -> HookInputs:
        theta, gradient, noise, steps = map(change, (self.theta, self.gradient, self.noise, self.steps))
        return HookInputs(theta, gradient, noise, steps, self.context.map(change))

    def written(self) -> dict[str, Tensor]:
        """Everything that hooks may write to."""
        return {
            "theta": self.theta,
            "gradient": self.gradient,
            **{f"client state {name}": tensor for name, tensor in self.context.new_client_state.items()},
            **{f"payload {name}": tensor for name, tensor in self.context.payload.items()},
        }

    def changes(self, hook: Callable[[HookInputs], None]) -> dict[str, Tensor]:
        """What a hook changes, and by how much. These inputs stay as they are."""
        own = self.map(torch.clone)
        hook(own)
        before = self.written()
        return {name: tensor - before[name] for name, tensor in own.written().items()}


def _write_state_and_payload(term: Term, given: HookInputs) -> None:
    steps: float | Tensor = given.steps if given.theta.dim() > 1 else float(given.steps)
    sent = given.theta.clone()
    term.write_state_and_payload(given.context, TrainedHop(given.theta, sent, steps, 0.1, sent, given.context))


HOOKS: dict[str, Callable[[Term, HookInputs], None]] = {
    "add_gradient": lambda term, given: term.add_gradient(given.gradient, given.theta, given.context),
    "adjust_trained_model": lambda term, given: term.adjust_trained_model(given.theta, given.context),
    "adjust_sent_model": lambda term, given: term.adjust_sent_model(given.theta, given.context, lambda _: given.noise),
    "write_state_and_payload": _write_state_and_payload,
}
"""The hooks that are called for batched models."""


def check_terms_in_lanes(job: TrainingJob) -> None:
    """Try all hooks of the user's own terms, if models are trained together.

    Raises:
        SpecError: A hook mixes models, draws random numbers, or fails for batched models alone.
    """
    own = [term for term in job.terms if not is_built_in(type(term))]
    if not own or batched_model_for(job)[0] is None:
        return
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        for term in own:
            for hook in HOOKS:
                if overriding([term], hook):
                    _try_hook(term, hook, _random_inputs(job))


def _try_hook(term: Term, hook: str, together: HookInputs) -> None:
    def call(given: HookInputs) -> None:
        HOOKS[hook](term, given)

    where = f"term {type(term).__name__!r}, {hook}:"
    try:
        state = torch.get_rng_state()
        alone = [together.map(lambda tensor, lane=lane: tensor[lane]).changes(call) for lane in range(LANES)]  # type: ignore[misc]
    except (Exception, SystemExit):
        return  # it fails with one model too; the run will say so, with the round and the client
    if not torch.equal(state, torch.get_rng_state()):
        raise SpecError(
            f"{where} draws from torch's random generator, so results would depend on which models are trained "
            f"together; draw 'noise' in adjust_sent_model, {ADVICE}"
        )
    try:
        batched = together.changes(call)
    except (Exception, SystemExit) as error:
        raise SpecError(
            f"{where} fails for models that are trained together, [lanes, size]: {error_in_one_line(error)}; "
            f"work on the last axis (dim=-1, keepdim=True), {ADVICE}"
        ) from error
    for name, found in batched.items():
        wanted = torch.stack([changes[name] for changes in alone])
        largest = float(wanted.abs().nan_to_num().max())
        if not torch.allclose(found, wanted, rtol=0, atol=TOLERANCE * largest + 1e-12, equal_nan=True):
            raise SpecError(
                f"{where} gives other results for models that are trained together than for each alone; "
                f"work on the last axis (dim=-1, keepdim=True), {ADVICE}"
            )


def _random_inputs(job: TrainingJob) -> HookInputs:
    """Different random values for each lane; those of states and payloads are between 0 and 1."""
    random = torch.Generator().manual_seed(0)

    def uniform(size: int = job.layout.trained_size) -> Tensor:
        return torch.rand(LANES, size, dtype=torch.float64, generator=random)

    def tensors(kind: type[ClientState | ServerState | Payload]) -> dict[str, Tensor]:
        trained = job.layout.trained_size
        return {name: uniform(min(size, trained)) for name, size in job.tensor_sizes(kind).items()}

    received, state = uniform() - 0.5, tensors(ClientState)
    context = HopContext(
        received,
        uniform() - 0.5 if job.needs_round_model else None,
        tensors(ServerState),
        state,
        {name: tensor.clone() for name, tensor in state.items()},
        tensors(Payload),
        torch.full((LANES, 1), torch.inf, dtype=torch.float64),
        uniform(1) + 0.5,
        uniform(1) + 0.5,
    )
    steps = torch.tensor([[3.0], [5.0]], dtype=torch.float64)
    return HookInputs(received + 0.1 * uniform(), uniform() - 0.5, uniform() - 0.5, steps, context)
