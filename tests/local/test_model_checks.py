"""Checks of a model before a run: frozen parameters must really be fixed."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fedrelay as fr
from fedrelay.local.model_checks import check_frozen_parameters


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
