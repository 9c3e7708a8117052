"""ψ_t2v: Task2Vec: which filters of a probe network matter for a client's images and labels.

Papers: A. Achille et al., Task2Vec, ICCV 2019; A. Silvi et al., IEEE Access 2024 (for grouping).

Rule: a probe network φ was trained on another task. For every client: (1) with φ frozen, a linear classifier on its
features is fitted to the client's labels (Adam, learning rate 4e-4, weight decay 1e-4, 10 epochs, all classes drawn
equally often); (2) for every batch of images, labels are drawn from the network's own prediction, and the squared
gradients of their cross-entropy are averaged over the batches: the diagonal of the Fisher information; (3) the entries
of each weight tensor are averaged per filter; (4) the vector has all filters except those of the classifier. Biases are
left out; weights of normalisation layers count as filters.

Deviations: the paper's probe is a ResNet-18 trained on ImageNet. Here it is a small CNN (cnn-s) trained on the data set
`grouping.probe`, unless that is a file with the weights of a ResNet-18. The probe is saved with the run. Images are
scaled to zero mean and unit variance by the statistics of the test set, and resized to the input of the probe (64×64
colour for a ResNet-18). An epoch of (1), and (2), draw 9,984 samples in batches of 64, as in the authors' code. All
clients use the same initial classifier and the same random draws, so that clients with equal data have equal vectors.
Normalisation layers use their stored statistics. This happens once, during setup: the probe is sent to every client,
and its vector comes back.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from torch import Tensor

from fedrelay.cost.flops import training_flops
from fedrelay.cost.ledger import SetupCost, SetupTransfer
from fedrelay.errors import SpecError
from fedrelay.grouping.distances import DistanceName
from fedrelay.grouping.profiles.base import Profile, ProfileInputs, ProfileOptions, ProfilingResult, row_bytes
from fedrelay.grouping.profiles.probe_network import ImageAdapter, ProbeNetwork, make_probe
from fedrelay.local.client_profiler import ClientProfiler, ProfileVector
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.rng import generator

BATCH = 64
EPOCHS = 10
BATCHES = 156
STEP_SIZE, WEIGHT_DECAY = 4e-4, 1e-4


class Task2VecProfiler(ClientProfiler):
    """The importance of each filter of a probe. The job's module is the probe."""

    trains: ClassVar[bool] = False
    adapter: ImageAdapter

    def compute(self, client: int, weights: Tensor, flat_module: FlatModule, job: TrainingJob) -> ProfileVector:
        flat_module.load(weights)
        flat_module.module.eval()
        samples = job.federation.train_samples(client).load()
        x, y = samples.single_input, samples.y
        features = self._features(flat_module, x)
        classifier = fit_classifier(features, y.to(features.device), job.federation.class_count, job.seed)
        information = self._information(flat_module, x, y, classifier, job.seed)
        filters = [
            entry.view(information).flatten(1).mean(dim=1) if len(entry.shape) > 1 else entry.view(information)
            for entry in job.layout.entries
            if entry.part == "trained" and entry.name.rpartition(".")[2] == "weight"
        ]
        vector: ProfileVector = torch.cat(filters).float().cpu().numpy()
        return vector

    def _features(self, flat_module: FlatModule, x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat(
                [flat_module.outputs(flat_module.to_inputs(self.adapter(part))) for part in torch.split(x, 8 * BATCH)]
            )

    def _information(self, flat_module: FlatModule, x: Tensor, y: Tensor, classifier: Tensor, seed: int) -> Tensor:
        """The mean squared gradient of batches whose labels are drawn from the network's prediction."""
        order, rng = balanced_draw(y, BATCHES * BATCH, seed, "fisher"), generator(seed, "task2vec", "labels")
        total = torch.zeros_like(flat_module.gradient, dtype=torch.float64)
        for rows in torch.split(order, BATCH):
            logits = F.linear(
                flat_module.outputs(flat_module.to_inputs(self.adapter(x[rows]))), classifier[:, :-1], classifier[:, -1]
            )
            thresholds = torch.from_numpy(rng.random((len(rows), 1)))
            drawn = (logits.detach().double().softmax(-1).cumsum(-1).cpu() < thresholds).sum(-1)
            loss = F.cross_entropy(logits, drawn.clamp(max=logits.shape[1] - 1).to(logits.device))
            total += flat_module.compute_gradient(loss).double().square()
        return total / BATCHES


def fit_classifier(features: Tensor, y: Tensor, classes: int, seed: int) -> Tensor:
    """Fit a linear classifier on fixed features: weights and, in the last column, biases.

    Adam is written out, because an optimiser object would be much slower for a few hundred numbers.
    """
    inputs = torch.cat([features, features.new_ones(len(features), 1)], dim=1)
    targets = F.one_hot(y, classes).to(inputs)
    bound = features.shape[1] ** -0.5
    start = generator(seed, "task2vec", "classifier").uniform(-bound, bound, (classes, inputs.shape[1]))
    theta = torch.from_numpy(start).to(inputs)
    mean, square = torch.zeros_like(theta), torch.zeros_like(theta)
    order = balanced_draw(y, EPOCHS * BATCHES * BATCH, seed, "fit").to(inputs.device)
    for step, rows in enumerate(torch.split(order, BATCH), start=1):
        x = inputs[rows]
        gradient = (torch.softmax(x @ theta.T, -1) - targets[rows]).T @ x / len(rows) + WEIGHT_DECAY * theta
        mean.lerp_(gradient, 0.1)
        square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        scale = (square / (1 - 0.999**step)).sqrt_().add_(1e-8)
        theta.addcdiv_(mean, scale, value=-STEP_SIZE / (1 - 0.9**step))
    return theta


def balanced_draw(y: Tensor, draws: int, seed: int, purpose: str) -> Tensor:
    """Draw sample indices with replacement, so that all classes are equally likely."""
    labels = y.cpu().numpy()
    shares = 1 / np.bincount(labels)[labels]
    return torch.from_numpy(generator(seed, "task2vec", purpose).choice(len(labels), draws, p=shares / shares.sum()))


class Task2VecProfile(Profile):
    """The Task2Vec embedding of each client."""

    non_negative: ClassVar[bool] = True
    default_distance: ClassVar[DistanceName] = "norm-cosine"
    options: ClassVar[frozenset[str]] = frozenset({"probe"})
    computed_by_clients: ClassVar[bool] = True

    def check_inputs(self, inputs: ProfileInputs, options: ProfileOptions) -> None:
        if inputs.federation.kind != "image":
            raise SpecError(
                f"grouping.profile: 't2v' needs images, but the samples of {inputs.federation.name!r} are "
                f"{inputs.federation.kind}"
            )
        if not inputs.federation.class_count or inputs.federation.target_shape:
            raise SpecError(f"grouping.profile: 't2v' needs one class per sample; {inputs.federation.name!r} has none")

    def compute(self, inputs: ProfileInputs, clients: NDArray[np.int64], options: ProfileOptions) -> ProfilingResult:
        self.check_inputs(inputs, options)
        probe = make_probe(inputs, options.probe)
        layout = FlatLayout.of(probe.module)
        job = replace(
            inputs.training_job(),
            module=probe.module,
            layout=layout,
            terms=(),
            seed=inputs.seed,
            lanes=1,
            module_rebuilder=probe.module_rebuilder,
        )
        profiler = Task2VecProfiler(adapter=ImageAdapter.for_federation(probe.shape, inputs.federation))
        weights = layout.flatten(probe.module)
        rows = inputs.profile_vectors(job, profiler, clients.tolist(), weights)
        step = SetupCost(
            clients.tolist(),
            SetupTransfer("probe", layout.bytes),
            SetupTransfer("profile", row_bytes(rows)),
            work=_work(probe, inputs.federation.class_count),
        )
        return ProfilingResult(rows.astype(np.float64), step, probe=layout.state_dict(weights, probe.module))


def _work(probe: ProbeNetwork, classes: int) -> Callable[[int, float], float]:
    """The floating-point operations of an embedding: features of all samples, a linear classifier, gradients of
    batches.

    A forward pass is a third of a training step, because the backward pass takes twice as long.
    """

    @cache
    def steps() -> tuple[float, float]:
        images = torch.zeros(2, *probe.shape)
        step = training_flops(probe.module, images, torch.zeros(2), lambda outputs, _: outputs.sum())
        with torch.no_grad():
            width = copy.deepcopy(probe.module).cpu().eval()(images).shape[1]
        return step, 4 * width * classes  # the classifier's outputs and the gradient of its weights

    def work(samples: int, _: float) -> float:
        (step, fit), draws = steps(), BATCHES * BATCH
        return step * samples / 3 + EPOCHS * draws * fit + draws * (step + fit)

    return work
