"""The training pass of one hop, the same for every method and engine.

θ ← received model, new optimiser, train mode. For every epoch and mini-batch (shuffled; a short last batch is kept):
gradient of the loss, plus the terms, clipping, step. Models with BatchNorm drop a short last batch, because its
statistics would be poor, and see a single sample in eval mode, because one sample has no statistics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrelay.data.federation import Federation
from fedrelay.data.samples import SampleSource
from fedrelay.experiment.spec import GuardSettings, TrainSettings, TransferSettings
from fedrelay.local.class_weighted_batches import class_weighted_order
from fedrelay.local.fisher_information import fisher_diagonal
from fedrelay.local.gradient_at_moved_model import gradient_at_moved_model
from fedrelay.local.hop_context import HopContext, Labels, TrainedHop, write_back
from fedrelay.local.hop_state import HopState
from fedrelay.local.hop_watcher import HopProgress, HopWatcher
from fedrelay.local.module_rebuilder import ModuleRebuilder
from fedrelay.local.optimizers.base import Optimizer
from fedrelay.local.optimizers.build import build_optimizer
from fedrelay.local.optimizers.state_terms import first_state
from fedrelay.local.seed_torch import seed_torch
from fedrelay.local.step_counts import step_count
from fedrelay.local.teacher_model_runner import TeacherModelRunner
from fedrelay.local.terms.base import LossTerm, Term, call_in_place, overriding
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState, TermTensor, value_count
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.models.nested_inputs import Inputs, rows_of
from fedrelay.rng import KeyedRandom, generator, secret_normal, torch_seed
from fedrelay.robustness.guard import clip_updates, max_abs_weights
from fedrelay.routes.arrival import HopReport
from fedrelay.routes.plan import Hop, RoundPlan
from fedrelay.tasks.base import Task
from fedrelay.tasks.classification import Classification
from fedrelay.transfer.model_codec import ModelCodec

PLAIN_CLASSIFICATION = Classification()
UNGUARDED = GuardSettings()
"""Divergence ends the run; every other model is accepted."""

AS_THEY_ARE = TransferSettings()
"""Models are sent as they are."""


@dataclass(frozen=True)
class TrainingJob:
    """Everything that is needed to run hops: data, model and settings."""

    module: nn.Module
    layout: FlatLayout
    federation: Federation
    train: TrainSettings
    terms: Sequence[Term]
    seed: int
    lanes: int = 1
    """The largest number of models that are trained as one batched model."""

    rounds: int = 1
    """The number of rounds of the run, which some schedules of the learning rate depend on."""

    task: Task = PLAIN_CLASSIFICATION
    task_reference: str | None = None
    """`MODULE:NAME`, by which nodes find a task of the user's own; None if it has no such name."""

    transfer: TransferSettings = AS_THEY_ARE
    guard: GuardSettings = UNGUARDED
    secret_noise: bool = False
    """Whether noise that protects clients comes from the operating system. Real nodes set it. Otherwise it comes from
    `seed`: a simulation can be repeated, and anyone who knows the seed can remove the noise."""

    module_rebuilder: ModuleRebuilder | None = None
    """Builds the module elsewhere; None if only the caller can."""

    fixed_steps: int | None = None
    """The steps of every hop, whatever `train` says."""

    @property
    def uses_context(self) -> bool:
        """Whether hops do anything besides training: hooks of terms, or clipping by the guard."""
        return bool(self.terms) or self.guard.norm is not None

    @cached_property
    def needs_round_model(self) -> bool:
        """Whether clients get the global model at the start of the round beside the model they train."""
        return any(term.needs_round_model for term in self.terms)

    def tensor_names(self, kind: type[TermTensor]) -> tuple[str, ...]:
        """The names of the terms' client states, server states or payloads."""
        return tuple(self.tensor_sizes(kind))

    def tensor_sizes(self, kind: type[TermTensor]) -> Mapping[str, int]:
        """The same names, with the number of values of each: the size of the model, or 1."""
        return self._tensor_sizes[kind]

    @cached_property
    def _tensor_sizes(self) -> dict[type[TermTensor], dict[str, int]]:
        size, tensors = self.layout.size, [tensor for term in self.terms for tensor in term.tensors]
        return {
            kind: {each.name: value_count(each, size) for each in tensors if isinstance(each, kind)}
            for kind in (ClientState, ServerState, Payload)
        }

    @cached_property
    def additive_state(self) -> frozenset[str]:
        """Client states to which two routes at the same client in the same step add their changes."""
        states = (tensor for term in self.terms for tensor in term.tensors if isinstance(tensor, ClientState))
        return frozenset(state.name for state in states if state.additive)

    @cached_property
    def states_until_merge(self) -> tuple[ClientState, ...]:
        """Client states that a merge ends."""
        states = (tensor for term in self.terms for tensor in term.tensors if isinstance(tensor, ClientState))
        return tuple(state for state in states if state.until_merge)

    def needs_waves(self, plan: RoundPlan) -> bool:
        """Whether routes share clients that keep state: then all hops of a step come before the next step."""
        routes_at = Counter(client for route in plan.routes for client in set(route.clients))
        return bool(self.tensor_names(ClientState)) and max(routes_at.values(), default=0) > 1

    def steps(self, plan: RoundPlan) -> tuple[tuple[int, ...], ...]:
        """For each route, the step of each of its hops, where routes share clients that keep state.

        States that a merge ends add up to what the server is told only if a client trains one model after another.
        """
        return plan.steps_one_by_one if self.states_until_merge else plan.steps

    @cached_property
    def codec(self) -> ModelCodec | None:
        """How clients encode the models that they send; None: as they are."""
        return ModelCodec.of(self.transfer, self.layout)

    @cached_property
    def optimizer(self) -> Optimizer:
        """The optimiser of all hops."""
        return build_optimizer(self.train)

    def learning_rate(self, hop: Hop) -> float:
        """The learning rate of a hop."""
        return self.train.learning_rate(hop.round, self.rounds, hop.index, hop.route_length)

    def route_lr_sum(self, hop: Hop) -> float:
        """The sum of the learning rates of all steps of a hop's route, as if all its hops were like this one."""
        steps = self.steps_with(self.federation.sample_count(hop.client))
        return self.learning_rate(hop) * max(1, steps) * hop.route_length

    def steps_with(self, samples: int) -> int:
        """The number of steps of a hop at a client with this many samples."""
        if (known := self._known_steps.get(samples)) is not None:
            return known
        steps = self.train.steps if self.fixed_steps is None else self.fixed_steps
        mean_size = self._mean_size if steps in ("equal", "inverse-size") else samples
        found = step_count(steps, self.train.epochs, samples, mean_size, self.steps_per_epoch)
        return self._known_steps.setdefault(samples, found)

    @cached_property
    def _known_steps(self) -> dict[int, int]:
        """Samples → steps: they are asked for at every hop, and clients of the same size come again and again."""
        return {}

    def samples_seen(self, client: int) -> int:
        """The samples that a hop at a client trains on; one that is used twice counts twice."""
        samples = self.federation.sample_count(client)
        steps, per_epoch = self.steps_with(samples), max(1, self.steps_per_epoch(samples))
        in_epoch = samples_per_epoch(samples, self.train.batch_size, drop_last=self.drops_last_batch)
        return steps // per_epoch * in_epoch + steps % per_epoch * self.train.batch_size

    def steps_per_epoch(self, samples: int) -> int:
        """The number of steps of a pass over this many samples."""
        size = self.train.batch_size
        return -(-samples_per_epoch(samples, size, drop_last=self.drops_last_batch) // size)

    @cached_property
    def drops_last_batch(self) -> bool:
        """Whether a short last batch is left out, because of BatchNorm."""
        return bool(batch_norms(self.module))

    def relative_size(self, client: int) -> float:
        """The client's number of samples divided by the mean of all clients."""
        return self.federation.sample_count(client) / self._mean_size

    @cached_property
    def _mean_size(self) -> float:
        return float(self.federation.sample_counts().mean())


class Trainer(Protocol):
    """Trains models. Each process has its own trainer; it keeps nothing between calls but `sample_orders`."""

    sample_orders: SampleOrders

    def train_hops(
        self,
        hops: Sequence[Hop],
        contexts: Sequence[HopContext],
        out: Sequence[Tensor],
        watcher: HopWatcher | None = None,
    ) -> list[HopReport]:
        """Train each received model on its hop's client and write it to its tensor in `out`.

        Args:
            hops: The hops.
            contexts: The context of each.
            out: Where the model of each is written.
            watcher: Is told of every step of a single hop that is trained by itself.
        """


class EagerTrainer:
    """Trains one model after another with automatic differentiation: any module, any device."""

    def __init__(self, job: TrainingJob, flat_module: FlatModule) -> None:
        self.job = job
        self.flat_module = flat_module
        self.sample_orders = SampleOrders(job)
        self.start_hooks = overriding(job.terms, "adjust_received_model")
        self.moves = overriding(job.terms, "move_before_gradient")
        self.gradient_hooks = overriding(job.terms, "add_gradient")
        changes_gradients = bool(self.moves or self.gradient_hooks)
        self.descends = job.optimizer.is_plain_descent(job.train) and not changes_gradients
        self.loss_terms = [term for term in job.terms if isinstance(term, LossTerm)]
        features = any(term.needs_features for term in self.loss_terms)
        self.teachers = TeacherModelRunner(flat_module, features=features) if self.loss_terms else None
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=job.train.device)
        self.norms = batch_norms(flat_module.module)

    def train_hops(
        self,
        hops: Sequence[Hop],
        contexts: Sequence[HopContext],
        out: Sequence[Tensor],
        watcher: HopWatcher | None = None,
    ) -> list[HopReport]:
        return [self._train(*each, watcher) for each in zip(hops, contexts, out, strict=True)]

    def _train(self, hop: Hop, context: HopContext, out: Tensor, watcher: HopWatcher | None) -> HopReport:
        model = self.flat_module
        samples = self.job.federation.train_samples(hop.client)
        model.load(context.received)
        if not model.module.training:  # goes through all parts of the module, so not at every hop
            model.module.train()
        theta = model.trained
        full_context = trained_context = context
        if self.job.uses_context:
            full_context = context.map(lambda tensor: tensor.to(theta.device))
            trained_context = full_context.map(lambda tensor: tensor[: len(theta)])
        seed_torch(torch_seed(self.job.seed, "dropout", *hop_key(hop)), self.job.train.device)
        for term in self.start_hooks:
            term.adjust_received_model(model, full_context)
        lr = self.job.learning_rate(hop)
        state = first_state(self.job.terms, trained_context)
        optimiser = self.job.optimizer.start_hop(self.job.train, lr, theta, state)
        loss_sum = self.loss_sum.zero_()
        steps = 0
        last = torch.zeros_like(theta) if self.moves else None
        if watcher is not None:
            state_of_hop = HopState(model, optimiser, loss_sum, full_context, last)
            total, per_epoch = self.job.steps_with(samples.size), max(1, self.job.steps_per_epoch(samples.size))
            steps = state_of_hop.restore(watcher.start())
        for inputs, targets in self._batches(hop, samples, steps):
            if self.descends:
                loss = self._loss(inputs, targets, full_context)
                model.descend(loss, lr)
            else:
                backward = partial(self._backward, inputs, targets, full_context)
                if last is None:
                    loss = backward()
                else:
                    loss = gradient_at_moved_model(self.moves, theta, model.gradient, last, backward)
                for term in self.gradient_hooks:
                    call_in_place(term.add_gradient, model.gradient, theta, trained_context)
                optimiser.step(theta, model.gradient)
            loss_sum += loss.detach()
            steps += 1
            if watcher is not None:
                watcher.after_step(HopProgress(steps, total, per_epoch), partial(state_of_hop.snapshot, steps))
        full_model = model.collect()
        norm = 0.0
        if self.job.uses_context:
            fisher = partial(self._fisher, hop, samples)
            outcome = TrainedHop(theta, theta, steps, lr, full_model, full_context, optimiser.state, fisher)
            norm = float(run_end_hooks(self.job, [hop], trained_context, outcome))
            if full_context.received is not context.received:  # on another device
                write_back(full_context.map(lambda tensor: tensor.unsqueeze(0)), [context])
        out.copy_(full_model)  # last, because `out` may be the memory of the received model
        [largest] = max_abs_weights(out[: self.job.layout.float_size])
        mean_loss = float(loss_sum) / max(1, steps)
        return HopReport(samples.size, steps, mean_loss, largest, norm, norm > float(context.max_update_norm), lr=lr)

    def _backward(self, inputs: Inputs, targets: Tensor, context: HopContext) -> Tensor:
        """The loss of a batch; its gradient is in the module's gradient afterwards."""
        loss = self._loss(inputs, targets, context)
        self.flat_module.compute_gradient(loss)
        return loss

    def _loss(self, inputs: Inputs, targets: Tensor, context: HopContext) -> Tensor:
        norms = [norm for norm in self.norms if norm.training] if len(targets) == 1 else []
        for norm in norms:
            norm.eval()
        logits = self.flat_module.outputs(inputs)
        task = self.job.task
        logits = task.outputs_for_loss(logits, targets)
        loss = task.batch_loss(logits, targets)
        if self.teachers is not None:
            batch = self.teachers.batch(inputs, targets, logits)
            for term in self.loss_terms:
                loss = loss + term.loss(batch, context)
        for norm in norms:
            norm.train()
        return loss

    def _fisher(self, hop: Hop, samples: SampleSource, labels: Labels) -> Tensor:
        seed_torch(torch_seed(self.job.seed, "fisher", *hop_key(hop)), self.job.train.device)
        return fisher_diagonal(self.flat_module, self.job.task, samples, labels)

    def _batches(self, hop: Hop, samples: SampleSource, done: int = 0) -> Iterator[tuple[Inputs, Tensor]]:
        """The batches of a hop, without the first ones, which were trained on before."""
        train, count = self.job.train, samples.size
        size = train.batch_size
        end = samples_per_epoch(count, size, drop_last=bool(self.norms))
        first, done = divmod(done, max(1, -(-end // size)))
        for epoch, order in enumerate(self.sample_orders.of_hop(hop, count)):
            if epoch < first:
                continue
            seed = torch_seed(self.job.seed, "reading", *hop_key(hop), epoch)
            for x, y in samples.pieces(order[:end], size, seed):
                if done >= -(-len(y) // size):
                    done -= -(-len(y) // size)
                    continue
                inputs, targets = self.flat_module.to_inputs(x), y.to(train.device)
                for begin in range(done * size, len(targets), size):
                    rows = slice(begin, begin + size)
                    yield rows_of(inputs, rows), targets[rows]
                done = 0


def batch_norms(module: nn.Module) -> list[nn.Module]:
    """The BatchNorm layers of a module."""
    return [part for part in module.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]


def samples_per_epoch(count: int, batch_size: int, *, drop_last: bool) -> int:
    """How many of `count` samples are used; only BatchNorm models drop a short last batch, and never their only one."""
    return count - count % batch_size if drop_last and count > batch_size else count


def run_end_hooks(job: TrainingJob, hops: Sequence[Hop], context: HopContext, outcome: TrainedHop) -> Tensor:
    """Run all hooks at the end of a hop, or of several batched hops.

    Args:
        job: The job of the hops.
        hops: The hops.
        context: The context, with the trained part of models.
        outcome: The outcome right after training; `outcome.sent` is changed in place.

    Returns:
        The norm of each update, before it is clipped.
    """
    theta = outcome.sent
    end_hooks, send_hooks = overriding(job.terms, "adjust_trained_model"), overriding(job.terms, "adjust_sent_model")
    if end_hooks or send_hooks:
        outcome = replace(outcome, trained=theta.clone())
    for term in end_hooks:
        call_in_place(term.adjust_trained_model, theta, context)
    for term in send_hooks:
        call_in_place(term.adjust_sent_model, theta, context, partial(hop_noise, job, hops, theta))
    norms = clip_updates(theta, context.received, context.max_update_norm)
    for name, tensor in outcome.full_context.new_client_state.items():
        tensor.copy_(outcome.full_context.client_state[name])
    for term in job.terms:
        term.write_state_and_payload(context, outcome)
    return norms


def hop_noise(job: TrainingJob, hops: Sequence[Hop], models: Tensor, purpose: str) -> Tensor:
    """Standard normal numbers in the shape of `models`: secret, or from the random stream of each hop."""
    if job.secret_noise:
        return torch.from_numpy(secret_normal(models.numel())).to(models).view_as(models)
    dtype = np.float64 if models.dtype == torch.float64 else np.float32
    rows = [generator(job.seed, purpose, *hop_key(hop)).standard_normal(models.shape[-1], dtype) for hop in hops]
    return torch.from_numpy(np.stack(rows)).to(models).view_as(models)


class SampleOrders:
    """Draws the order of a client's samples in each epoch of a hop."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job
        self.keyed = KeyedRandom(job.seed, "batches")
        self.ahead: dict[Hop, list[NDArray[np.int64]]] = {}

    def draw_ahead(self, hops: Iterable[Hop]) -> None:
        """Draw the orders of a whole route at once: between hops, with cold caches, it takes far longer."""
        self.ahead = {hop: self._draw(hop, self.job.federation.sample_count(hop.client)) for hop in hops}

    def of_hop(self, hop: Hop, samples: int) -> list[NDArray[np.int64]]:
        """One order per epoch of a hop; the last epoch may end early."""
        return self.ahead.pop(hop, None) or self._draw(hop, samples)

    def _draw(self, hop: Hop, samples: int) -> list[NDArray[np.int64]]:
        rng, steps = self.keyed.at(*hop_key(hop)), self.job.steps_with(samples)
        per_epoch = max(1, self.job.steps_per_epoch(samples))
        epochs = max(1, -(-steps // per_epoch))
        if self.job.train.batches == "class-weighted":
            labels = self.job.federation.train_samples(hop.client).targets().numpy()
            orders = [class_weighted_order(labels, rng) for _ in range(epochs)]
        else:
            orders = [rng.permutation(samples) for _ in range(epochs)]
        if rest := steps % per_epoch:
            orders[-1] = orders[-1][: rest * self.job.train.batch_size]
        return orders


def hop_key(hop: Hop) -> tuple[int, ...]:
    """What a hop's randomness depends on, besides the seed and the purpose."""
    key = (hop.round, hop.route, hop.index, hop.client)
    return (*key, hop.attempt) if hop.attempt else key
