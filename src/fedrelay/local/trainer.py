"""The training pass of one hop, exactly the same for every method and engine.

θ ← recv, fresh optimiser, train mode; for every epoch and mini-batch (shuffled, the short last one kept): gradient of
the cross-entropy, plus the terms, clipped, SGD step. Models with BatchNorm drop a short last batch, because its
statistics would be too poor, and meet a lone sample in evaluation mode, because one sample has none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedrelay.data.federation import Federation
from fedrelay.experiment.spec import GuardSettings, TrainSettings
from fedrelay.local.arrival import HopReport
from fedrelay.local.fisher import fisher_diagonal
from fedrelay.local.hop_context import HopContext, HopOutcome, Labels, write_back
from fedrelay.local.loss import Loss, cross_entropy
from fedrelay.local.module_builder import ModuleBuilder
from fedrelay.local.sgd import Sgd
from fedrelay.local.teachers import Teachers
from fedrelay.local.terms.base import LossTerm, Noise, Term, overriding
from fedrelay.local.terms.tensors import ClientState, Payload, ServerState
from fedrelay.models.layout import FlatLayout, FlatModule
from fedrelay.rng import Keyed, generator, secret_normal, torch_seed
from fedrelay.robustness.guard import peaks, shorten
from fedrelay.routes.plan import Hop, RoundPlan

UNGUARDED = GuardSettings()
"""Divergence ends the run, everything else is handed on."""

_PLACES = {"state": ClientState, "server": ServerState, "payload": Payload}


@dataclass(frozen=True)
class TrainingJob:
    """All that is needed to carry out hops."""

    module: nn.Module
    layout: FlatLayout
    federation: Federation
    train: TrainSettings
    terms: Sequence[Term]
    seed: int
    lanes: int = 1
    loss: Loss = cross_entropy
    guard: GuardSettings = UNGUARDED
    secret_noise: bool = False
    """Whether noise that protects clients comes from the operating system. Real nodes set it. Otherwise it comes from
    `seed`: a simulation can be repeated, and anybody who knows the seed can remove the noise."""

    origin: ModuleBuilder | None = None
    """How the module can be built elsewhere; None: only its owner knows."""

    @property
    def attends(self) -> bool:
        """Whether anything is done in a turn besides training."""
        return bool(self.terms) or self.guard.norm is not None

    def names(self, kind: Literal["state", "server", "payload"]) -> tuple[str, ...]:
        """The tensors that the terms keep or send."""
        return tuple(tensor.name for term in self.terms for tensor in term.tensors if isinstance(tensor, _PLACES[kind]))

    @cached_property
    def adding_up(self) -> frozenset[str]:
        """What clients keep of which changes add up, where two routes meet at a client in the same turn."""
        held = (tensor for term in self.terms for tensor in term.tensors if isinstance(tensor, ClientState))
        return frozenset(tensor.name for tensor in held if tensor.adds_up)

    def goes_in_waves(self, plan: RoundPlan) -> bool:
        """Whether routes share clients that keep something: then all hops of a step come before the next step."""
        visitors = Counter(client for route in plan.routes for client in set(route.clients))
        return bool(self.names("state")) and max(visitors.values(), default=0) > 1

    def relative_size(self, client: int) -> float:
        """How many samples a client has, as a multiple of the mean of all clients."""
        return self.federation.size(client) / self._mean_size

    @cached_property
    def _mean_size(self) -> float:
        return float(self.federation.sizes().mean())


class Trainer(Protocol):
    """Carries out hops. Each process has its own; between calls it keeps nothing but what `shuffle` has foreseen."""

    shuffle: Shuffle

    def train(self, hops: Sequence[Hop], visits: Sequence[HopContext], out: Sequence[Tensor]) -> list[HopReport]:
        """Train each received model on its hop's client and write it to its place in `out`."""


class EagerTrainer:
    """One model after another, by automatic differentiation: any module, any device."""

    def __init__(self, job: TrainingJob, bench: FlatModule) -> None:
        self.job = job
        self.bench = bench
        self.shuffle = Shuffle(job)
        self.beginning = overriding(job.terms, "begin")
        self.adding = overriding(job.terms, "add_to")
        self.losses = [term for term in job.terms if isinstance(term, LossTerm)]
        features = any(term.needs_features for term in self.losses)
        self.teachers = Teachers(bench, features=features) if self.losses else None
        self.total = torch.zeros((), dtype=torch.float64, device=job.train.device)
        modules = bench.module.modules()
        self.norms = [part for part in modules if isinstance(part, nn.modules.batchnorm._BatchNorm)]

    def train(self, hops: Sequence[Hop], visits: Sequence[HopContext], out: Sequence[Tensor]) -> list[HopReport]:
        """Train each model in turn."""
        return [self._hop(*turn) for turn in zip(hops, visits, out, strict=True)]

    def _hop(self, hop: Hop, visit: HopContext, out: Tensor) -> HopReport:
        bench, terms = self.bench, self.job.terms
        x, y = self.job.federation.samples(hop.client)
        bench.load(visit.recv)
        if not bench.module.training:  # goes through all parts of the module, so not at every hop
            bench.module.train()
        theta, gradient = bench.trained, bench.gradient
        here = visit.each(lambda tensor: tensor.to(theta.device)) if self.job.attends else visit
        seen = here.each(lambda tensor: tensor[: len(theta)]) if self.job.attends else visit
        for term in self.beginning:
            term.begin(bench, here)
        train = self.job.train.at(hop.round)
        optimiser = Sgd(train, theta)
        total = self.total.zero_()
        steps = 0
        for inputs, targets in self._batches(hop, x, y):
            loss = self._loss(inputs, targets, here)
            gradient.zero_()
            loss.backward()  # type: ignore[no-untyped-call]
            for term in self.adding:
                term.add_to(gradient, theta, seen)
            optimiser.step(theta, gradient)
            total += loss.detach()
            steps += 1
        model = bench.collect()
        length = 0.0
        if self.job.attends:
            trained = finish(terms, theta, seen, partial(noise_of, self.job, [hop], theta))
            length = float(shorten(theta, seen))
            fisher = partial(self._fisher, hop, x, y)
            remember(terms, seen, HopOutcome(trained, theta, steps, train.lr, model, here, fisher))
            if here.recv is not visit.recv:  # on another device
                write_back(here.each(lambda tensor: tensor.unsqueeze(0)), [visit])
        out.copy_(model)  # last of all: it may lie where the received model was
        [peak] = peaks(out[: self.job.layout.counters])
        return HopReport(len(y), steps, float(total) / max(1, steps), peak, length, length > float(visit.longest))

    def _loss(self, inputs: Tensor, targets: Tensor, visit: HopContext) -> Tensor:
        lonely = [norm for norm in self.norms if norm.training] if len(targets) == 1 else []
        for norm in lonely:
            norm.eval()
        logits = self.bench.module(inputs)
        loss = self.job.loss(logits, targets)
        if self.teachers is not None:
            batch = self.teachers.batch(inputs, targets, logits)
            for term in self.losses:
                loss = loss + term.loss(batch, visit)
        for norm in lonely:
            norm.train()
        return loss

    def _fisher(self, hop: Hop, x: Tensor, y: Tensor, labels: Labels) -> Tensor:
        seed_torch(torch_seed(self.job.seed, "fisher", *key_of(hop)), self.job.train.device)
        return fisher_diagonal(self.bench, self.job.loss, x, y, labels)

    def _batches(self, hop: Hop, x: Tensor, y: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        train = self.job.train
        size, samples = train.batch_size, len(y)
        seed_torch(torch_seed(self.job.seed, "dropout", *key_of(hop)), train.device)
        # Only BatchNorm models lose the short last batch, and never their only one.
        end = samples - samples % size if self.norms and samples > size else samples
        for order in self.shuffle.orders(hop, samples):
            index = torch.from_numpy(order)
            # index_select, because it is several times faster than x[index].
            inputs, targets = self.bench.inputs(x.index_select(0, index)), y.index_select(0, index).to(train.device)
            for begin in range(0, end, size):
                yield inputs[begin : min(begin + size, end)], targets[begin : min(begin + size, end)]


def finish(terms: Sequence[Term], theta: Tensor, visit: HopContext, noise: Noise) -> Tensor:
    """Let terms change the model, or several side by side, one last time; returns it as it was before."""
    finishing, veiling = overriding(terms, "finish"), overriding(terms, "veil")
    trained = theta.clone() if finishing or veiling else theta
    for term in finishing:
        term.finish(theta, visit)
    for term in veiling:
        term.veil(theta, visit, noise)
    return trained


def noise_of(job: TrainingJob, hops: Sequence[Hop], models: Tensor, purpose: str) -> Tensor:
    """Standard normal numbers for one model or several side by side: fresh, or from the randomness of each hop."""
    if job.secret_noise:
        return torch.from_numpy(secret_normal(models.numel())).to(models).view_as(models)
    dtype = np.float64 if models.dtype == torch.float64 else np.float32
    rows = [generator(job.seed, purpose, *key_of(hop)).standard_normal(models.shape[-1], dtype) for hop in hops]
    return torch.from_numpy(np.stack(rows)).to(models).view_as(models)


def remember(terms: Sequence[Term], visit: HopContext, parting: HopOutcome) -> None:
    """Let terms write what a client keeps and what travels along; otherwise it keeps what it had."""
    for name, tensor in parting.whole.kept.items():
        tensor.copy_(parting.whole.state[name])
    for term in terms:
        term.remember(visit, parting)


class Shuffle:
    """The order in which clients' samples are seen."""

    def __init__(self, job: TrainingJob) -> None:
        self.job = job
        self.keyed = Keyed(job.seed, "batches")
        self.ahead: dict[Hop, list[NDArray[np.int64]]] = {}

    def foresee(self, hops: Iterable[Hop]) -> None:
        """Draw for a whole trip at once: between clients, with other things in the caches, it takes far longer."""
        self.ahead = {hop: self._draw(hop, self.job.federation.size(hop.client)) for hop in hops}

    def orders(self, hop: Hop, samples: int) -> list[NDArray[np.int64]]:
        """One order for each epoch of a hop."""
        return self.ahead.pop(hop, None) or self._draw(hop, samples)

    def _draw(self, hop: Hop, samples: int) -> list[NDArray[np.int64]]:
        rng = self.keyed.at(*key_of(hop))
        return [rng.permutation(samples) for _ in range(self.job.train.epochs)]


def key_of(hop: Hop) -> tuple[int, ...]:
    """What a hop's randomness depends on, besides the seed and the purpose."""
    key = (hop.round, hop.route, hop.index, hop.client)
    return (*key, hop.attempt) if hop.attempt else key


def seed_torch(seed: int, device: str) -> None:
    """Seed what dropout draws from; seeding the CPU's generator alone is a hundred times faster than all devices'."""
    if device == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
