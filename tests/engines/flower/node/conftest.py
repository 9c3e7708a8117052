"""A node service with eight samples of two classes, and requests as a server sends them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedrelay.data.node_samples import owner_federation
from fedrelay.engines.flower.job_description import describe_job
from fedrelay.engines.flower.messages import Message, pack_models
from fedrelay.engines.flower.node.service import NodeService
from fedrelay.experiment.spec import GuardSettings, TrainSettings
from fedrelay.local.module_rebuilder import ZooModelRebuilder
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout

RUN = "0123456789abcdef"
FEATURES, CLASSES = 3, 2


def samples() -> Any:
    x = np.arange(24, dtype=np.float32).reshape(8, FEATURES) / 24
    return owner_federation({"x": x, "y": np.arange(8) % CLASSES, "x_test": x[:4], "y_test": np.array([0, 1, 0, 1])})


def job(
    *terms: Any, guard: GuardSettings | None = None, hidden: tuple[int, ...] | None = None, **train: Any
) -> TrainingJob:
    name = "logistic" if hidden is None else "mlp"
    builder = ZooModelRebuilder(name=name, shape=(FEATURES,), classes=CLASSES, kind="tabular", hidden=hidden)
    module = builder.build()
    settings = TrainSettings(**{"batch_size": 4, "lr": 0.1, **train})
    return TrainingJob(
        module,
        FlatLayout.of(module),
        samples(),
        settings,
        terms,
        7,
        guard=guard or GuardSettings(),
        module_rebuilder=builder,
    )


def hop(wanted: TrainingJob, models: dict[str, torch.Tensor] | None = None, **header: Any) -> Message:
    """A request for a hop of client 5 of a federation in which this node is that client."""
    usual = {
        "kind": "hop",
        "job": describe_job(wanted),
        "run": RUN,
        "hop": [1, 0, 0, 5, 0, 1],
        "merges": 0,
        "typical_norm": 0.0,
        "request": 100,
    }
    usual |= {"tamper": None, "state": 0, "merged_from": [], "oldest_needed": 0}
    return pack_models({**usual, **header}, models or {"recv": torch.zeros(wanted.layout.size)})


@pytest.fixture
def make_service(tmp_path: Path) -> Callable[..., NodeService]:
    def made(**options: Any) -> NodeService:
        (tmp_path / "node").mkdir(exist_ok=True)
        return NodeService(samples(), tmp_path / "node", **options)

    return made


@pytest.fixture
def service(make_service: Callable[..., NodeService]) -> NodeService:
    return make_service()


@pytest.fixture
def ask() -> Any:
    """The builders above, for tests that import nothing from here."""

    class Asking:
        job = staticmethod(job)
        hop = staticmethod(hop)
        run = RUN

    return Asking
