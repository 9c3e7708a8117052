"""Inputs of merges from plain numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedrelay.experiment.spec import TrainSettings
from fedrelay.merge.base import MergeInput
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.arrival import Arrival, HopReport


def merge_input(models, *, samples=None, hops=None, global_model=None, dtype=torch.float64, layout=None, **others):
    """Routes of one client each that bring these models back; `hops` gives the steps of every hop of every route."""
    size = len(models[0])
    samples = samples or [1] * len(models)
    hops = hops or [[1]] * len(models)
    arrivals = [
        Arrival(
            route,
            (route,) * len(steps),
            torch.as_tensor(model, dtype=dtype),
            tuple(HopReport(n if hop == 0 else 0, each, 0.0) for hop, each in enumerate(steps)),
        )
        for route, (model, n, steps) in enumerate(zip(models, samples, hops, strict=True))
    ]
    settings = {
        "layout": layout or FlatLayout.of(nn.Linear(size, 1, bias=False).to(dtype)),
        "clients": len(models),
        "train": TrainSettings(),
        "label_histogram": lambda client: np.ones(2, dtype=np.int64),
        **others,
    }
    start = torch.zeros(size) if global_model is None else torch.as_tensor(global_model)
    return MergeInput(start.to(dtype), arrivals, **settings)


def server_steps(rule, changes):
    """The steps a rule makes of given mean changes."""
    weights, state, steps = torch.zeros(1, dtype=torch.float64), {}, []
    for change in changes:
        inputs = merge_input([weights + change], global_model=weights, state=state)
        moved, state = rule.apply(inputs)
        steps.append((moved - weights).item())
        weights = moved
    return steps, state


@pytest.fixture(scope="session")
def make_inputs():
    return merge_input


@pytest.fixture(scope="session")
def batch_norm():
    """Two parameters, two floating buffers, one counter."""
    return FlatLayout.of(nn.BatchNorm1d(1))
