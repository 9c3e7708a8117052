"""A trial of the user's own terms before a run: models that are trained together must not influence each other.

Batched models are the rows of one tensor. A hook that takes a norm over all of them instead of along the last axis, or
draws random numbers for all of them at once, would give other results with other `engine.lanes`. So each hook is
called once for two models together and once for each alone, with random numbers, and the changes are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.local.batched_trainer import batched_model_for
from fedrelay.local.hop_context import HopContext, TrainedHop
from fedrelay.local.terms.base import Batch, LossTerm, ModelOutputs, OutputGradient, Term, overriding
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
    "move_before_gradient": lambda term, given: term.move_before_gradient(given.theta, given.gradient),
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
    model, _ = batched_model_for(job)
    if not own or model is None:
        return
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        for term in own:
            for hook in HOOKS:
                if overriding([term], hook):
                    _try_hook(term, hook, _random_inputs(job))
            if isinstance(term, LossTerm):
                _try_loss(term, _random_inputs(job).context, model.classes)


def _try_hook(term: Term, hook: str, together: HookInputs) -> None:
    def call(given: HookInputs) -> None:
        HOOKS[hook](term, given)

    def alone(lane: int) -> Mapping[str, Tensor]:
        return together.map(lambda tensor: tensor[lane]).changes(call)

    _compare(f"term {type(term).__name__!r}, {hook}:", alone, lambda: together.changes(call), "[lanes, size]")


def _try_loss(term: LossTerm, context: HopContext, classes: int) -> None:
    """Batches of three samples, of which the last one of the first lane is padding."""
    counts, random = (2, 3), torch.Generator().manual_seed(0)
    logits, features, more = torch.rand(3, LANES, 3, classes, dtype=torch.float64, generator=random)
    weights = torch.tensor([[1 / n if row < n else 0.0 for row in range(3)] for n in counts], dtype=torch.float64)
    targets = torch.zeros(LANES, 3, dtype=torch.int64)

    def outputs_of_model(models: Tensor) -> ModelOutputs:
        shift = models.mean(-1)[:, None, None] * more  # different models have different outputs
        return ModelOutputs(logits + shift, features - shift)

    def alone(lane: int) -> Mapping[str, Tensor]:
        rows, own = slice(counts[lane]), context.map(lambda tensor: tensor[lane])
        inputs = [part[lane, rows].clone().requires_grad_() for part in (logits, features)]

        def outputs_of_one(model: Tensor) -> ModelOutputs:
            found = outputs_of_model(model.expand(LANES, -1))
            return ModelOutputs(found.logits[lane, rows], found.features[lane, rows])

        loss = term.loss(Batch(targets[lane, rows], ModelOutputs(*inputs), outputs_of_one), own)
        gradients = torch.autograd.grad(loss, inputs, allow_unused=True) if loss.requires_grad else (None, None)
        padded = [None if part is None else F.pad(part, (0, 0, 0, 3 - len(part))) for part in gradients]
        return _loss_by_name(loss.detach(), OutputGradient(*padded), logits[lane])

    def together() -> Mapping[str, Tensor]:
        batch = Batch(targets, ModelOutputs(logits, features), outputs_of_model, weights)
        return _loss_by_name(*term.losses_and_gradient(batch, context), logits)

    _compare(f"term {type(term).__name__!r}, loss:", alone, together, "[lanes, batch, values]")


def _loss_by_name(losses: Tensor, gradient: OutputGradient, zero: Tensor) -> Mapping[str, Tensor]:
    by_name = {name: torch.zeros_like(zero) if part is None else part for name, part in gradient._asdict().items()}
    return {"loss": losses, **by_name}


def _compare(
    where: str,
    alone: Callable[[int], Mapping[str, Tensor]],
    together: Callable[[], Mapping[str, Tensor]],
    shape: str,
) -> None:
    """Refuse what gives other results, by name, for models together than for each alone."""
    try:
        state = torch.get_rng_state()
        wanted = [alone(lane) for lane in range(LANES)]
    except (Exception, SystemExit):
        return  # it fails with one model too; the run will say so, with the round and the client
    if not torch.equal(state, torch.get_rng_state()):
        raise SpecError(
            f"{where} draws from torch's random generator, so results would depend on which models are trained "
            f"together; draw 'noise' in adjust_sent_model, {ADVICE}"
        )
    try:
        batched = together()
    except (Exception, SystemExit) as error:
        raise SpecError(
            f"{where} fails for models that are trained together, {shape}: {error_in_one_line(error)}; "
            f"work on the last axis (dim=-1, keepdim=True), {ADVICE}"
        ) from error
    for name, found in batched.items():
        expected = torch.stack([each[name] for each in wanted])
        largest = float(expected.abs().nan_to_num().max())
        same = found.shape == expected.shape
        if not same or not torch.allclose(found, expected, rtol=0, atol=TOLERANCE * largest + 1e-12, equal_nan=True):
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
