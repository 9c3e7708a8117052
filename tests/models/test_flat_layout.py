from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.models import flat_layout
from fedrelay.models.flat_layout import FlatLayout, FlatModule, weights_sha256


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))


def test_trained_come_first_then_buffers_then_counters():
    layout = FlatLayout.of(network())
    assert [(entry.name, entry.part) for entry in layout.entries] == [
        ("0.weight", "trained"),
        ("0.bias", "trained"),
        ("1.weight", "trained"),
        ("1.bias", "trained"),
        ("3.weight", "trained"),
        ("3.bias", "trained"),
        ("1.running_mean", "untrained"),
        ("1.running_var", "untrained"),
        ("1.num_batches_tracked", "integer"),
    ]
    assert layout.trained_size == 18 + 2 + 2 + 2 + 24 + 3
    assert layout.float_size == layout.trained_size + 4
    assert layout.size == layout.float_size + 1
    assert layout.bytes == 4 * layout.size


@settings(max_examples=20)
@given(st.integers(0, 2**32))
def test_flat_and_named_forms_are_the_same(seed):
    torch.manual_seed(seed)
    module = network()
    module(torch.randn(4, 1, 4, 4))  # moves the statistics and the counter
    layout = FlatLayout.of(module)
    flat = layout.flatten(module)
    named = layout.state_dict(flat, module)
    assert named.keys() == module.state_dict().keys()
    for name, tensor in module.state_dict().items():
        assert named[name].dtype == tensor.dtype
        assert torch.equal(named[name], tensor)


def test_a_bench_trains_in_the_flat_tensor():
    module = network()
    layout = FlatLayout.of(module)
    first = layout.flatten(module)
    flat_module = FlatModule(module, layout)
    flat_module.module(torch.randn(4, 1, 4, 4)).sum().backward()
    flat_module.trained.sub_(flat_module.gradient)
    out = torch.empty(layout.size)
    out.copy_(flat_module.collect())
    assert torch.equal(out, layout.flatten(flat_module.module))
    assert torch.equal(layout.flatten(module), first)  # a copy is trained
    assert flat_module.module[3].bias.grad is not None
    assert out[-1].item() == 1.0  # the batch counter travels
    assert torch.count_nonzero(flat_module.gradient) > 0


def test_loading_moves_every_tensor_of_the_module():
    layout = FlatLayout.of(network())
    flat_module = FlatModule(network(), layout)
    flat = torch.arange(layout.size, dtype=torch.float32)
    flat_module.load(flat)
    assert flat_module.module[1].num_batches_tracked.item() == layout.size - 1
    assert torch.equal(layout.flatten(flat_module.module), flat)


def test_frozen_parameters_stay_with_the_module(partly_frozen):
    layout = FlatLayout.of(partly_frozen)
    assert (layout.trained_size, layout.size, layout.bytes) == (18, 18 + 11, 4 * 29)
    assert [entry.name for entry in layout.frozen] == ["0.0.weight", "0.0.bias", "0.1.weight", "0.1.bias"]
    assert layout.frozen_bytes == 4 * 35
    before = copy.deepcopy(partly_frozen.state_dict())
    flat_module = FlatModule(partly_frozen, layout)
    flat_module.load(torch.full((layout.size,), 2.0))
    named = layout.state_dict(flat_module.collect(), partly_frozen)
    assert named.keys() == before.keys()
    assert all(torch.equal(named[entry.name], before[entry.name]) for entry in layout.frozen)
    assert (named["2.weight"] == 2).all()
    assert named["0.1.num_batches_tracked"] == 2


def test_frozen_parameters_may_have_any_type_and_buffers_keep_theirs():
    backbone = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).requires_grad_(False).half()
    module = nn.Sequential(backbone, nn.Linear(2, 2))
    module.register_parameter("ids", nn.Parameter(torch.arange(3), requires_grad=False))
    layout = FlatLayout.of(module)
    assert layout.dtype == torch.float32
    assert layout.frozen_bytes == 8 * 3 + 2 * (6 + 4)
    flat_module = FlatModule(module, layout)
    flat_module.load(layout.flatten(module))
    module = flat_module.module
    assert module[0][1].running_mean.dtype == torch.float16
    outputs = module[1](module[0](torch.ones(4, 2).half()).float())
    assert outputs.dtype == torch.float32
    named = layout.state_dict(flat_module.collect(), module)
    assert {name: each.dtype for name, each in named.items()} == {
        name: each.dtype for name, each in module.state_dict().items()
    }
    assert torch.equal(named["0.1.running_mean"], module[0][1].running_mean)


def test_a_frozen_tensor_may_have_two_names():
    module = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    module["a"].weight.requires_grad_(False)
    module["b"].weight = module["a"].weight
    layout = FlatLayout.of(module)
    assert ([entry.name for entry in layout.frozen], layout.size) == (["a.weight"], 4)
    module.load_state_dict(layout.state_dict(layout.flatten(module), module))


def test_tied_weights_are_one_entry_under_two_names():
    module = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    module["b"].weight = module["a"].weight
    layout = FlatLayout.of(module)
    assert layout.size == 8
    named = layout.state_dict(layout.flatten(module), module)
    assert torch.equal(named["b.weight"], named["a.weight"])
    module.load_state_dict(named)
    flat_module = FlatModule(module, layout)
    flat_module.flat.zero_()
    assert flat_module.module["a"].weight is flat_module.module["b"].weight
    assert not flat_module.module["b"].weight.any()


def test_double_precision_is_kept():
    assert FlatLayout.of(nn.Linear(2, 2).double()).dtype == torch.float64


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.ReLU(), "no trainable parameters"),
        (
            nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1).double()),
            r"all trained parameters must share one floating-point type, found torch\.float32, torch\.float64",
        ),
    ],
)
def test_modules_that_cannot_be_flat_are_refused(module, message):
    with pytest.raises(SpecError, match=message):
        FlatLayout.of(module)


def test_integers_too_large_to_travel_are_refused():
    module = nn.Linear(1, 1)
    module.register_buffer("ids", torch.tensor([2**24 + 1]))
    with pytest.raises(SpecError, match=r"'ids' holds values too large to be stored exactly as torch\.float32"):
        FlatLayout.of(module)


def test_the_fingerprint_sees_every_bit():
    flat = torch.zeros(3)
    assert weights_sha256(flat) == "15ec7bf0b50732b49f8228e07d24365338f9e3ab994b00af08e5a3bffe55fd8b"
    flat[1] = -0.0
    assert weights_sha256(flat) != "15ec7bf0b50732b49f8228e07d24365338f9e3ab994b00af08e5a3bffe55fd8b"


@pytest.mark.parametrize("channels", [1, 3])
def test_images_run_channels_last_through_convolutions(channels):
    module = nn.Conv2d(channels, 4, 3)
    flat_module = FlatModule(module, FlatLayout.of(module))
    x = torch.randn(5, channels, 8, 8)
    assert flat_module.module(flat_module.to_inputs(x)).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(flat_module.to_inputs(x), x)
    assert flat_module.to_inputs(x[0, 0].long()).dtype == torch.int64


class Wandering(nn.Module):
    """Replaces its buffers instead of changing them."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.register_buffer("mean", torch.zeros(2))
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)

    def forward(self, x):
        self.mean = 0.5 * self.mean + x.mean(0)
        self.count = self.count + 1
        self.scratch = self.scratch + 1
        return self.linear(x) + self.scratch


def test_replaced_buffers_travel_and_private_ones_do_not_leak():
    module = Wandering()
    layout = FlatLayout.of(module)
    flat_module = FlatModule(module, layout)
    start, out = layout.flatten(module), torch.empty(layout.size)
    for _ in range(2):  # the second client gets the same model and must not see what the first left behind
        flat_module.load(start)
        outputs = [flat_module.module(torch.ones(3, 2)) for _ in range(2)]
        out.copy_(flat_module.collect())
        named = layout.state_dict(out, module)
        assert named["mean"].tolist() == [1.5, 1.5]
        assert named["count"].item() == 2
        assert flat_module.module.scratch.item() == 2.0
        assert torch.equal(outputs[1], outputs[0] + 1)


def test_half_precision_has_a_fingerprint():
    assert len(weights_sha256(torch.zeros(3, dtype=torch.bfloat16))) == 64


def test_a_copy_trains_and_the_module_stays_as_it_is():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.BatchNorm1d(3))
    module[1].weight = module[0].weight
    module[1].bias.requires_grad_(False)
    layout = FlatLayout.of(module)
    before = copy.deepcopy(module.state_dict())
    found = FlatModule(module, layout)
    assert found.module[1].weight is found.module[0].weight
    assert torch.equal(found.flat, layout.flatten(module))
    found.compute_gradient(found.outputs(torch.randn(4, 3)).square().sum())
    found.trained.sub_(found.gradient)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert not torch.equal(found.module[0].weight, module[0].weight)


class OddParts(nn.Module):
    """Tied weights, sparse gradients, parameters that a batch does not reach, and gradients that are -0.0."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(6, 4, sparse=True)
        self.first, self.again = nn.Linear(4, 4), nn.Linear(4, 4)
        self.again.weight = self.first.weight
        self.unused = nn.Linear(3, 3)
        self.last = nn.Linear(4, 2)

    def forward(self, words, often):
        x = self.again(self.first(self.words(words)).relu())
        return self.last(x) * (-0.0 if often else 1.0)


def test_large_models_have_the_gradients_of_small_ones(monkeypatch):
    torch.manual_seed(0)
    module = OddParts()
    layout = FlatLayout.of(module)
    small = FlatModule(module, layout)
    monkeypatch.setattr(flat_layout, "LARGE", 1)
    large = FlatModule(module, layout)
    words = torch.tensor([1, 2, 2, 5])
    for often in (False, True, False):
        one, other = (each.compute_gradient(each.module(words, often).square().sum()) for each in (small, large))
        assert torch.equal(one.view(torch.int32), other.view(torch.int32))  # signs of zeros, too
        for each in (small, large):
            each.trained.sub_(each.gradient, alpha=0.1)
    assert all(parameter.grad is None for parameter in large.module.parameters())
    assert torch.equal(small.collect(), large.collect())


def test_large_models_descend_as_small_ones_do(monkeypatch):
    torch.manual_seed(0)
    module = OddParts()
    layout = FlatLayout.of(module)
    small = FlatModule(module, layout)
    monkeypatch.setattr(flat_layout, "LARGE", 1)
    large = FlatModule(module, layout)
    words = torch.tensor([1, 2, 2, 5])
    for often in (False, True, False):
        before = small.trained.clone()
        for each in (small, large):
            each.descend(each.module(words, often).square().sum(), 0.1)
        assert torch.equal(small.collect(), large.collect())
        assert torch.equal(small.trained, before.add(small.gradient, alpha=-0.1))
    assert all(parameter.grad is None for parameter in large.module.parameters())
    assert "gradient" not in vars(large), "memory as large as the model, for nothing"


def test_a_large_model_whose_backward_pass_fails_keeps_no_gradient(monkeypatch):
    monkeypatch.setattr(flat_layout, "LARGE", 1)
    first = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))
    flat_module = FlatModule(first, FlatLayout.of(first))
    module = flat_module.module
    before, x = flat_module.flat.clone(), torch.ones(1, 2)

    def fail(gradient: torch.Tensor) -> None:
        raise ValueError("no")

    hidden = module[0](x)
    hidden.register_hook(fail)
    with pytest.raises(ValueError, match="no"):
        flat_module.descend(module[1](hidden).sum(), 0.1)
    assert torch.equal(flat_module.flat, before)
    assert all(parameter.grad is None for parameter in module.parameters())
    expected = torch.autograd.grad(module(x).sum(), list(module.parameters()))
    flat_module.compute_gradient(module(x).sum())
    assert torch.equal(flat_module.gradient, torch.cat([each.reshape(-1) for each in expected]))


@pytest.mark.parametrize("settings_of_sgd", [{"momentum": 0.9, "clip": 1.0}, {}], ids=["with momentum", "plain"])
@pytest.mark.parametrize("method", ["fedavg", "fedseq+ewc", "fedsam", "moon"])
def test_large_models_train_to_the_same_bits(method, settings_of_sgd, monkeypatch):
    data = {"samples": 200, "clients": 4, "fraction": 1.0}
    wanted = {**data, "rounds": 2, "workers": 1, "lanes": 1, **settings_of_sgd}
    plain = fr.run(method, model="cnn-s", **wanted)
    monkeypatch.setattr(flat_layout, "LARGE", 1)
    assert fr.run(method, model="cnn-s", **wanted).weights_sha256 == plain.weights_sha256
