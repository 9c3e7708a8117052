"""Probe networks for ψ_t2v, and the conversion of clients' images to their input.

A probe is the feature part of a network that was trained on another task: either a small CNN, trained here on a data
set of images, or a ResNet-18 with weights from a file in torchvision's layout.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from safetensors import SafetensorError
from safetensors.torch import load_file as load_safetensors
from torch import Tensor, nn

from fedrelay.data.dataset import Dataset, Scaling
from fedrelay.data.federation import ArrayFederation, Federation
from fedrelay.data.partition import ClientIndices
from fedrelay.data.registry import load_dataset
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.files import expand_home
from fedrelay.grouping.profiles.base import ProfileInputs
from fedrelay.grouping.profiles.classifier import TrainedWeightsProfiler
from fedrelay.local.module_rebuilder import ModuleRebuilder
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import TORCH_GLOBALS, FlatLayout
from fedrelay.models.zoo import build_model
from fedrelay.rng import generator, torch_seed

FILES = (".safetensors", ".pt", ".pth")
"""Suffixes of weight files."""

RESNET_INPUT = (3, 64, 64)
"""The input shape of a ResNet-18 from a file: large enough for its stem, small enough for a CPU."""

MOST_SAMPLES, SAMPLES_SEEN = 5_000, 25_000
"""A small probe trains on at most this many samples, and sees at least this many in all epochs together."""


@dataclass(frozen=True)
class ImageAdapter:
    """Converts images to the input of a probe: zero mean and unit variance, its channels and its size."""

    shape: tuple[int, ...]
    mean: float
    deviation: float

    @classmethod
    def for_federation(cls, shape: tuple[int, ...], federation: Federation) -> ImageAdapter:
        """An adapter with the mean and standard deviation of the federation's test images."""
        values = federation.test.load().single_input.double()
        return cls(shape, float(values.mean()), float(values.std()) or 1.0)

    def __call__(self, x: Tensor) -> Tensor:
        """Convert images. Colour becomes grey by the mean of the channels; grey is repeated for all channels."""
        x = (x - self.mean) / self.deviation
        channels, *side = self.shape
        if x.shape[1] != channels:
            x = x.mean(dim=1, keepdim=True).expand(-1, channels, -1, -1)
        if list(x.shape[2:]) != side:
            x = F.interpolate(x, size=side, mode="bilinear", antialias=True)
        return x


@dataclass(frozen=True)
class ProbeNetwork:
    """The feature part of a trained network, and the shape of its input."""

    module: nn.Module
    shape: tuple[int, ...]
    module_rebuilder: ModuleRebuilder
    """How clients build the network."""


class SmallProbeRebuilder(ModuleRebuilder):
    """Builds the feature part of a small CNN."""

    shape: tuple[int, ...]
    classes: int

    def build(self) -> nn.Module:
        return build_model("cnn-s", self.shape, self.classes, kind="image").features


class ResNet18ProbeRebuilder(ModuleRebuilder):
    """Builds the feature part of a ResNet-18."""

    def build(self) -> nn.Module:
        return ResNet18Features()


def make_probe(inputs: ProfileInputs, source: str) -> ProbeNetwork:
    """A probe from a weight file, or one that is trained on a data set."""
    if source.lower().endswith(FILES):
        return read_resnet18(expand_home(Path(source)))
    return train_probe(inputs, probe_dataset(source))


def probe_dataset(name: str) -> Dataset:
    """The data set that a probe is trained on."""
    try:
        dataset = load_dataset(name)
    except SpecError as error:
        message = str(error).removeprefix("data.name: ")
        raise SpecError(f"grouping.probe: {message}, or a file that ends in {', '.join(FILES)}") from None
    if dataset.kind != "image":
        raise SpecError(f"grouping.probe: needs an image data set, but {name!r} is {dataset.kind}")
    return dataset


def train_probe(inputs: ProfileInputs, dataset: Dataset) -> ProbeNetwork:
    """Train a small CNN on a few thousand samples, as a single client."""
    rows = generator(inputs.seed, "probe").permutation(len(dataset.y_train))[:MOST_SAMPLES]
    channels = dataset.shape[0]
    raw = dataset.x_train[rows].astype(np.float64)
    scaling = Scaling((float(raw.mean()),) * channels, (1 / (float(raw.std()) or 1.0),) * channels)
    owner = ArrayFederation(
        replace(dataset, scaling=scaling), ClientIndices(rows, np.array([0, len(rows)])), inputs.seed
    )
    seed = torch_seed(inputs.seed, "probe")
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build_model("cnn-s", dataset.shape, dataset.classes, kind="image")
    layout = FlatLayout.of(network)
    train = TrainSettings(epochs=-(-SAMPLES_SEEN // len(rows)), batch_size=32, lr=0.02, momentum=0.9)
    job = TrainingJob(network, layout, owner, train, terms=(), seed=seed)
    whole = TrainedWeightsProfiler(parts=((0, layout.size),))
    weights = inputs.profile_vectors(job, whole, [0], layout.flatten(network))[0]
    network.load_state_dict(layout.state_dict(torch.from_numpy(weights), network))
    return ProbeNetwork(
        network.features, dataset.shape, SmallProbeRebuilder(shape=dataset.shape, classes=dataset.classes)
    )


class ResidualBlock(nn.Module):
    """A residual block with BatchNorm; its modules have torchvision's names."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        body = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(body + self.downsample(x))


class ResNet18Features(nn.Module):
    """ResNet-18 without its classifier; its modules have torchvision's names."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(ResidualBlock(64, 64, 1), ResidualBlock(64, 64, 1))
        self.layer2 = nn.Sequential(ResidualBlock(64, 128, 2), ResidualBlock(128, 128, 1))
        self.layer3 = nn.Sequential(ResidualBlock(128, 256, 2), ResidualBlock(256, 256, 1))
        self.layer4 = nn.Sequential(ResidualBlock(256, 512, 2), ResidualBlock(512, 512, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean(dim=(2, 3))  # type: ignore[no-any-return]


def read_resnet18(path: Path) -> ProbeNetwork:
    """Read a ResNet-18 in torchvision's layout; the file need not contain its classifier."""
    found = _tensors(path)
    with TORCH_GLOBALS, torch.random.fork_rng(devices=[]):
        module = ResNet18Features()
    wanted = module.state_dict()
    for name, tensor in wanted.items():
        if name not in found and name.endswith("num_batches_tracked"):  # older files have none
            continue
        if name not in found:
            raise _not_resnet(path, f"{name} is missing")
        if found[name].shape != tensor.shape:
            raise _not_resnet(path, f"{name} has shape {tuple(found[name].shape)}, not {tuple(tensor.shape)}")
        if not torch.isfinite(found[name]).all():
            raise _not_resnet(path, f"{name} has non-finite values")
        tensor.copy_(found[name])
    unexpected = [name for name in found if name not in wanted and not name.startswith("fc.")]
    if unexpected:
        raise _not_resnet(path, f"unexpected {unexpected[0]}")
    return ProbeNetwork(module, RESNET_INPUT, ResNet18ProbeRebuilder())


def _tensors(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise SpecError(f"grouping.probe: file not found: {path}")
    try:
        if path.suffix.lower() == ".safetensors":
            return load_safetensors(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, ValueError, EOFError, KeyError, pickle.UnpicklingError, SafetensorError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise SpecError(f"grouping.probe: {path} cannot be read as weights ({reason[:120]})") from None
    if not isinstance(found, Mapping) or not all(isinstance(each, Tensor) for each in found.values()):
        raise _not_resnet(path, "it does not contain named tensors")
    return found


def _not_resnet(path: Path, reason: str) -> SpecError:
    return SpecError(f"grouping.probe: {path} is not a ResNet-18 in torchvision's layout ({reason})")
