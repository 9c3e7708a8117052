"""The base classes of all local terms.

Most terms are vector algebra on the last axis of flat tensors, so the same line works for one model `[size]` and for
several batched models `[lanes, size]`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Section, TrainSettings
from fedrelay.local.hop_context import HopContext, TrainedHop
from fedrelay.local.terms.tensor_declarations import TermTensor
from fedrelay.models.feature_recorder import last_linear
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.routes.arrival import Arrival

Noise = Callable[[str], Tensor]
"""Purpose → standard normal numbers in the shape of the model (or of the batched models), drawn for this hop only."""


@dataclass(frozen=True)
class MergedRound:
    """A round after its merge, as a term sees it at the server."""

    merged: Tensor
    """The merged model, as all terms have adjusted it."""

    before: Tensor
    """The model with which the routes started."""

    arrivals: Sequence[Arrival]
    """The models that were merged, with their payloads."""

    clients: int
    """The number of all clients, whether or not they took part."""

    server_state: Mapping[str, Tensor] = field(default_factory=dict)
    """The server state of all terms; a missing tensor is zero."""

    state: Mapping[str, Tensor] = field(default_factory=dict)
    """`TermResult.state` of the last call; empty before the first merge."""


class TermResult(NamedTuple):
    """What a term leaves at the server after a merge."""

    server_state: Mapping[str, Tensor] = {}
    """Tensors of this term that are sent to all clients from now on, as declared in `tensors`. Others stay."""

    state: Mapping[str, Tensor] = {}
    """Tensors of any shape that stay at the server, for the next merge."""


class Term(Section, ABC):
    """Something that a client does besides plain training.

    A term is a frozen value. Its fields are its settings (`terms.NAME.FIELD` in a spec). It keeps nothing between
    calls: everything it remembers is declared in `tensors` and comes with the `HopContext`. Override only the hooks you
    need; the others do nothing. The hooks are called in this order:

    ==========================  ====================================  ==============================================
    hook                        called                                may write to
    ==========================  ====================================  ==============================================
    `adapt_model`               once, before the first round          – (returns the module to train)
    `check_model`               once, after `adapt_model` of all      – (refuses a module that does not fit)
    `adjust_received_model`     before the first step of a hop        `model.flat`
    `move_before_gradient`      at every step, before the loss        `theta`, until the gradient is known
    `add_gradient`              at every step, after the loss         `gradient`
    `adjust_trained_model`      after the last step                   `theta`
    `adjust_sent_model`         as the last change before sending     `theta`
    `write_state_and_payload`   at the end of a hop                   `context.new_client_state`, `context.payload`
    `adjust_merged_model`       at the server, after a merge          – (returns the model)
    `after_merge`               at the server, as the last of all     – (returns what stays there and is sent)
    ==========================  ====================================  ==============================================

    `theta` and `gradient` are the trained part of one model, `[size]`, or of several batched models, `[lanes, size]`.
    The models, states and payloads of the context have the same shape. Writes are in place; all other tensors are
    read-only. Work on the last axis (`dim=-1, keepdim=True`), so that the term works for batched models too, or set
    `batchable = False`. A trial before each run refuses own terms that mix batched models.

    Random numbers come from `noise` in `adjust_sent_model`. A term that is not batchable may also draw from torch's
    generator, which is seeded for every hop; at the server it is seeded for every round. With other generators, results
    would depend on the number of workers.

    A term that pulls the model towards zero, less strongly the more often a client has trained it:

    >>> from typing import ClassVar
    >>> import torch
    >>> import fedrelay as fr
    >>> class Shrink(fr.Term):
    ...     tensors: ClassVar = (fr.ClientState("hops"),)
    ...     strength: float = 0.5
    ...     def add_gradient(self, gradient, theta, context):
    ...         gradient.add_(theta / (1 + context.client_state["hops"]), alpha=self.strength)
    ...     def write_state_and_payload(self, context, outcome):
    ...         context.new_client_state["hops"].add_(1)
    >>> theta, gradient = torch.tensor([2.0, -4.0]), torch.zeros(2)
    >>> context = fr.HopContext(theta, client_state={"hops": torch.zeros(2)})
    >>> Shrink().add_gradient(gradient, theta, context)
    >>> gradient
    tensor([ 1., -2.])
    """

    tensors: ClassVar[tuple[TermTensor, ...]] = ()
    """The client states, server states and payloads of this term."""

    payload_reveals_data: ClassVar[bool] = False
    """Whether the payload says more about a client's samples than the model itself does. Private runs refuse it."""

    batchable: ClassVar[bool] = True
    """Whether the hooks also accept batched models, `[lanes, size]`. If not, models are trained one by one."""

    in_warmup: ClassVar[bool] = False
    """Whether the term is also active during a warm-up: because the model it needs cannot be trained without it, or
    because a warm-up without it would reveal what it protects."""

    def adapt_model(self, module: nn.Module) -> nn.Module:
        """Return the module to train: the given one, or another form of it.

        Called before the flat layout is read. New weights come from torch's global random generator. Frozen parameters
        (`requires_grad=False`) do not travel with the model. If `adjust_received_model` rewrites some, the module must
        name them in a method `rewritten_parameters`, or hold them as buffers.
        """
        return module

    def check_model(self, module: nn.Module) -> None:
        """Check the module to train, as all terms have adapted it.

        Raises:
            SpecError: The term cannot work with this module.
        """

    @property
    def supported_tasks(self) -> frozenset[str] | None:
        """The names of the tasks that the term fits; None: all."""
        return None

    @property
    def needs_round_model(self) -> bool:
        """Whether hooks read `context.round_model`, which is then sent to all clients and counted as a transfer."""
        return False

    @property
    def proximal_strength_for_merge(self) -> float:
        """μ, if the term adds μ(θ − received) to the gradient; else 0. The merge `nova` needs it."""
        return 0.0

    def pull_to_anchor(self, relative_size: float) -> float:
        """s, if the term adds s(θ − a) to the gradient for some model a; else 0. Sealed routes bound it.

        Args:
            relative_size: The client's number of samples divided by the mean of all clients.
        """
        return self.proximal_strength_for_merge

    @property
    def gradients_per_step(self) -> int:
        """How many gradients a step computes; 2 if `move_before_gradient` gets the gradient of the same batch."""
        return 1

    def check_train_settings(self, train: TrainSettings) -> None:
        """Refuse training settings that this term cannot work with.

        Raises:
            SpecError: The settings do not fit.
        """

    def training_warning(self, train: TrainSettings) -> str | None:
        """A warning for training settings that do not go well with this term, or None."""
        return None

    def adjust_received_model(self, model: FlatModule, context: HopContext) -> None:
        """Change the received model before the first step. Tensors hold all that travels, with the untrained part.

        Only called for terms that are not batchable.
        """

    def move_before_gradient(self, theta: Tensor, gradient: Tensor) -> None:
        """Move the model in place to where the gradient of a step is computed; it comes back before the step.

        Args:
            theta: The model.
            gradient: The gradient of the loss for the same batch, if `gradients_per_step` is 2; otherwise that of the
                last step of the hop, and zeros in the first.
        """

    def add_gradient(self, gradient: Tensor, theta: Tensor, context: HopContext) -> None:
        """Add this term's gradient to `gradient` in place."""

    def adjust_trained_model(self, theta: Tensor, context: HopContext) -> None:
        """Change the trained model in place."""

    def adjust_sent_model(self, theta: Tensor, context: HopContext, noise: Noise) -> None:
        """Change the model in place, as the last step before it leaves the client."""

    def write_state_and_payload(self, context: HopContext, outcome: TrainedHop) -> None:
        """Write `context.new_client_state` (initially a copy of `context.client_state`) and `context.payload`."""

    def adjust_merged_model(self, merged: Tensor, before: Tensor, layout: FlatLayout) -> Tensor:
        """Return the merged model as the server keeps it; `before` is the model before the merge."""
        return merged

    def after_merge(self, round: MergedRound) -> TermResult:
        """Return the server state that clients get from now on, and what the next call of this hook needs."""
        return TermResult()


TASKS_WITH_LOGITS = frozenset({"classification", "language-model"})
"""Tasks whose outputs are logits of classes."""


@dataclass(frozen=True)
class ModelOutputs:
    """A model's outputs for a batch: the logits, and the inputs of its last linear layer."""

    logits: Tensor
    features: Tensor


class OutputGradient(NamedTuple):
    """The gradient of losses with respect to the logits and the features of batched models; None: zero."""

    logits: Tensor | None = None
    features: Tensor | None = None


@dataclass(frozen=True)
class Batch:
    """One mini-batch as a `LossTerm` sees it."""

    targets: Tensor
    outputs: ModelOutputs
    """Outputs of the model in training."""

    outputs_of_model: Callable[[Tensor], ModelOutputs]
    """Outputs of another model, given as a whole flat tensor, for the same inputs: without gradient, in eval mode."""

    sample_weights: Tensor | None = None
    """Batched models: `[lanes, batch]`, 1/b in a batch of b samples, 0 for padding. None: one model."""

    def rows(self, outputs: Tensor) -> Tensor:
        """Logits or features with one row per prediction, `[predictions, values]`, without padding positions.

        For batched models they are as they are, `[lanes, batch, values]`; `mean` leaves out the padding.
        """
        if self.sample_weights is not None:
            return outputs
        if outputs.shape == self.targets.shape:  # one output per sample
            outputs = outputs.unsqueeze(-1)
        matrix = outputs.flatten(0, -2)
        return matrix[self.targets.flatten() != IGNORED_LABEL] if len(matrix) == self.targets.numel() else matrix

    def mean(self, values: Tensor) -> Tensor:
        """The mean of one value per row: a scalar, or `[lanes]` for batched models."""
        return values.mean() if self.sample_weights is None else (values * self.sample_weights).sum(-1)

    def gradient_of_mean(self, rows: Tensor) -> Tensor:
        """The gradient of `mean` from that of each row's value."""
        return rows / len(rows) if self.sample_weights is None else rows * self.sample_weights.unsqueeze(-1)


class LossTerm(Term):
    """A term that adds to the loss, from the outputs of the model in training and of other models.

    Its context holds whole models, so that their outputs can be computed. Models are trained one by one, unless the
    class that defines `loss` says `batchable = True`.
    """

    batchable: ClassVar[bool] = False

    def __init_subclass__(cls, **options: Any) -> None:
        """A class with another loss than its base class does not inherit what was written for that loss."""
        super().__init_subclass__(**options)
        for name in ("batchable", "losses_and_gradient"):
            if name not in vars(cls) and "loss" in vars(cls):
                setattr(cls, name, getattr(LossTerm, name))

    @property
    def needs_features(self) -> bool:
        """Whether `loss` reads `ModelOutputs.features`."""
        return False

    def check_model(self, module: nn.Module) -> None:
        """Refuse a module without features if they are needed."""
        if self.needs_features:
            last_linear(module)

    @abstractmethod
    def loss(self, batch: Batch, context: HopContext) -> Tensor:
        """Return a scalar that is added to the loss of the batch.

        If the term is batchable, it is also called for batched models: logits and features are then
        `[lanes, batch, values]`, targets `[lanes, batch]`, and one number for each lane is returned, `[lanes]`.
        `Batch.rows` and `Batch.mean` work for both.
        """

    def losses_and_gradient(self, batch: Batch, context: HopContext) -> tuple[Tensor, OutputGradient]:
        """The losses of batched models, `[lanes]`, and their gradient. Overridden only where a formula is faster."""
        logits, features = (each.detach().requires_grad_() for each in (batch.outputs.logits, batch.outputs.features))
        losses = self.loss(replace(batch, outputs=ModelOutputs(logits, features)), context)
        if not losses.requires_grad:
            return losses, OutputGradient()
        return losses.detach(), OutputGradient(
            *torch.autograd.grad(losses.sum(), (logits, features), allow_unused=True)
        )


class AnchoredTerm(Term):
    """A term that keeps the model close to an anchor: the received model, or the round's global model."""

    anchor: Literal["recv", "round"] = Field(
        "recv", description="stay close to the model this client received, or to the round's global model"
    )

    @property
    def needs_round_model(self) -> bool:
        return self.anchor == "round"

    def anchor_model(self, context: HopContext) -> Tensor:
        return context.received if self.anchor == "recv" else context.round_model


def mean_of_payloads(arrivals: Sequence[Arrival], name: str) -> Tensor:
    """The mean of a payload over all arrivals, weighted by samples."""
    payloads = [arrival.payload[name] for arrival in arrivals]
    total = torch.zeros_like(payloads[0], dtype=torch.float64)
    for arrival, payload in zip(arrivals, payloads, strict=True):
        total.add_(payload, alpha=arrival.samples)
    mean = total / max(1, sum(arrival.samples for arrival in arrivals))
    return mean.to(payloads[0].dtype)


def call_in_place(hook: Callable[..., object], tensor: Tensor, *arguments: object) -> None:
    """Call a hook that changes `tensor` in place.

    Raises:
        SpecError: The hook returned something else instead, so its work would be lost.
    """
    returned = hook(tensor, *arguments)
    if returned is not None and returned is not tensor:
        term, name = hook.__qualname__.split(".")[-2:]
        got = type(returned).__name__
        raise SpecError(f"term {term!r}, {name}: must change its first tensor in place and return nothing, got a {got}")


def overriding(terms: Sequence[Term], hook: str) -> list[Term]:
    """The terms that override a hook of `Term`."""
    return [term for term in terms if getattr(type(term), hook) is not getattr(Term, hook)]
