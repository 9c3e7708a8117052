"""Batched models against automatic differentiation."""

from __future__ import annotations

from math import prod

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from fedrelay.models.batched import BatchedModel
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.zoo import build_model

CLASSES = 3
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def assert_gradients_alike(module, shape, used=(4, 2, 1), dtype=torch.float64, levels=None):
    """Compare every lane, which has so many samples in its batch; few levels of brightness make many ties."""
    torch.manual_seed(0)
    module = module.to(dtype)
    layout = FlatLayout.of(module)
    batched = BatchedModel.of(module, layout, shape)
    assert batched is not None
    lanes, width = len(used), max(used)
    flat = layout.flatten(module) + 0.1 * torch.randn(lanes, layout.size, dtype=dtype)
    gradient = torch.full_like(flat, torch.nan)
    x = torch.randn(lanes, width, *shape, dtype=dtype)
    x = x if levels is None else x.mul(levels).round().div(levels).relu()
    y = torch.randint(0, CLASSES, (lanes, width))
    taken = torch.arange(width) < torch.tensor(used)[:, None]
    sample_weights = (taken.to(dtype) / torch.tensor(used, dtype=dtype)[:, None]).unsqueeze(1)
    target_gradient = torch.zeros(lanes, CLASSES, width, dtype=dtype).scatter_(1, y.unsqueeze(1), -sample_weights)
    # The memory of two more lanes, and a batch before this one, must not show.
    more = [torch.cat([part, part.new_ones(2, layout.size)]) for part in (flat, gradient)]
    bound = batched.bind(more[0], more[1], width).first_lanes(lanes)
    for inputs in (torch.randn_like(x), x):
        bound.load(inputs.flatten(0, 1).flatten(1), torch.arange(lanes * width))
        logits = bound.compute_gradient(target_gradient, sample_weights)
    near = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype]}
    for lane, n in enumerate(used):
        module.load_state_dict(layout.state_dict(flat[lane], module))
        module.zero_grad()
        expected_logits = module(x[lane, :n])
        F.cross_entropy(expected_logits, y[lane, :n]).backward()
        expected = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
        torch.testing.assert_close(more[1][lane], expected, **near)
        torch.testing.assert_close(logits[lane, :, :n].T, expected_logits, **near)
    assert torch.equal(more[1][lanes:], torch.ones(2, layout.size, dtype=dtype))


@pytest.mark.parametrize("dtype", TOLERANCE)
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
def test_dense_models(module, dtype):
    assert_gradients_alike(module, (6,), dtype=dtype)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("mlp", (1, 8, 8)),
        ("cnn-s", (1, 8, 8)),
        ("cnn-s", (3, 11, 9)),
        ("cnn-3", (3, 18, 18)),
        ("simple-cnn", (3, 18, 17)),
        ("mnist-cnn", (1, 5, 6)),
    ],
)
def test_models_of_the_zoo(name, shape):
    assert_gradients_alike(build_model(name, shape, CLASSES), shape, levels=1)


@pytest.mark.parametrize("bias", [True, False])
def test_layers_whose_products_are_transposed(bias):
    """The second convolution has few inputs, the third more inputs than outputs, the dense layer is behind it."""
    convolutions = (nn.Conv2d(2, 5, 3), nn.Conv2d(5, 16, 1), nn.Conv2d(16, 17, 2, bias=bias))
    module = nn.Sequential(
        *convolutions, nn.Flatten(), nn.Linear(17 * 16, 4, bias=bias), nn.ReLU(), nn.Linear(4, CLASSES)
    )
    assert_gradients_alike(module, (2, 7, 7))


def test_products_are_in_the_order_that_is_fast():
    convolutions = (nn.Conv2d(2, 5, 3), nn.Conv2d(5, 16, 1), nn.Conv2d(16, 17, 2))
    module = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(17 * 16, 4), nn.ReLU(), nn.Linear(4, CLASSES))
    layout = FlatLayout.of(module)
    model = BatchedModel.of(module, layout, (2, 7, 7))
    flat = torch.zeros(3, layout.size)
    *convolutions, dense, _, logits = model.bind(flat, torch.zeros_like(flat), 20).layers
    assert [layer.product.inputs_first for layer in convolutions] == [False, True, True]
    assert all(layer.product.product.right.stride(2) == 1 for layer in convolutions)
    assert dense.product.right.stride(2) == 1
    assert dense.product.copied_to is not None
    assert not dense.inputs_first
    assert logits.product.copied_to is None


def conv(given, made):
    sizes = st.tuples(st.integers(1, 3), st.integers(1, 3))
    frame = st.tuples(st.integers(0, 2), st.integers(0, 2))
    options = {"kernel_size": sizes, "stride": sizes, "padding": frame, "bias": st.booleans()}
    return st.builds(nn.Conv2d, st.just(given), st.just(made), **options)


@st.composite
def chains(draw):
    """A random chain and the shape of its images."""
    channels = draw(st.integers(1, 3))
    shape = (channels, draw(st.integers(3, 10)), draw(st.integers(3, 10)))
    layers: list[nn.Module] = []
    for _ in range(draw(st.integers(1, 3))):
        made = draw(st.integers(1, 4))
        layers.append(draw(conv(channels, made)))
        kernel = st.tuples(st.integers(2, 3), st.integers(2, 3))
        activation = st.sampled_from([nn.ReLU(), nn.Tanh()])
        pool = st.builds(nn.MaxPool2d, kernel)
        behind = draw(st.sampled_from([(), (activation,), (pool,), (activation, pool), (pool, activation)]))
        layers += [draw(layer) for layer in behind]
        channels = made
    try:
        made_shape = nn.Sequential(*layers)(torch.zeros(1, *shape)).shape[1:]
    except RuntimeError:  # images too small for the kernels
        assume(False)
    layers += [nn.Flatten(), nn.Linear(prod(made_shape), 5), nn.ReLU(), nn.Linear(5, CLASSES)]
    return nn.Sequential(*layers), shape


@settings(max_examples=60)
@given(
    chains(),
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.sampled_from([(torch.float32, None), (torch.float64, None), (torch.float64, 1), (torch.float64, 2)]),
)
def test_any_chain_on_any_batches(chain, used, numbers):
    torch.manual_seed(1)
    module, shape = chain
    for layer in module:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    assert_gradients_alike(module, shape, used, *numbers)


@pytest.mark.parametrize("kernel", [2, 3, (2, 3)])
def test_of_equal_values_the_first_takes_the_slope(kernel):
    # Weights of one make exact sums, so that most windows hold their maximum several times.
    module = nn.Sequential(nn.Conv2d(1, 1, 2), nn.MaxPool2d(kernel), nn.Flatten(), nn.Linear(4, CLASSES))
    with torch.no_grad():
        module[0].weight.fill_(1)
    layout = FlatLayout.of(module.double())
    high, wide = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    shape = (1, 2 * high + 1, 2 * wide + 1)
    batched = BatchedModel.of(module, layout, shape)
    flat = layout.flatten(module).unsqueeze(0)
    gradient = torch.empty_like(flat)
    torch.manual_seed(0)
    x = torch.randint(0, 2, (40, *shape)).double()
    y = torch.randint(0, CLASSES, (40,))
    sample_weights = torch.full((1, 1, 40), 1 / 40, dtype=torch.float64)
    bound = batched.bind(flat, gradient, 40)
    bound.load(x.flatten(1), torch.arange(40))
    bound.compute_gradient(-F.one_hot(y, CLASSES).double().T.unsqueeze(0) / 40, sample_weights)
    F.cross_entropy(module(x), y).backward()
    expected = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
    torch.testing.assert_close(gradient[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["mlp", "cnn-s"])
def test_squared_gradients_of_single_samples(name):
    torch.manual_seed(0)
    module = build_model(name, (1, 8, 8), CLASSES).double()
    layout = FlatLayout.of(module)
    batched = BatchedModel.of(module, layout, (1, 8, 8))
    flat = layout.flatten(module).repeat(2, 1)
    gradient = torch.empty_like(flat)
    bound = batched.bind(flat, gradient, 5)
    x, y = torch.randn(10, 1, 8, 8, dtype=torch.float64), torch.randint(0, CLASSES, (10,))
    bound.load(x.flatten(1), torch.arange(10))
    bound.forward()
    logits = bound.logits.values.transpose(1, 2)
    bound.logits.gradient.copy_((logits.softmax(2) - F.one_hot(y, CLASSES).view_as(logits)).transpose(1, 2))
    bound.backward_squared()
    wanted = torch.zeros_like(flat)
    for sample in range(10):
        module.zero_grad()
        F.cross_entropy(module(x[[sample]]), y[[sample]]).backward()
        found = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])
        wanted[sample // 5] += found.square()
    torch.testing.assert_close(gradient, wanted, rtol=1e-12, atol=1e-14)


def test_a_lane_that_diverged_leaves_its_neighbours_alone():
    module = build_model("cnn-s", (1, 8, 8), CLASSES)
    layout = FlatLayout.of(module)
    batched = BatchedModel.of(module, layout, (1, 8, 8))
    torch.manual_seed(0)
    flat = layout.flatten(module).repeat(3, 1)
    gradient = torch.empty_like(flat)
    bound = batched.bind(flat, gradient, 4)
    x, sample_weights = torch.randn(12, 64), torch.full((3, 1, 4), 0.25)
    target_gradient = torch.zeros(3, CLASSES, 4)
    target_gradient[:, 1] = -0.25

    def gradients():
        bound.load(x, torch.arange(12))
        bound.compute_gradient(target_gradient, sample_weights)
        return gradient.clone()

    clean = gradients()
    for poison in (torch.nan, torch.inf):
        kept = flat[1].clone()
        flat[1] = poison
        spoiled = gradients()
        assert not spoiled[1].isfinite().all()
        assert torch.equal(clean[[0, 2]], spoiled[[0, 2]])
        flat[1] = kept
    assert torch.equal(gradients(), clean)
