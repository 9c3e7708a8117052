"""The benchmark of learning tasks: what nodes serve, what counts as the same weights, and what is said in the end."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedrelay.data.node_samples import open_owner_data
from fedrelay.data.table_federation import shared_encoding
from fedrelay.experiment.spec import TableSettings

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def tasks(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    return importlib.import_module("tasks")


def as_served(tasks, task, federation):
    """The samples of the node that would run in the current folder."""
    if task.served.endswith(".csv"):
        from fedrelay.engines.flower.node.node_table import NodeTable

        columns = TableSettings(target="ill", categorical=tasks.CATEGORICAL)
        table = NodeTable.read(Path(task.served), columns, min_rows=1)
        return table.encoded(shared_encoding(federation)).train_samples(0)
    return open_owner_data(task.served, classes=federation.class_count or None).train_samples(0)


@pytest.mark.parametrize("number", range(6))
def test_nodes_serve_what_the_clients_of_a_simulation_have(number, tasks, tmp_path, monkeypatch):
    pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")
    task = tasks.TASKS[number]
    federation = task.data(tmp_path)
    assert federation.client_count == len(tasks.NAMES)
    clients = {name: federation.train_samples(client) for client, name in enumerate(tasks.NAMES)}
    for name, samples in {**clients, tasks.TEST: federation.test}.items():
        monkeypatch.chdir(tmp_path / name)
        pairs = zip(as_served(tasks, task, federation).load().tensors, samples.load().tensors, strict=True)
        assert all(torch.equal(here, there) for here, there in pairs)


def test_nodes_may_differ_by_rounding_and_simulations_by_nothing(tasks):
    reference = SimpleNamespace(weights=torch.zeros(2), weights_sha256="a")
    near = SimpleNamespace(weights=torch.tensor([0.0, 5e-7]), weights_sha256="b")
    far = SimpleNamespace(weights=torch.tensor([0.0, 2e-6]), weights_sha256="c")
    assert tasks.fits("nodes", near, reference)
    assert not tasks.fits("nodes", far, reference)
    assert not tasks.fits("ray", near, reference)
    assert tasks.fits("ray", reference, reference)


def test_the_last_line_names_the_engines_that_ran(tasks, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    alone = tasks.verdict([], tasks.engines(only_local=False))
    assert alone == "the same weights (compared: local, 1 worker; local, 2 workers)"
    found = tasks.verdict(["fedavg on volumes (ray)"], ["local, 1 worker", "ray"])
    assert found == "other weights on some engine for fedavg on volumes (ray) (compared: local, 1 worker; ray)"
