"""All models by name: a summary, the kinds of data each one fits, and the function that builds any of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import unknown
from fedrelay.models import convolutional, dense, recurrent, resnet, unet
from fedrelay.models.two_part_classifier import Kind, Shape, TwoPartClassifier

_AXES: dict[Kind, tuple[str, ...]] = {
    "image": ("channels", "height", "width"),
    "tabular": ("features",),
    "tokens": ("length",),
    "signal": ("channels", "length"),
    "volume": ("channels", "depth", "height", "width"),
}
_TINY_IMAGE_SIDE = 8


@dataclass(frozen=True)
class ModelInfo:
    """A model of the zoo."""

    name: str
    summary: str
    builder: Callable[..., TwoPartClassifier]
    kinds: tuple[Kind, ...]

    @property
    def options(self) -> Mapping[str, object]:
        """The options of the model and their defaults: the keyword-only arguments of its builder."""
        parameters = inspect.signature(self.builder).parameters.values()
        return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


ANY_NUMBERS: tuple[Kind, ...] = ("image", "tabular", "signal", "volume")

MODELS: dict[str, ModelInfo] = {
    info.name: info
    for info in (
        ModelInfo("logistic", "logistic regression", dense.logistic, ANY_NUMBERS),
        ModelInfo("mlp", "dense, ReLU, one layer of 64 by default", dense.mlp, ANY_NUMBERS),
        ModelInfo("kdd-mlp", "dense 288 tanh, 120 ReLU, dropout", dense.kdd_mlp, ("tabular",)),
        ModelInfo("cnn-s", "small CNN: conv 8, 16; dense 64", convolutional.cnn_s, ("image",)),
        ModelInfo("cnn-3", "three-layer CNN: conv 32, 64, 64; dense 64", convolutional.cnn_3, ("image",)),
        ModelInfo("lenet", "LeNet-5 of Hsu et al. for CIFAR", convolutional.lenet, ("image",)),
        ModelInfo("simple-cnn", "small LeNet of MOON and FedDisco", convolutional.simple_cnn, ("image",)),
        ModelInfo("mnist-cnn", "FedAvg's CNN for MNIST", convolutional.mnist_cnn, ("image",)),
        ModelInfo("leaf-cnn", "LEAF's CNN for FEMNIST", convolutional.leaf_cnn, ("image",)),
        ModelInfo("femnist-cnn", "FedSeq's CNN for FEMNIST, dropout", convolutional.femnist_cnn, ("image",)),
        ModelInfo("resnet18", "ResNet-18 with GroupNorm", resnet.resnet18, ("image",)),
        ModelInfo("unet", "small U-Net for segmentation: 8, 16, 32 channels", unet.unet, ("image",)),
        ModelInfo("cnn-3d", "small CNN for volumes: conv 8, 16; dense 64", convolutional.cnn_3d, ("volume",)),
        ModelInfo("char-lstm", "next character from the last step", recurrent.char_lstm, ("tokens",)),
        ModelInfo("word-lstm", "next word at every position", recurrent.word_lstm, ("tokens",)),
    )
}


def build_model(
    name: str,
    sample_shape: Shape,
    classes: int,
    *,
    kind: Kind | None = None,
    hidden: tuple[int, ...] | None = None,
    stem: resnet.Stem | None = None,
    vocabulary: int | None = None,
) -> TwoPartClassifier:
    """Build a model with PyTorch's default initialisation. Seed torch's global generator to fix its weights.

    Args:
        name: A key of `MODELS`.
        sample_shape: The shape of one sample.
        classes: The number of classes.
        kind: The kind of samples; it tells tabular rows from token sequences, whose shapes look alike.
        hidden: The widths of the hidden layers.
        stem: The first layers of a ResNet.
        vocabulary: The number of input tokens, if it differs from the number of classes.

    Raises:
        SpecError: The model is unknown, does not fit the samples, or lacks an option (see `MODELS[name].options`).
    """
    if name not in MODELS:
        raise SpecError(f"{unknown('model', name, MODELS)}; a model of your own is MODULE:FUNCTION, without .py")
    info = MODELS[name]
    _check_samples(info, sample_shape, classes, kind)
    given = {"hidden": hidden, "stem": stem, "vocabulary": vocabulary}
    options = {option: value for option, value in given.items() if value is not None}
    _check_options(info, options)
    try:
        return info.builder(sample_shape, classes, **options)
    except SpecError as error:
        raise SpecError(f"model {name!r}: {error}") from None


def default_model(kind: Kind, sample_shape: Shape) -> str:
    """The name of a small model for such samples that trains quickly on a CPU."""
    if kind == "tokens":
        return "char-lstm"
    if kind != "image" or min(sample_shape[1:]) <= _TINY_IMAGE_SIDE:
        return "mlp"
    return "cnn-s"


def _check_samples(info: ModelInfo, shape: Shape, classes: int, kind: Kind | None) -> None:
    if not any(kind in (None, fit) and len(shape) == len(_AXES[fit]) for fit in info.kinds):
        needed = " or ".join(f"{fit} samples of shape ({', '.join(_AXES[fit])})" for fit in info.kinds)
        got = f"{kind} samples" if kind else "samples"
        raise SpecError(f"model {info.name!r} needs {needed}, got {got} of shape {shape}")
    _check_positive("the sizes of a sample", *shape)
    _check_positive("the number of classes", classes)


def _check_options(info: ModelInfo, options: Mapping[str, Any]) -> None:
    for option in options:
        if option not in info.options:
            raise SpecError(unknown(f"option of model {info.name!r}", option, info.options))
    if options.get("hidden") == ():
        raise SpecError(f"model {info.name!r} needs at least one hidden layer, got hidden=()")
    _check_positive("the widths of hidden layers", *options.get("hidden", ()))
    _check_positive("the size of the vocabulary", options.get("vocabulary", 1))


def _check_positive(what: str, *values: object) -> None:
    for value in values:
        if not isinstance(value, Integral) or value < 1:
            raise SpecError(f"{what} must be positive and whole, got {value!r}")
