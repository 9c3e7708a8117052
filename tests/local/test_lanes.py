"""Lanes against one model after another: the same result to rounding, whatever the clients look like."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fedrelay.local.lanes import StackedTrainer, trainer_for
from fedrelay.local.terms.prox import Prox
from fedrelay.local.trainer import EagerTrainer, Job
from fedrelay.models.layout import Layout, Workbench
from fedrelay.models.zoo import build_model
from fedrelay.routes.plan import Hop
from fedrelay.spec import Train


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def both(federation, clients, terms=(), **train):
    module = network()
    layout = Layout.of(module)
    job = Job(module, layout, federation, Train(**train), terms, 5, lanes=8)
    start = layout.flatten(module)
    hops = [Hop(1, route, 0, client) for route, client in enumerate(clients)]
    received = [start + 0.01 * route for route in range(len(hops))]
    found = []
    for trainer in (
        EagerTrainer(job, Workbench(copy.deepcopy(module), layout)),
        trainer_for(job, Workbench(module, layout)),
    ):
        out = [torch.empty_like(start) for _ in hops]
        reports = trainer.train(hops, received, start, out)
        found.append((torch.stack(out), reports))
    assert isinstance(trainer, StackedTrainer)
    return found


def assert_alike(found):
    (eager, eager_reports), (stacked, stacked_reports) = found
    torch.testing.assert_close(eager, stacked, rtol=1e-5, atol=1e-6)
    for one, two in zip(eager_reports, stacked_reports, strict=True):
        assert (one.samples, one.steps, one.finite) == (two.samples, two.steps, two.finite)
        assert one.loss == pytest.approx(two.loss, rel=1e-5)


@pytest.mark.parametrize(
    "train",
    [
        {"lr": 0.1},
        {"lr": 0.1, "epochs": 3},
        {"lr": 0.1, "momentum": 0.9, "epochs": 2},
        {"lr": 0.1, "weight_decay": 0.05},
        {"lr": 0.1, "clip": 0.3},
        {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.01, "clip": 0.5, "epochs": 2},
    ],
)
def test_unequal_clients_get_what_they_would_get_alone(toy, train):
    assert_alike(both(toy, range(6), batch_size=4, **train))


@pytest.mark.parametrize("anchor", ["recv", "round"])
def test_terms_act_on_every_lane(toy, anchor):
    assert_alike(both(toy, [3, 0, 5], terms=(Prox(mu=0.5, anchor=anchor),), batch_size=3, epochs=2))


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.integers(1, 12),
    st.integers(1, 3),
)
def test_any_clients_and_batch_sizes(clients, batch_size, epochs):
    from tests.conftest import make_federation

    assert_alike(both(make_federation([5, 9, 3, 8, 4, 7]), clients, batch_size=batch_size, epochs=epochs, lr=0.1))


def test_a_diverging_lane_leaves_the_others_alone(toy):
    module = network()
    layout = Layout.of(module)
    job = Job(module, layout, toy, Train(batch_size=2), (), 5, lanes=4)
    trainer = trainer_for(job, Workbench(module, layout))
    start = layout.flatten(module)
    hops = [Hop(1, route, 0, route) for route in range(3)]
    clean, spoiled = ([torch.empty_like(start) for _ in hops] for _ in range(2))
    trainer.train(hops, [start, start, start], start, clean)
    reports = trainer.train(hops, [start, start + torch.inf, start], start, spoiled)
    assert [report.finite for report in reports] == [True, False, True]
    assert torch.equal(clean[0], spoiled[0])
    assert torch.equal(clean[2], spoiled[2])


@pytest.mark.parametrize(
    ("module", "lanes", "kind"),
    [
        (network(), 8, StackedTrainer),
        (network(), 1, EagerTrainer),
        (nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1)), 8, EagerTrainer),
        (build_model("cnn-s", (1, 8, 8), 3), 8, EagerTrainer),
    ],
)
def test_the_choice_depends_on_the_job_alone(toy, module, lanes, kind):
    job = Job(module, Layout.of(module), toy, Train(), (), 5, lanes=lanes)
    assert isinstance(trainer_for(job, Workbench(module, job.layout)), kind)


def test_an_own_loss_is_left_to_automatic_differentiation(toy):
    module = network()
    job = Job(module, Layout.of(module), toy, Train(), (), 5, lanes=8, loss=lambda out, y: out.sum())
    assert isinstance(trainer_for(job, Workbench(module, job.layout)), EagerTrainer)
