"""Plain convolutional models: a few convolutions, then a few dense layers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod

from torch import nn

from fedrelay.errors import SpecError
from fedrelay.models.dense import dense_layers
from fedrelay.models.two_part_classifier import Shape, TwoPartClassifier


@dataclass(frozen=True)
class ConvolutionStage:
    """One convolution with ReLU, followed by a max-pooling that halves every side unless `pool` is off."""

    width: int
    kernel: int
    padding: int = 0
    pool: bool = True

    def output_side(self, side: int) -> int:
        """A side of the output, given that of the input; below 1 if the input is too small."""
        convolved = side + 2 * self.padding - self.kernel + 1
        return convolved // 2 if self.pool else convolved

    def layers(self, channels: int, axes: int = 2) -> list[nn.Module]:
        """The layers for images (two axes) or volumes (three)."""
        convolution, pooling = (nn.Conv2d, nn.MaxPool2d) if axes == 2 else (nn.Conv3d, nn.MaxPool3d)
        convolved = convolution(channels, self.width, self.kernel, padding=self.padding)
        return [convolved, nn.ReLU(), *([pooling(2)] if self.pool else [])]


def cnn_s(shape: Shape, classes: int, *, hidden: tuple[int, ...] = (64,)) -> TwoPartClassifier:
    """A small CNN that trains quickly on a CPU; for images and, with another name, for volumes."""
    return _conv_net(shape, classes, (ConvolutionStage(8, 3, padding=1), ConvolutionStage(16, 3, padding=1)), hidden)


def cnn_3d(shape: Shape, classes: int, *, hidden: tuple[int, ...] = (64,)) -> TwoPartClassifier:
    """The small CNN for volumes, with three-dimensional convolutions."""
    return cnn_s(shape, classes, hidden=hidden)


def cnn_3(shape: Shape, classes: int, *, hidden: tuple[int, ...] = (64,)) -> TwoPartClassifier:
    """A CNN with three convolutions, for papers that say no more than that."""
    return _conv_net(
        shape, classes, (ConvolutionStage(32, 3), ConvolutionStage(64, 3), ConvolutionStage(64, 3, pool=False)), hidden
    )


def lenet(shape: Shape, classes: int) -> TwoPartClassifier:
    """The LeNet-5 variant of Hsu, Qi and Brown (2019)."""
    return _conv_net(shape, classes, (ConvolutionStage(64, 5), ConvolutionStage(64, 5)), (384, 192))


def simple_cnn(shape: Shape, classes: int) -> TwoPartClassifier:
    """The small LeNet of MOON and FedDisco."""
    return _conv_net(shape, classes, (ConvolutionStage(6, 5), ConvolutionStage(16, 5)), (120, 84))


def mnist_cnn(shape: Shape, classes: int) -> TwoPartClassifier:
    """The MNIST CNN of McMahan et al. (2017), FedAvg."""
    return _conv_net(shape, classes, (ConvolutionStage(32, 5, padding=2), ConvolutionStage(64, 5, padding=2)), (512,))


def leaf_cnn(shape: Shape, classes: int) -> TwoPartClassifier:
    """The FEMNIST CNN of LEAF (Caldas et al., 2018)."""
    return _conv_net(shape, classes, (ConvolutionStage(32, 5, padding=2), ConvolutionStage(64, 5, padding=2)), (2048,))


def femnist_cnn(shape: Shape, classes: int) -> TwoPartClassifier:
    """The FEMNIST CNN of the FedSeq code, without a ReLU after the first convolution and the dense layer."""
    stages = (ConvolutionStage(32, 3, pool=False), ConvolutionStage(64, 3))
    features = nn.Sequential(
        nn.Conv2d(shape[0], 32, 3),
        *stages[1].layers(32),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(_flat_size(stages, shape), 128),
        nn.Dropout(0.5),
    )
    return TwoPartClassifier(features, nn.Linear(128, classes))


def _conv_net(
    shape: Shape, classes: int, stages: Sequence[ConvolutionStage], hidden: Sequence[int]
) -> TwoPartClassifier:
    channels = (shape[0], *(stage.width for stage in stages))
    convolutions = [
        layer for stage, width in zip(stages, channels, strict=False) for layer in stage.layers(width, len(shape) - 1)
    ]
    dense = dense_layers(_flat_size(stages, shape), hidden)
    return TwoPartClassifier(nn.Sequential(*convolutions, nn.Flatten(), *dense), nn.Linear(hidden[-1], classes))


def _flat_size(stages: Sequence[ConvolutionStage], shape: Shape) -> int:
    """The number of values per image or volume after the last stage."""
    _, *sides = shape
    smallest = next(side for side in count(1) if _side_after(stages, side) >= 1)
    if min(sides) < smallest:
        what, unit = ("images", "pixels") if len(sides) == 2 else ("volumes", "voxels")
        needed = "×".join([str(smallest)] * len(sides))
        raise SpecError(f"needs {what} of at least {needed} {unit}, got {'×'.join(map(str, sides))}")
    return stages[-1].width * prod(_side_after(stages, side) for side in sides)


def _side_after(stages: Iterable[ConvolutionStage], side: int) -> int:
    for stage in stages:
        side = stage.output_side(side)
    return side
