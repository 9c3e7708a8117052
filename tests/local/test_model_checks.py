"""Checks of a model before a run: frozen parameters must really be fixed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay.local.model_checks import check_device, check_frozen_parameters, check_precision


class MovingTarget(nn.Module):
    """A frozen copy of a layer that follows it in train mode, as in momentum contrast."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.target = nn.Linear(4, 3), nn.Linear(4, 3).requires_grad_(False)

    def forward(self, x):
        if self.training:
            self.target.weight.data = 0.9 * self.target.weight.data + 0.1 * self.online.weight.data
        return self.online(x) + self.target(x)


def test_a_frozen_parameter_that_training_changes_is_refused(toy):
    with pytest.raises(fr.SpecError, match=r"model: frozen parameter 'target\.weight' changes during training.*buffer"):
        fr.run("fedavg", data=toy, model=MovingTarget(), rounds=1)


def test_the_check_leaves_the_module_and_the_random_state_alone(toy, partly_frozen):
    before, state = {name: each.clone() for name, each in partly_frozen.state_dict().items()}, torch.get_rng_state()
    check_frozen_parameters(nn.Sequential(partly_frozen, nn.Dropout()), toy)
    assert all(torch.equal(before[name], each) for name, each in partly_frozen.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)


class HalfBackbone(nn.Module):
    """Samples come in the type of the trained parameters, whatever the first parameter has."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(4, 5).half().requires_grad_(False)
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        assert x.dtype == torch.float32
        return self.head(self.backbone(x.half()).float())


def test_a_frozen_part_may_have_half_precision(toy):
    net = HalfBackbone()
    result = fr.run("fedseq", data=toy, model=net, rounds=2, lr=0.1, workers=1)
    assert (len(result.weights), result.weights.dtype) == (18, torch.float32)
    assert torch.equal(result.model["backbone.weight"], net.backbone.weight)


def test_a_model_that_cannot_be_trained_is_refused(toy):
    class Broken(HalfBackbone):
        def forward(self, x):
            if self.training:
                raise RuntimeError("not now")
            return super().forward(x)

    with pytest.raises(fr.SpecError, match="model: cannot be trained: RuntimeError: not now"):
        fr.run("fedavg", data=toy, model=Broken(), rounds=1)


def test_a_device_without_float64_is_refused(monkeypatch):
    def empty(*sizes, device, dtype=torch.float32):
        if dtype == torch.float64:
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64")

    monkeypatch.setattr(torch, "empty", empty)
    with pytest.raises(fr.SpecError, match=r"'mps' cannot be used here \(it has no float64, in which losses are added"):
        check_device("mps")


def test_a_device_or_a_model_without_bf16_is_refused(toy):
    check_precision("float32", "meta", torch.float64)
    check_precision("bf16", "cpu", torch.float32)
    with pytest.raises(fr.SpecError, match=r"train\.precision: the device 'meta' has no bf16; use float32"):
        check_precision("bf16", "meta", torch.float32)
    with pytest.raises(fr.SpecError, match=r"train\.precision: 'bf16' needs a model with float32 weights.*float64"):
        fr.run("fedavg", data=toy, model=nn.Linear(4, 3).double(), rounds=1, precision="bf16")


def test_bf16_gives_the_same_bits_on_workers_and_trains_models_one_by_one(toy, linear):
    """Batched models compute in float32, so they are not used."""
    common = {"data": toy, "model": linear, "rounds": 2, "precision": "bf16", "lr": 0.1}
    one, two, unbatched = (
        fr.run("fedseq+moon", **common, **engine) for engine in ({"workers": 1}, {"workers": 2}, {"lanes": 1})
    )
    assert one.weights_sha256 == two.weights_sha256 == unbatched.weights_sha256
    assert one.weights.dtype == torch.float32
    plain = fr.run("fedavg", data=toy, model=linear, rounds=1, lr=0.1, workers=1)
    bf16 = fr.run("fedavg", data=toy, model=linear, rounds=1, lr=0.1, workers=1, precision="bf16")
    assert bf16.weights_sha256 != plain.weights_sha256
