"""Stacked models against automatic differentiation."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fedrelay.models.dense_stack import DenseStack
from fedrelay.models.layout import Layout
from fedrelay.models.zoo import build_model


def stack_of(module):
    return DenseStack.of(module, Layout.of(module))


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(6, 3),
        nn.Sequential(nn.Linear(6, 5, bias=False), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)),
        nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(6, 5), nn.ReLU()), nn.Linear(5, 3, bias=False)),
        nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3)),
        build_model("mlp", (6,), 3, hidden=(7, 5)),
        build_model("logistic", (6,), 3),
    ],
)
def test_gradients_are_those_of_each_model_alone(module):
    torch.manual_seed(0)
    module = module.double()
    layout = Layout.of(module)
    stack = DenseStack.of(module, layout)
    assert stack is not None
    lanes, batch = 3, 4
    flat = torch.randn(lanes, layout.size, dtype=torch.float64)
    gradient = torch.full_like(flat, torch.nan)
    x, y = torch.randn(lanes, batch, 6, dtype=torch.float64), torch.randint(0, 3, (lanes, batch, 1))
    used = torch.tensor([4, 2, 1])  # samples of each lane; the rest are empty places
    shares = torch.stack([torch.where(torch.arange(batch) < n, 1 / n, 0.0) for n in used]).double().unsqueeze(-1)
    losses = stack.bind(flat, gradient).fill_gradient(x, y, shares)
    for lane, n in enumerate(used):
        module.load_state_dict(layout.state_dict(flat[lane]))
        module.zero_grad()
        loss = F.cross_entropy(module(x[lane, :n]), y[lane, :n, 0])
        loss.backward()
        expected = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
        torch.testing.assert_close(gradient[lane], expected)
        torch.testing.assert_close(losses[lane], loss)


class Skip(nn.Sequential):
    """A chain that is none."""

    def forward(self, x):
        return x + super().forward(x)


@pytest.mark.parametrize(
    "module",
    [
        build_model("cnn-s", (1, 28, 28), 10),
        build_model("kdd-mlp", (41,), 23),  # dropout
        nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)),
        nn.Sequential(nn.Linear(3, 3), nn.ReLU()),  # logits behind an activation
        nn.Sequential(nn.ReLU(), nn.Linear(3, 3)),
        nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Tanh(), nn.Linear(3, 3)),
        Skip(nn.Linear(3, 3)),
        nn.Embedding(3, 3),
    ],
)
def test_other_models_are_left_to_automatic_differentiation(module):
    assert stack_of(module) is None


class Doubled(nn.Linear):
    """Not what it seems."""

    def forward(self, x):
        return 2 * super().forward(x)


def test_what_only_looks_like_a_chain_is_left_alone():
    hooked = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    assert stack_of(hooked) is not None
    handle = hooked[1].register_forward_hook(lambda module, args, out: 2 * out)
    assert stack_of(hooked) is None
    handle.remove()
    hooked.register_forward_pre_hook(lambda module, args: None)
    assert stack_of(hooked) is None
    assert stack_of(nn.Sequential(Doubled(3, 3))) is None
    shared = nn.Linear(3, 3)
    assert stack_of(nn.Sequential(shared, nn.ReLU(), shared)) is None


def test_one_activation_may_serve_several_layers():
    activation = nn.ReLU()
    stack = stack_of(nn.Sequential(nn.Linear(3, 4), activation, nn.Linear(4, 4), activation, nn.Linear(4, 2)))
    assert stack is not None
    assert [layer.activation for layer in stack.layers] == ["relu", "relu", "none"]


def test_frozen_and_shared_weights_too():
    frozen = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    frozen[0].requires_grad_(False)
    assert stack_of(frozen) is None
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    tied[1].weight = tied[0].weight
    assert stack_of(tied) is None
