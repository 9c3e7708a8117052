"""A loss or outputs without a value before training: named as the cause, with no advice about the learning rate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedrelay as fr


def federation() -> fr.Federation:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(24, 3)).astype(np.float32), np.arange(24) % 2
    return fr.federate(x[:20], y[:20], x[20:], y[20:], clients=2, partition="iid")


def run(model: nn.Module, **settings: object) -> fr.Result:
    return fr.run("fedavg", data=federation(), model=model, rounds=1, workers=1, **settings)


def test_a_loss_that_is_nan_is_named():
    task = fr.CustomTask(loss=lambda outputs, targets: outputs.sum() * torch.nan)
    wanted = "the loss of task 'custom' is nan on client [01] in round 1, even before training, though the outputs"
    with pytest.raises(fr.DivergedError, match=wanted):
        run(nn.Linear(3, 2), task=task)


def test_outputs_that_are_nan_are_named():
    class Broken(nn.Linear):
        def forward(self, x):
            return super().forward(x) * torch.nan

    with pytest.raises(fr.DivergedError, match="the outputs of the model are NaN or infinite on client"):
        run(Broken(3, 2))


def test_initial_weights_that_are_nan_are_refused():
    module = nn.Linear(3, 2)
    nn.init.constant_(module.bias, torch.nan)
    with pytest.raises(fr.SpecError, match="model: the parameter 'bias' has NaN or infinite values before training"):
        run(module)


def test_a_learning_rate_that_is_too_high_is_still_the_cause_where_it_is():
    with pytest.raises(fr.DivergedError, match=r"lower train\.lr"):
        run(nn.Linear(3, 2), lr=1e38)
