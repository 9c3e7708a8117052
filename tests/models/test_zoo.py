from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fedrelay.errors import SpecError
from fedrelay.models.zoo import MODELS, build_model, default_model

# One small instance of every classifier: name, sample shape, classes, options.
SMALL: list[tuple[str, tuple[int, ...], int, dict[str, Any]]] = [
    ("logistic", (1, 8, 8), 10, {}),
    ("mlp", (1, 8, 8), 10, {"hidden": (32, 16)}),
    ("kdd-mlp", (41,), 23, {}),
    ("cnn-s", (1, 28, 28), 10, {}),
    ("cnn-3", (3, 32, 32), 10, {}),
    ("lenet", (3, 32, 32), 10, {}),
    ("simple-cnn", (3, 32, 32), 10, {}),
    ("mnist-cnn", (1, 12, 12), 10, {}),
    ("leaf-cnn", (1, 12, 12), 62, {}),
    ("femnist-cnn", (1, 12, 12), 62, {}),
    ("cnn-3d", (1, 8, 8, 8), 4, {}),
    ("resnet18", (3, 16, 16), 10, {"stem": "cifar"}),
    ("resnet18", (3, 64, 64), 10, {"stem": "imagenet"}),
    ("char-lstm", (20,), 80, {}),
    ("word-lstm", (7,), 50, {"hidden": (30, 20)}),
]
every_model = pytest.mark.parametrize(("name", "shape", "classes", "options"), SMALL)


def parameters(model: nn.Module) -> int:
    return sum(each.numel() for each in model.parameters())


def samples(name: str, shape: tuple[int, ...], classes: int, batch: int = 16) -> Tensor:
    if MODELS[name].kinds == ("tokens",):
        return torch.arange(batch * shape[0]).reshape(batch, *shape) % classes
    return torch.linspace(-2, 2, batch * torch.Size(shape).numel()).sin().reshape(batch, *shape)


@pytest.mark.parametrize(
    ("name", "shape", "classes", "options", "expected"),
    [
        ("logistic", (1, 28, 28), 10, {}, 7_850),
        ("mlp", (1, 28, 28), 10, {}, 784 * 64 + 64 + 64 * 10 + 10),
        ("mlp", (1, 8, 8), 10, {"hidden": (32,)}, 64 * 32 + 32 + 32 * 10 + 10),
        ("mlp", (41,), 23, {"hidden": (5, 3)}, 41 * 5 + 5 + 5 * 3 + 3 + 3 * 23 + 23),
        ("cnn-s", (1, 28, 28), 10, {}, 52_138),
        ("lenet", (3, 32, 32), 10, {}, 797_962),
        ("lenet", (3, 32, 32), 100, {}, 815_332),
        ("leaf-cnn", (1, 28, 28), 62, {}, 6_603_710),
        ("femnist-cnn", (1, 28, 28), 62, {}, 1_206_590),
        ("mnist-cnn", (1, 28, 28), 10, {}, 1_663_370),
        ("simple-cnn", (3, 32, 32), 10, {}, 62_006),
        ("simple-cnn", (1, 28, 28), 10, {}, 44_426),
        ("cnn-3", (3, 32, 32), 10, {}, 122_570),
        ("kdd-mlp", (41,), 23, {}, 49_559),
        ("unet", (1, 16, 16), 3, {}, 29_659),
        ("cnn-3d", (1, 8, 8, 8), 2, {}, 8 * 28 + 16 * (27 * 8 + 1) + 64 * (16 * 8 + 1) + 2 * 65),
        ("resnet18", (3, 224, 224), 1000, {}, 11_689_512),
        ("resnet18", (3, 32, 32), 1000, {"stem": "imagenet"}, 11_689_512),
        ("resnet18", (3, 32, 32), 10, {}, 11_689_512 - 64 * 3 * (49 - 9) - 990 * 513),
        ("char-lstm", (80,), 80, {}, 133_520),
        ("word-lstm", (20,), 10_004, {}, 4_053_428),
    ],
)
def test_parameter_counts(
    name: str, shape: tuple[int, ...], classes: int, options: dict[str, Any], expected: int
) -> None:
    with torch.device("meta"):
        assert parameters(build_model(name, shape, classes, **options)) == expected


def test_every_model_of_the_zoo_is_tested() -> None:
    assert {name for name, *_ in SMALL} == {*MODELS} - {"unet"}  # test_unet.py tests it
    assert all(info.name == name and info.summary for name, info in MODELS.items())


@every_model
def test_split_shapes_and_gradients(name: str, shape: tuple[int, ...], classes: int, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model = build_model(name, shape, classes, **options).eval()
    x = samples(name, shape, classes)

    logits = model(x)
    features = model.features(x)
    positions = (shape[0],) if name == "word-lstm" else ()
    assert logits.shape == (16, *positions, classes)
    assert features.shape == (16, *positions, model.classifier.in_features)
    assert torch.equal(logits, model.classifier(features))

    model.train()
    targets = (torch.arange(logits[..., 0].numel()) % classes).view(logits.shape[:-1])
    nn.functional.cross_entropy(model(x).flatten(0, -2), targets.flatten()).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


@every_model
def test_no_running_statistics_and_a_linear_head(
    name: str, shape: tuple[int, ...], classes: int, options: dict[str, Any]
) -> None:
    model = build_model(name, shape, classes, **options)
    assert [child for child, _ in model.named_children()] == ["features", "classifier"]
    assert type(model.features) is nn.Sequential
    assert type(model.classifier) is nn.Linear
    assert not list(model.buffers())
    assert not any("Norm" in type(module).__name__ for module in model.modules()) or name == "resnet18"


def test_the_seed_of_the_caller_fixes_the_weights() -> None:
    def weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return nn.utils.parameters_to_vector(build_model("cnn-s", (1, 8, 8), 3).parameters())

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_mlp_computes_what_it_says() -> None:
    model = build_model("mlp", (2,), 2, hidden=(2,))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(1.0)
        assert model(torch.tensor([[1.0, 2.0], [-3.0, 1.0]])).tolist() == [[9.0, 9.0], [1.0, 1.0]]


def test_char_lstm_looks_at_the_whole_sequence_and_word_lstm_never_ahead() -> None:
    torch.manual_seed(0)
    early_change, late_change = torch.zeros(2, 1, 6, dtype=torch.long)
    early_change[0, 0] = late_change[0, -1] = 1
    unchanged = torch.zeros(1, 6, dtype=torch.long)

    characters = build_model("char-lstm", (6,), 5)
    assert not torch.equal(characters(early_change), characters(unchanged))

    words = build_model("word-lstm", (6,), 5, hidden=(8,))
    assert torch.equal(words(late_change)[:, :-1], words(unchanged)[:, :-1])
    assert not torch.equal(words(late_change)[:, -1], words(unchanged)[:, -1])


def test_inputs_may_have_another_vocabulary_than_the_classes() -> None:
    model = build_model("char-lstm", (6,), 2, kind="tokens", vocabulary=30)
    assert model(torch.full((1, 6), 29)).shape == (1, 2)


def test_large_images_get_the_imagenet_stem() -> None:
    def first_kernel(side: int) -> tuple[int, ...]:
        with torch.device("meta"):
            first = build_model("resnet18", (1, side, side), 2).features[0]
        assert isinstance(first, nn.Conv2d)
        return first.kernel_size

    assert [first_kernel(side) for side in (28, 64, 65, 224)] == [(3, 3), (3, 3), (7, 7), (7, 7)]


@pytest.mark.parametrize(
    ("name", "smallest"),
    [
        ("cnn-s", 4),
        ("cnn-3", 18),
        ("lenet", 16),
        ("simple-cnn", 16),
        ("mnist-cnn", 4),
        ("leaf-cnn", 4),
        ("femnist-cnn", 6),
    ],
)
def test_the_smallest_image(name: str, smallest: int) -> None:
    model = build_model(name, (1, smallest, smallest + 1), 3).eval()
    assert model(torch.ones(2, 1, smallest, smallest + 1)).shape == (2, 3)
    with pytest.raises(SpecError) as refusal:
        build_model(name, (1, 30, smallest - 1), 3)
    expected = f"needs images of at least {smallest}×{smallest} pixels, got 30×{smallest - 1}"
    assert str(refusal.value) == f"model {name!r}: {expected}"


@pytest.mark.parametrize(
    ("kind", "shape", "name"),
    [
        ("image", (1, 8, 8), "mlp"),
        ("image", (3, 2, 100), "mlp"),
        ("image", (1, 9, 9), "cnn-s"),
        ("image", (3, 32, 32), "cnn-s"),
        ("tabular", (41,), "mlp"),
        ("tokens", (80,), "char-lstm"),
    ],
)
def test_the_default_model_fits(kind: Any, shape: tuple[int, ...], name: str) -> None:
    assert default_model(kind, shape) == name
    build_model(name, shape, 4, kind=kind)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (
            ("lennet", (3, 32, 32), 10),
            {},
            r"unknown model 'lennet' \(did you mean 'lenet'\?\).*logistic, mlp",
        ),
        (
            ("lenet", (41,), 23),
            {},
            r"'lenet' needs image samples of shape \(channels, height, width\), got samples of shape \(41,\)",
        ),
        (
            ("mlp", (80,), 80),
            {"kind": "tokens"},
            r"'mlp' needs image samples .* or tabular samples of shape \(features\) or .*, got tokens samples",
        ),
        (("char-lstm", (1, 8, 8), 10), {}, r"needs tokens samples of shape \(length\), got samples of shape"),
        (("mlp", (0,), 10), {}, "the sizes of a sample must be positive and whole, got 0"),
        (("mlp", (4,), 0), {}, "the number of classes must be positive and whole, got 0"),
        (("mlp", (4,), 2), {"hidden": ()}, r"'mlp' needs at least one hidden layer, got hidden=\(\)"),
        (("mlp", (4,), 2), {"hidden": (8, -1)}, "widths of hidden layers must be .*, got -1"),
        (("mlp", (4,), 2), {"hidden": (8.5,)}, "widths of hidden layers must be .*, got 8.5"),
        (("mlp", (4,), 2), {"stem": "cifar"}, "unknown option of model 'mlp' 'stem'; allowed: hidden"),
        (("lenet", (3, 32, 32), 2), {"hidden": (8,)}, "of model 'lenet' 'hidden'; allowed: none"),
        (("char-lstm", (4,), 2), {"vocabulary": 0}, "vocabulary must be .*, got 0"),
        (
            ("resnet18", (3, 32, 32), 2),
            {"stem": "cifra"},
            r"model 'resnet18': unknown stem 'cifra' \(did you mean 'cifar'\?\); allowed: imagenet, cifar",
        ),
    ],
)
def test_refusals(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        build_model(*arguments, **options)


def test_options_are_listed_with_their_defaults() -> None:
    assert MODELS["mlp"].options == {"hidden": (64,)}
    assert MODELS["resnet18"].options == {"stem": None}
    assert MODELS["lenet"].options == {}
