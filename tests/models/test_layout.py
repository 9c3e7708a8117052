from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedrelay.errors import SpecError
from fedrelay.models.layout import Bench, Layout, weights_sha256


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))


def test_trained_come_first_then_buffers_then_counters():
    layout = Layout.of(network())
    assert [(entry.name, entry.part) for entry in layout.entries] == [
        ("0.weight", "trained"),
        ("0.bias", "trained"),
        ("1.weight", "trained"),
        ("1.bias", "trained"),
        ("3.weight", "trained"),
        ("3.bias", "trained"),
        ("1.running_mean", "carried"),
        ("1.running_var", "carried"),
        ("1.num_batches_tracked", "counted"),
    ]
    assert layout.trainable == 18 + 2 + 2 + 2 + 24 + 3
    assert layout.counters == layout.trainable + 4
    assert layout.size == layout.counters + 1
    assert layout.bytes == 4 * layout.size


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_flat_and_named_forms_are_the_same(seed):
    torch.manual_seed(seed)
    module = network()
    module(torch.randn(4, 1, 4, 4))  # moves the statistics and the counter
    layout = Layout.of(module)
    flat = layout.flatten(module)
    named = layout.state_dict(flat)
    assert named.keys() == module.state_dict().keys()
    for name, tensor in module.state_dict().items():
        assert named[name].dtype == tensor.dtype
        assert torch.equal(named[name], tensor)
    assert torch.equal(layout.from_state_dict(named), flat)


def test_a_bench_trains_in_the_flat_tensor():
    module = network()
    layout = Layout.of(module)
    bench = Bench(module, layout)
    bench.module(torch.randn(4, 1, 4, 4)).sum().backward()
    bench.trained.sub_(bench.gradient)
    out = torch.empty(layout.size)
    bench.store(out)
    assert torch.equal(out, layout.flatten(module))
    assert module[3].bias.grad is not None
    assert out[-1].item() == 1.0  # the batch counter travels
    assert torch.count_nonzero(bench.gradient) > 0


def test_loading_moves_every_tensor_of_the_module():
    layout = Layout.of(network())
    bench = Bench(network(), layout)
    flat = torch.arange(layout.size, dtype=torch.float32)
    bench.load(flat)
    assert bench.module[1].num_batches_tracked.item() == layout.size - 1
    assert torch.equal(layout.flatten(bench.module), flat)


def test_frozen_parameters_travel_but_are_not_trained():
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[0].requires_grad_(False)
    layout = Layout.of(module)
    assert (layout.trainable, layout.size) == (6, 12)
    assert [entry.name for entry in layout.entries if entry.part == "carried"] == ["0.weight", "0.bias"]


def test_tied_weights_are_one_entry_under_two_names():
    module = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    module["b"].weight = module["a"].weight
    layout = Layout.of(module)
    assert layout.size == 8
    named = layout.state_dict(layout.flatten(module))
    assert torch.equal(named["b.weight"], named["a.weight"])
    module.load_state_dict(named)


def test_double_precision_is_kept():
    assert Layout.of(nn.Linear(2, 2).double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.ReLU(), "no trainable parameters"),
        (
            nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double()),
            r"share one floating type, found torch\.float32, torch\.float64",
        ),
    ],
)
def test_modules_that_cannot_be_flat_are_refused(module, message):
    with pytest.raises(SpecError, match=message):
        Layout.of(module)


def test_integers_too_large_to_travel_are_refused():
    module = nn.Linear(1, 1)
    module.register_buffer("ids", torch.tensor([2**24 + 1]))
    with pytest.raises(SpecError, match="'ids' holds values beyond"):
        Layout.of(module)


def test_the_fingerprint_sees_every_bit():
    flat = torch.zeros(3)
    assert weights_sha256(flat) == "15ec7bf0b50732b49f8228e07d24365338f9e3ab994b00af08e5a3bffe55fd8b"
    flat[1] = -0.0
    assert weights_sha256(flat) != "15ec7bf0b50732b49f8228e07d24365338f9e3ab994b00af08e5a3bffe55fd8b"


@pytest.mark.parametrize("channels", [1, 3])
def test_images_run_channels_last_through_convolutions(channels):
    module = nn.Conv2d(channels, 4, 3)
    bench = Bench(module, Layout.of(module))
    x = torch.randn(5, channels, 8, 8)
    assert module(bench.inputs(x)).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(bench.inputs(x), x)
    assert bench.inputs(x[0, 0].long()).dtype == torch.int64
