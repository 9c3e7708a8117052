"""How a run finds its nodes and its test samples."""

from __future__ import annotations

import pytest
import torch
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.engines.flower import connect

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

FUNCTION = """
import numpy as np

def load():
    return np.ones((6, 4), np.float32), np.arange(6) % 3
"""


class Die:
    def on_run_start(self, experiment, round):
        pass

    def on_round_end(self, context):
        raise KeyboardInterrupt


def test_a_run_with_a_function_of_test_samples_can_be_resumed(make_nodes, use_nodes, tmp_path, monkeypatch):
    (tmp_path / "own_test_scans.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(tmp_path)
    nodes = make_nodes(make_federation([5, 9, 3]))
    use_nodes(nodes)
    facts = dict(zip(nodes.names, nodes.remote.facts, strict=True))
    monkeypatch.setattr(
        connect,
        "open_remote",
        lambda experiment, plugins=(): connect.remote_federation(experiment.data, facts, experiment.engine.test),
    )
    settings = {
        "data": "nodes",
        "engine": {"name": "flower", "test": "own_test_scans:load"},
        "rounds": 2,
        "fraction": 1.0,
    }
    settings |= {"model": "logistic", "checkpoint": {"seconds": 0}}
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedavg", **settings, out=tmp_path / "run", callbacks=Die())
    monkeypatch.chdir("/")
    resumed = fr.resume(tmp_path / "run")
    assert resumed.experiment.engine.test == "own_test_scans:load"
    assert torch.equal(resumed.weights, fr.run("fedavg", **settings).weights)
    assert resumed.history[-1]["round"] == 2
