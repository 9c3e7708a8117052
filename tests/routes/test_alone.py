"""Every client trains alone, in the rounds in which FedAvg would ask it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.runtime.eight_clients import federation, network

import fedrelay as fr
from fedrelay.data.holdout import with_holdout
from fedrelay.errors import SpecError
from fedrelay.routes.alone import Alone
from fedrelay.routes.base import PlanningContext
from fedrelay.routes.singletons import Singletons


def test_the_same_clients_as_fedavg_and_nothing_is_sent():
    context = PlanningContext(10, 0.4, seed=3)
    for round in (1, 7):
        plan, fedavg = Alone(loops=2).plan(context, round), Singletons().plan(context, round)
        assert {route.clients for route in plan.routes} == {route.clients * 2 for route in fedavg.routes}
        assert all(route.slot == route.clients[0] for route in plan.routes)
        assert (plan.handover, plan.merges) == ("none", False)


def test_each_model_is_that_of_a_run_with_its_client_alone():
    """Batches depend on the numbers of route and client, so whole batches are compared."""
    data, settings = federation(), {"rounds": 3, "fraction": 1.0, "batch_size": 100, "epochs": 2, "lr": 0.5}
    together = fr.run("local", data=data, model=network(), **settings, per_client=3, holdout=0.25)
    split = with_holdout(data, 0.25, 1)
    for client in (0, 5):
        samples = split.train_samples(client)
        x, y = samples.x.numpy(), samples.y.numpy()
        kept = split.reserved_samples(client)
        own = fr.federate(x, y, kept.x.numpy(), kept.y.numpy(), client_ids=np.zeros(len(y), int), classes=3)
        alone = fr.run("fedavg", data=own, model=network(), **settings)
        found = together.clients.lines[client]["scores"]
        assert found["loss"] == pytest.approx(alone.history[-1]["loss"], rel=1e-5)
        assert found["accuracy"] == alone.accuracy


def test_rows_have_the_means_over_the_clients_own_models():
    data = federation()
    result = fr.run("local", data=data, model=network(), rounds=2, fraction=1.0, per_client=1, holdout=0.25)
    on_test = [line["test"] for line in result.clients.lines]
    for metric in ("accuracy", "loss", "f1"):
        assert result.history[-1][metric] == pytest.approx(np.mean([each[metric] for each in on_test]))
    assert result.transfers["s2c"] == result.transfers["c2c"] == 0
    assert torch.isfinite(result.weights).all()


def test_a_merge_has_no_effect():
    with pytest.raises(SpecError, match="models are never merged"):
        fr.run("local+fedadam", clients=4, rounds=1)
