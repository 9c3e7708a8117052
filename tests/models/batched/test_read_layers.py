"""Which modules are read as chains of supported layers, and how."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fedrelay.cost.flops import training_flops
from fedrelay.models.batched import BatchedModel
from fedrelay.models.batched.activation import UnboundActivation
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.zoo import build_model


def batched_model(module, *shape):
    return BatchedModel.of(module, FlatLayout.of(module), shape)


def kinds(batched):
    return [layer.kind if isinstance(layer, UnboundActivation) else type(layer).__name__ for layer in batched.layers]


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("logistic", (1, 8, 8)),
        ("mlp", (41,)),
        ("mlp", (1, 8, 8)),
        ("cnn-s", (1, 8, 8)),
        ("cnn-3", (3, 32, 32)),
        ("simple-cnn", (1, 28, 28)),
        ("mnist-cnn", (1, 28, 28)),
        ("lenet", (3, 32, 32)),
        ("leaf-cnn", (1, 8, 8)),
    ],
)
def test_the_zoo_s_plain_models_are_chains(name, shape):
    batched = batched_model(build_model(name, shape, 7), *shape)
    assert batched is not None
    assert batched.classes == 7


def test_a_relu_before_a_pooling_is_done_behind_it():
    batched = batched_model(build_model("cnn-s", (1, 8, 8), 10), 1, 8, 8)
    assert batched is not None
    stage = ["UnboundConvolution", "UnboundMaxPooling", "relu"]
    assert kinds(batched) == [*stage, *stage, "UnboundDense", "relu", "UnboundDense"]


def test_a_tanh_stays_where_it_is():
    # It maps neighbouring numbers to the same one, of which the pooling then takes the first.
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 3))
    batched = batched_model(module, 1, 4, 4)
    assert batched is not None
    assert kinds(batched) == ["UnboundConvolution", "tanh", "UnboundMaxPooling", "UnboundDense"]


def test_multiplications_are_counted():
    batched = batched_model(build_model("cnn-s", (1, 8, 8), 10), 1, 8, 8)
    assert batched is not None
    assert batched.multiplications == 8 * 9 * 8 * 8 + 16 * 8 * 9 * 4 * 4 + 64 * 16 * 2 * 2 + 10 * 64


class Skip(nn.Sequential):
    """A chain that is none."""

    def forward(self, x):
        return x + super().forward(x)


class Doubled(nn.Linear):
    """Not what it seems."""

    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize(
    "module",
    [
        build_model("kdd-mlp", (3,), 3),  # dropout
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)),
        nn.Sequential(nn.Linear(3, 3), nn.ReLU()),  # logits behind an activation
        nn.Sequential(nn.ReLU(), nn.Linear(3, 3)),
        nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Tanh(), nn.Linear(3, 3)),
        nn.Sequential(nn.Linear(4, 3)),  # not for these samples
        Skip(nn.Linear(3, 3)),
        Doubled(3, 3),
        nn.Embedding(3, 3),
        nn.Sequential(nn.Flatten(0), nn.Linear(3, 3)),
    ],
)
def test_other_dense_models_are_left_to_automatic_differentiation(module):
    assert batched_model(module, 3) is None


def convolutional(*layers, features=4):
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 3))


@pytest.mark.parametrize(
    "module",
    [
        build_model("femnist-cnn", (2, 6, 6), 3),  # dropout
        convolutional(nn.Conv2d(2, 4, 6, groups=2)),
        convolutional(nn.Conv2d(2, 4, 3, dilation=2), nn.MaxPool2d(2)),
        convolutional(nn.Conv2d(2, 1, 3, padding="same"), features=36),
        convolutional(nn.Conv2d(2, 1, 3, padding=1, padding_mode="circular"), features=36),
        convolutional(nn.Conv2d(2, 4, 5), nn.MaxPool2d(2, stride=1)),
        convolutional(nn.Conv2d(2, 1, 5, padding=1), nn.MaxPool2d(2, padding=1), features=9),
        convolutional(nn.Conv2d(2, 1, 4), nn.MaxPool2d(2, ceil_mode=True)),
        convolutional(nn.Conv2d(2, 4, 6), nn.MaxPool2d(1)),
        convolutional(nn.Conv2d(2, 4, 6), nn.AvgPool2d(1)),
        convolutional(nn.MaxPool2d(2), nn.Conv2d(2, 4, 3)),
        convolutional(nn.Conv2d(3, 4, 6)),  # not for these images
        convolutional(nn.Conv2d(2, 4, 7)),
        convolutional(nn.Conv2d(2, 4, 6), features=5),
        nn.Sequential(nn.Conv2d(2, 3, 6)),
        nn.Sequential(nn.Linear(6, 3)),
    ],
)
def test_other_convolutional_models_too(module):
    assert batched_model(convolutional(nn.Conv2d(2, 4, 6)), 2, 6, 6) is not None
    assert batched_model(module, 2, 6, 6) is None


def test_what_only_looks_like_a_chain_is_left_alone():
    hooked = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    assert batched_model(hooked, 3) is not None
    handle = hooked[1].register_forward_hook(lambda module, args, out: 2 * out)
    assert batched_model(hooked, 3) is None
    handle.remove()
    hooked.register_forward_pre_hook(lambda module, args: None)
    assert batched_model(hooked, 3) is None
    changed = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    changed[1].forward = lambda x: 2 * x
    assert batched_model(changed, 3) is None
    extended = build_model("mlp", (3,), 3)
    assert batched_model(extended, 3) is not None
    extended.aside = nn.Linear(3, 3)
    assert batched_model(extended, 3) is None
    shared = nn.Linear(3, 3)
    assert batched_model(nn.Sequential(shared, nn.ReLU(), shared), 3) is None
    kernel = nn.Conv2d(2, 2, 3, padding=1)
    assert batched_model(convolutional(kernel, nn.ReLU(), kernel, features=72), 2, 6, 6) is None


def test_one_activation_may_serve_several_layers():
    activation = nn.ReLU()
    batched = batched_model(nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 4), activation, nn.Linear(4, 2)), 3)
    assert batched is not None
    assert kinds(batched) == ["UnboundDense", "relu", "UnboundDense", "relu", "UnboundDense"]


def test_frozen_and_shared_weights_too():
    frozen = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    frozen[0].requires_grad_(False)
    assert batched_model(frozen, 3) is None
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert batched_model(tied, 3) is None


@pytest.mark.parametrize("name", ["mlp", "cnn-s", "cnn-3", "simple-cnn"])
def test_training_takes_what_pytorch_counts(name):
    shape = (1, 28, 28)
    module = build_model(name, shape, 10)
    batched = BatchedModel.of(module, FlatLayout.of(module), shape)
    counted = training_flops(module, torch.randn(2, *shape), torch.tensor([1, 2]), F.cross_entropy)
    assert batched.training_flops == counted
