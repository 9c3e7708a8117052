"""An optimiser of the user's own, named by its path."""

from __future__ import annotations

import textwrap

import pytest
import torch

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import TrainSettings, experiment
from fedrelay.local.optimizers.build import build_optimizer

SOURCE = """
    import torch

    class SignSgd(torch.optim.Optimizer):
        def __init__(self, params, lr=1.0, scale=1.0):
            super().__init__(params, {"lr": lr, "scale": scale})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad.sign(), alpha=-group["lr"] * group["scale"])

    class Normalised(SignSgd):
        def step(self):
            for p in self.param_groups[0]["params"]:
                p.data.add_(p.grad / p.grad.norm(), alpha=-self.param_groups[0]["lr"])

    class Listing(SignSgd):
        def step(self):
            super().step()
            for p in self.param_groups[0]["params"]:
                self.state[p].setdefault("seen", []).append(1)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "lab_optim.py").write_text(textwrap.dedent(SOURCE))
    monkeypatch.syspath_prepend(tmp_path)
    return "lab_optim"


def test_it_trains_with_its_own_rule(module):
    train = TrainSettings(optimizer=f"{module}:SignSgd", optimizer_options={"scale": 0.5}, clip=0.1)
    theta = torch.tensor([1.0, 2.0, 3.0])
    build_optimizer(train).start_hop(train, 0.2, theta).step(theta, torch.tensor([5.0, -1.0, 0.0]))
    torch.testing.assert_close(theta, torch.tensor([0.9, 2.1, 3.0]))


def test_a_run_names_its_module(module, small):
    settings = {**small, "alpha": 100.0, "optimizer": f"{module}:SignSgd", "lr": 0.002}
    assert module in prepare(experiment("fedavg", **settings)).prepared.user_modules()
    assert fr.run("fedavg", **settings).accuracy > 0.3
    assert (
        prepare(experiment("fedavg", **{**settings, "optimizer": "torch.optim:Adam"})).prepared.user_modules() == set()
    )


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("Normalised", {}, "is not elementwise"),
        ("SignSgd", {"weight_decay": 0.1}, "has no weight decay; set train.weight_decay=0"),
        ("SignSgd", {"optimizer_options": {"scales": 2}}, r"unknown option 'scales' \(did you mean 'scale'\?\)"),
        ("NotThere", {}, "lab_optim has no such class"),
    ],
)
def test_refusals(module, name, more, message):
    with pytest.raises(SpecError, match=message):
        build_optimizer(TrainSettings(optimizer=f"{module}:{name}", **more))


def test_state_that_cannot_travel_is_named(module):
    train = TrainSettings(optimizer=f"{module}:Listing")
    with pytest.raises(SpecError, match="remembers 'seen', which is neither a number nor a tensor of the model's size"):
        build_optimizer(train).state_tensors(train)
