"""GAN recovery: a curious client learns to generate images like those that the received models were trained on.

Paper: A. Silvi et al., IEEE Access 2024 (their GRA); after B. Hitaj, G. Ateniese, F. Perez-Cruz. Deep Models Under the
GAN. CCS 2017.

Rule: at each of its hops, the attacker copies the received model and adds a linear layer from the logits to one number.
This is the discriminator. A DCGAN generator (100 inputs, width 64, tanh output), which the attacker keeps over all
hops, is trained against it for some epochs over the attacker's own images, in batches of 64: the discriminator on real
and generated images with targets drawn from N(1, 0.1) and N(0, 0.1), the generator with target 1, both by Adam
(learning rate 2·10⁻⁴, betas 0.5 and 0.999). Then the discriminator is discarded. The model that is handed on is the
honest one.

Deviations: the attacker keeps its position on the route, so that the run is identical to the honest one; the paper puts
it behind another client of a chain. It attacks at every hop, also at the start of a chain, where it receives the
server's model as in FedAvg. The range of tanh is scaled to that of the attacker's own images, which are standardised.
If the side of the images is not a power of two, the generator starts from the smallest side that doubles to it (7 for
28). Targets are not clamped. Quality is the Fréchet distance of features of a given network; with the features of a
small network trained here (`feature_network`) it is called FID-cnn and is comparable only between runs of this package.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice, pairwise, repeat
from pathlib import Path
from typing import Self

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from fedrelay.data.samples import Samples
from fedrelay.errors import DataError, SpecError
from fedrelay.files import write_atomically
from fedrelay.models.feature_recorder import FeatureRecorder
from fedrelay.models.flat_layout import TORCH_GLOBALS, FlatLayout
from fedrelay.models.zoo import build_model
from fedrelay.rng import generator, torch_seed

LATENT = 100
"""The number of inputs of the generator."""

WIDTH = 64
"""Channels before the last layer; each earlier layer has twice as many."""

BATCH = 64

MIN_SIDE, GAP, WHITE = 32, 2, 255
"""Image grids: least size of an image in pixels, pixels between images, and their brightness."""

Features = Callable[[Tensor], Tensor]
"""Images → one row of features per image."""


@dataclass(frozen=True)
class ReceivedModel:
    """A model that a client received."""

    round: int
    client: int
    weights: Tensor


class ImageGenerator(nn.Module):
    """A DCGAN generator for square images with values between `low` and `high`, per channel."""

    low: Tensor
    high: Tensor

    def __init__(self, side: int, low: Tensor, high: Tensor) -> None:
        super().__init__()
        start, doublings = side, 0
        while start % 2 == 0 and start > 4:
            start, doublings = start // 2, doublings + 1
        widths = [WIDTH << level for level in reversed(range(max(1, doublings)))]
        layers: list[nn.Module] = [nn.ConvTranspose2d(LATENT, widths[0], start, bias=False), *_rest(widths[0])]
        for before, after in pairwise(widths):
            layers += [nn.ConvTranspose2d(before, after, 4, 2, 1, bias=False), *_rest(after)]
        last = (4, 2, 1) if doublings else (3, 1, 1)
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(widths[-1], len(low), *last), nn.Tanh())
        self.register_buffer("low", low.view(1, -1, 1, 1))
        self.register_buffer("high", high.view(1, -1, 1, 1))

    def forward(self, latent: Tensor) -> Tensor:
        images: Tensor = self.layers(latent[:, :, None, None])
        return self.low + (images + 1) / 2 * (self.high - self.low)

    @classmethod
    def of(cls, images: Tensor) -> Self:
        """A generator of images with the shape and range of these."""
        if images.dim() != 4 or images.shape[2] != images.shape[3]:
            raise SpecError(f"attack: needs square images, but samples have shape {tuple(images.shape[1:])}")
        return cls(images.shape[2], images.amin((0, 2, 3)), images.amax((0, 2, 3)))


def _rest(width: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(width), nn.ReLU()]


class GanAttacker:
    """An attacker that keeps a generator and trains it with every model it receives."""

    def __init__(self, module: nn.Module, own: Samples, *, epochs: int = 300, seed: int = 1) -> None:
        self.module, self.layout = module, FlatLayout.of(module)
        self.own, self.epochs, self.seed = own, epochs, seed
        with _seeded(seed, "gan"):
            self.generator = ImageGenerator.of(own.single_input)
        self.optimiser = _adam(self.generator)

    def train_on(self, received: ReceivedModel) -> None:
        """Train the generator against a received model, which is not modified."""
        with _seeded(self.seed, "gan", received.round, received.client):
            model = copy.deepcopy(self.module)
            model.load_state_dict(self.layout.state_dict(received.weights, self.module))
            with torch.no_grad():
                classes = model.eval()(self.own.single_input[:1]).shape[-1]
            discriminator = nn.Sequential(model, nn.Linear(classes, 1)).train()
            optimiser = _adam(discriminator)
            self.generator.train()
            orders = generator(self.seed, "gan-batches", received.round, received.client)
            for _ in range(self.epochs):
                for rows in _batches(orders.permutation(len(self.own.y))):
                    if len(rows) > 1:  # BatchNorm needs more than one image
                        self._step(discriminator, optimiser, self.own.single_input[rows])

    def _step(self, discriminator: nn.Module, optimiser: torch.optim.Optimizer, real: Tensor) -> None:
        fake = self.generator(torch.randn(len(real), LATENT))
        optimiser.zero_grad()
        loss = _loss(discriminator(real), 1.0, 0.1) + _loss(discriminator(fake.detach()), 0.0, 0.1)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        self.optimiser.zero_grad()
        _loss(discriminator(fake), 1.0, 0.0).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def generate(self, count: int, key: int = 0) -> Tensor:
        """Generate images; the same key gives the same images."""
        noise = generator(self.seed, "gan-draw", key).standard_normal((count, LATENT), dtype=np.float32)
        self.generator.eval()
        with torch.no_grad():
            return torch.cat([self.generator(part) for part in torch.split(torch.from_numpy(noise), 500)])


def _batches(order: NDArray[np.int64]) -> tuple[Tensor, ...]:
    return torch.split(torch.from_numpy(order), BATCH)


def _loss(logits: Tensor, target: float, deviation: float) -> Tensor:
    """Binary cross-entropy with targets drawn from N(target, deviation)."""
    targets = torch.full_like(logits, target) + deviation * torch.randn_like(logits)
    return F.binary_cross_entropy_with_logits(logits, targets)


def _adam(module: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(module.parameters(), 2e-4, (0.5, 0.999))


@contextmanager
def _seeded(seed: int, purpose: str, *keys: int) -> Iterator[None]:
    """Seed PyTorch's global generator by a key, and restore it afterwards."""
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, purpose, *keys))
        yield


def feature_network(samples: Samples, classes: int, *, steps: int = 1000, seed: int = 1) -> Features:
    """Train a small CNN on these images; its last features are those of FID-cnn.

    With too few steps, the scale of the features, and of all distances, would be that of the initial weights.
    """
    with _seeded(seed, "fid-cnn"):
        network = build_model("cnn-s", tuple(samples.single_input.shape[1:]), classes, kind="image").train()
        optimiser = torch.optim.SGD(network.parameters(), 0.02, momentum=0.9)
        orders = generator(seed, "fid-batches")
        passes = (_batches(orders.permutation(each)) for each in repeat(len(samples.y)))
        for rows in islice(chain.from_iterable(passes), steps):
            optimiser.zero_grad()
            F.cross_entropy(network(samples.single_input[rows]), samples.y[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    tap = FeatureRecorder(network.eval())

    def features(images: Tensor) -> Tensor:
        with torch.no_grad():
            network(images)
        return tap.features

    return features


def frechet_distance(features: Features, images: Tensor, others: Tensor) -> float:
    """‖μ₁ − μ₂‖² + Tr(Σ₁ + Σ₂ − 2(Σ₁Σ₂)^½) of the features of two sets of images; 0 if they are equal."""
    (mean, spread), (other_mean, other_spread) = (_moments(features, each) for each in (images, others))
    # The eigenvalues of a product of covariance matrices are real and not negative, up to rounding.
    roots = np.sqrt(np.linalg.eigvals(spread @ other_spread).real.clip(min=0)).sum()
    distance = ((mean - other_mean) ** 2).sum() + np.trace(spread) + np.trace(other_spread) - 2 * roots
    return float(max(0.0, distance))


def _moments(features: Features, images: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and covariance of the features."""
    with torch.no_grad():
        rows = torch.cat([features(part) for part in torch.split(images, 500)]).double().numpy()
    if rows.ndim != 2 or len(rows) != len(images):
        raise SpecError(f"FID: features must have one row per image, got {rows.shape} for {len(images)} images")
    count, size = rows.shape
    if count <= size:
        raise DataError(f"FID: needs more images than features, got {count} images and {size} features")
    return rows.mean(axis=0), np.cov(rows, rowvar=False) + 1e-6 * np.eye(size)


def save_image_grid(images: Tensor, path: Path, columns: int = 8) -> None:
    """Write a PNG file with all images in a grid, low values dark; small images are enlarged."""
    low, high = images.amin((0, 2, 3), keepdim=True), images.amax((0, 2, 3), keepdim=True)
    grey = ((images - low) / (high - low).clamp(min=1e-9) * 255).round().to(torch.uint8)
    times = -(-MIN_SIDE // min(grey.shape[2:]))
    tiles = F.pad(grey.repeat_interleave(times, 2).repeat_interleave(times, 3), (0, GAP, 0, GAP), value=WHITE)
    count, channels, height, width = tiles.shape
    rows = -(-count // columns)
    cells = tiles.new_full((rows * columns, channels, height, width), WHITE)
    cells[:count] = tiles
    grid = cells.view(rows, columns, channels, height, width).permute(0, 3, 1, 4, 2)
    pixels = grid.reshape(rows * height, columns * width, channels)[:-GAP, :-GAP].numpy()
    content = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels[:, :, :3]).save(content, "png")
    write_atomically(path, content.getvalue())


def hops_at(client: int, routes: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """(route, index) of the hops at a client."""
    return tuple(
        (number, index)
        for number, clients in enumerate(routes)
        for index, visited in enumerate(clients)
        if visited == client
    )
