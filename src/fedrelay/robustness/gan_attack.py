"""GAN recovery: a client that only looks learns to draw what the models it receives were trained on.

Paper: A. Silvi et al., IEEE Access 2024 (their GRA); after B. Hitaj, G. Ateniese, F. Perez-Cruz. Deep Models Under the
GAN. CCS 2017.

Rule: at every visit the attacker takes a copy of the model it received, puts a linear layer from its logits to one
number over it, and has a discriminator. A DCGAN generator (100 numbers in, width 64, tanh out), kept over all visits,
is trained against it for some epochs over the attacker's own images, in batches of 64: the discriminator on real and
generated images with targets drawn from N(1, 0.1) and N(0, 0.1), the generator with target 1, both by Adam (step
2·10⁻⁴, betas 0.5 and 0.999). The discriminator is thrown away. The model that is handed on is the honest one.

Deviations: the attacker stays where the route has it, so that the run is the honest one; the paper puts it into a chain
behind somebody else. It looks at every visit, also at the head of a chain, where it gets the server's model as in
FedAvg. tanh's range is stretched to that of the attacker's own images, which are standardised. For images whose side is
no power of two, the generator starts from the smallest side that doubles to it (7 for 28). Targets stay as drawn, the
loss takes any. The distance is the Fréchet distance of features of a network that is handed in; with the features of a
small network trained here (`feature_network`) it is called FID-cnn and comparable only within our runs.
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

from fedrelay.data.federation import Samples
from fedrelay.errors import DataError, SpecError
from fedrelay.files import write_atomically
from fedrelay.local.loss import cross_entropy
from fedrelay.models.features import FeatureRecorder
from fedrelay.models.layout import TORCH_GLOBALS, FlatLayout
from fedrelay.models.zoo import build_model
from fedrelay.rng import generator, torch_seed

LATENT = 100
"""Numbers from which an image is drawn."""

WIDTH = 64
"""Channels before the last layer; each layer before has twice as many."""

BATCH = 64

LEAST_SIDE, GAP, WHITE = 32, 2, 255
"""Of a contact sheet: pixels of an image at least, pixels between two, and their brightness."""

Features = Callable[[Tensor], Tensor]
"""Images → one row of features each."""


@dataclass(frozen=True)
class ReceivedModel:
    """A model as a client received it."""

    round: int
    client: int
    weights: Tensor


class ImageGenerator(nn.Module):
    """A DCGAN generator for square images, whose values lie between `low` and `high`, channel by channel."""

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
        """Images from rows of numbers."""
        drawn: Tensor = self.layers(latent[:, :, None, None])
        return self.low + (drawn + 1) / 2 * (self.high - self.low)

    @classmethod
    def of(cls, images: Tensor) -> Self:
        """One that draws images like these in shape and range."""
        if images.dim() != 4 or images.shape[2] != images.shape[3]:
            raise SpecError(f"attack: square images are needed, these samples have shape {tuple(images.shape[1:])}")
        return cls(images.shape[2], images.amin((0, 2, 3)), images.amax((0, 2, 3)))


def _rest(width: int) -> list[nn.Module]:
    return [nn.BatchNorm2d(width), nn.ReLU()]


class GanAttack:
    """An attacker who keeps a painter over all visits and learns from every model that is seen."""

    def __init__(self, module: nn.Module, own: Samples, *, epochs: int = 300, seed: int = 1) -> None:
        self.module, self.layout = module, FlatLayout.of(module)
        self.own, self.epochs, self.seed = own, epochs, seed
        with _seeded(seed, "gan"):
            self.painter = ImageGenerator.of(own.x)
        self.optimiser = _adam(self.painter)

    def see(self, received_model: ReceivedModel) -> None:
        """Learn from one visit; the model that was seen stays as it is."""
        with _seeded(self.seed, "gan", received_model.round, received_model.client):
            model = copy.deepcopy(self.module)
            seen = self.layout.state_dict(received_model.weights)
            model.load_state_dict({name: tensor.clone() for name, tensor in seen.items()})
            with torch.no_grad():
                classes = model.eval()(self.own.x[:1]).shape[-1]
            critic = nn.Sequential(model, nn.Linear(classes, 1)).train()
            against = _adam(critic)
            self.painter.train()
            orders = generator(self.seed, "gan-batches", received_model.round, received_model.client)
            for _ in range(self.epochs):
                for rows in _batches(orders.permutation(len(self.own.y))):
                    if len(rows) > 1:  # one image has no statistics
                        self._step(critic, against, self.own.x[rows])

    def _step(self, critic: nn.Module, against: torch.optim.Optimizer, real: Tensor) -> None:
        drawn = self.painter(torch.randn(len(real), LATENT))
        against.zero_grad()
        (_towards(critic(real), 1.0, 0.1) + _towards(critic(drawn.detach()), 0.0, 0.1)).backward()  # type: ignore[no-untyped-call]
        against.step()
        self.optimiser.zero_grad()
        _towards(critic(drawn), 1.0, 0.0).backward()  # type: ignore[no-untyped-call]
        self.optimiser.step()

    def draw(self, count: int, key: int = 0) -> Tensor:
        """So many images as the attacker imagines them now; the same key gives the same images."""
        noise = generator(self.seed, "gan-draw", key).standard_normal((count, LATENT), dtype=np.float32)
        self.painter.eval()
        with torch.no_grad():
            return torch.cat([self.painter(part) for part in torch.split(torch.from_numpy(noise), 500)])


def _batches(order: NDArray[np.int64]) -> tuple[Tensor, ...]:
    return torch.split(torch.from_numpy(order), BATCH)


def _towards(verdicts: Tensor, target: float, deviation: float) -> Tensor:
    """The loss of verdicts against targets around one value."""
    targets = torch.full_like(verdicts, target) + deviation * torch.randn_like(verdicts)
    return F.binary_cross_entropy_with_logits(verdicts, targets)


def _adam(module: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(module.parameters(), 2e-4, (0.5, 0.999))


@contextmanager
def _seeded(seed: int, purpose: str, *keys: int) -> Iterator[None]:
    """torch's own stream under a key, put back afterwards."""
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(torch_seed(seed, purpose, *keys))
        yield


def feature_network(samples: Samples, classes: int, *, steps: int = 1000, seed: int = 1) -> Features:
    """What the last layer of a small CNN sees, after it was trained on these images: the features of FID-cnn.

    After few steps the scale of its features, and with it every distance, would still be that of its first weights.
    """
    with _seeded(seed, "fid-cnn"):
        network = build_model("cnn-s", tuple(samples.x.shape[1:]), classes, kind="image").train()
        optimiser = torch.optim.SGD(network.parameters(), 0.02, momentum=0.9)
        orders = generator(seed, "fid-batches")
        passes = (_batches(orders.permutation(each)) for each in repeat(len(samples.y)))
        for rows in islice(chain.from_iterable(passes), steps):
            optimiser.zero_grad()
            cross_entropy(network(samples.x[rows]), samples.y[rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    tap = FeatureRecorder(network.eval())

    def features(images: Tensor) -> Tensor:
        with torch.no_grad():
            network(images)
        return tap.features

    return features


def frechet_distance(features: Features, images: Tensor, others: Tensor) -> float:
    """‖μ₁ − μ₂‖² + Tr(Σ₁ + Σ₂ − 2(Σ₁Σ₂)^½) of the features of two sets of images: 0 where they are alike."""
    (mean, spread), (other_mean, other_spread) = (_moments(features, each) for each in (images, others))
    # The eigenvalues of a product of two such matrices are real and not negative, but for rounding.
    roots = np.sqrt(np.linalg.eigvals(spread @ other_spread).real.clip(min=0)).sum()
    distance = ((mean - other_mean) ** 2).sum() + np.trace(spread) + np.trace(other_spread) - 2 * roots
    return float(max(0.0, distance))


def _moments(features: Features, images: Tensor) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and covariance."""
    with torch.no_grad():
        rows = torch.cat([features(part) for part in torch.split(images, 500)]).double().numpy()
    if rows.ndim != 2 or len(rows) != len(images):
        raise SpecError(f"FID: one row of features for each image is needed, got {rows.shape} for {len(images)} images")
    count, size = rows.shape
    if count <= size:
        raise DataError(f"FID: more images than features are needed, got {count} images and {size} features")
    return rows.mean(axis=0), np.cov(rows, rowvar=False) + 1e-6 * np.eye(size)


def contact_sheet(images: Tensor, path: Path, columns: int = 8) -> None:
    """Write images side by side as one picture, dark where values are low; small ones are made larger."""
    low, high = images.amin((0, 2, 3), keepdim=True), images.amax((0, 2, 3), keepdim=True)
    grey = ((images - low) / (high - low).clamp(min=1e-9) * 255).round().to(torch.uint8)
    times = -(-LEAST_SIDE // min(grey.shape[2:]))
    tiles = F.pad(grey.repeat_interleave(times, 2).repeat_interleave(times, 3), (0, GAP, 0, GAP), value=WHITE)
    count, channels, height, width = tiles.shape
    rows = -(-count // columns)
    sheet = tiles.new_full((rows * columns, channels, height, width), WHITE)
    sheet[:count] = tiles
    grid = sheet.view(rows, columns, channels, height, width).permute(0, 3, 1, 4, 2)
    pixels = grid.reshape(rows * height, columns * width, channels)[:-GAP, :-GAP].numpy()
    picture = Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels[:, :, :3])
    write_atomically(path, _png(picture))


def _png(picture: Image.Image) -> bytes:
    content = io.BytesIO()
    picture.save(content, "png")
    return content.getvalue()


def taps(client: int, routes: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """(route, index) of the turns at which a client receives a model."""
    return tuple(
        (number, index)
        for number, clients in enumerate(routes)
        for index, visited in enumerate(clients)
        if visited == client
    )
