"""Lanes against one model after another: the same result to rounding, whatever the clients look like."""

from __future__ import annotations

from math import isfinite

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import make_federation
from tests.local.terms.conftest import first_context
from torch import nn

from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import ArrayFederation
from fedrelay.data.partition import ClientIndices
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.batched_trainer import (
    MAX_MULTIPLICATIONS,
    MAX_WINDOW_VALUES,
    BatchedTrainer,
    batched_model_for,
    trainer_for,
)
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.local.terms.sharpness import Sharpness
from fedrelay.local.trainer import PLAIN_CLASSIFICATION, EagerTrainer, TrainingJob
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.models.zoo import build_model
from fedrelay.routes.plan import Hop
from fedrelay.tasks.binary import Binary
from fedrelay.tasks.classification import Classification
from fedrelay.tasks.custom import CustomTask
from fedrelay.tasks.multilabel import MultiLabel
from fedrelay.tasks.regression import Regression


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def images(sizes):
    """Clients with small images of few levels of brightness, so that neighbours are often equal."""
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    total = int(offsets[-1])
    x = rng.integers(0, 3, (total, 1, 8, 8)).astype(np.float32)
    dataset = Dataset("toy", "image", x, rng.integers(0, 3, total), x[:2], rng.integers(0, 3, 2), 3)
    return ArrayFederation(dataset, ClientIndices(np.arange(total), offsets), seed=0)


def numbers(targets):
    """Six clients of unequal size with targets that are made from a generator and a number of samples."""
    rng, sizes = np.random.default_rng(1), (5, 9, 3, 8, 4, 7)
    x, y = rng.normal(size=(36, 4)).astype(np.float32), targets(rng, 36)
    dataset = Dataset("numbers", "tabular", x, y, x[:2], y[:2], 2 if y.dtype == np.int64 else 0)
    return ArrayFederation(dataset, ClientIndices(np.arange(36), np.cumsum([0, *sizes])), seed=0)


def both(federation, clients, terms=(), module=None, lanes=8, task=PLAIN_CLASSIFICATION, **train):
    module = module or network()
    layout = FlatLayout.of(module)
    job = TrainingJob(module, layout, federation, TrainSettings(**train), terms, 5, lanes=lanes, task=task)
    start = layout.flatten(module)
    hops = [Hop(3, route, 0, client) for route, client in enumerate(clients)]
    received = [start + 0.01 * route for route in range(len(hops))]
    found = []
    for trainer in (
        EagerTrainer(job, FlatModule(module, layout)),
        trainer_for(job, FlatModule(module, layout)),
    ):
        out = [torch.empty_like(start) for _ in hops]
        reports = trainer.train_hops(hops, [HopContext(received, start) for received in received], out)
        found.append((torch.stack(out), reports))
    assert isinstance(trainer, BatchedTrainer)
    return found


def assert_alike(found):
    (eager, eager_reports), (batched_lanes, batched_reports) = found
    torch.testing.assert_close(eager, batched_lanes, rtol=1e-5, atol=1e-6)
    for one, two in zip(eager_reports, batched_reports, strict=True):
        assert (one.samples, one.steps, isfinite(one.max_abs_weight)) == (
            two.samples,
            two.steps,
            isfinite(two.max_abs_weight),
        )
        assert one.loss == pytest.approx(two.loss, rel=1e-5)


@pytest.mark.parametrize(
    "train",
    [
        {"lr": 0.1},
        {"lr": 0.1, "epochs": 3},
        {"lr": 0.1, "momentum": 0.9, "epochs": 2},
        {"lr": 0.1, "weight_decay": 0.05},
        {"lr": 0.1, "clip": 0.3},
        {"lr": 0.2, "schedule": {"name": "step", "factor": 0.5}},
        {"lr": 0.05, "momentum": 0.5, "weight_decay": 0.01, "clip": 0.5, "epochs": 2},
        {"lr": 0.1, "steps": "equal"},
        {"lr": 0.1, "steps": "inverse-size", "epochs": 2},
        {"lr": 0.1, "steps": 5, "batches": "class-weighted"},
    ],
)
def test_unequal_clients_get_what_they_would_get_alone(toy, train):
    assert_alike(both(toy, range(6), batch_size=4, **train))


def test_every_lane_has_its_own_place_on_its_chain(toy):
    """Routes of different lengths: the learning rate of each lane is that of its hop."""
    module, chain = network(), {"name": "linear", "end": 0.2}
    layout = FlatLayout.of(module)
    train = TrainSettings(lr=0.3, batch_size=4, momentum=0.5, chain_schedule=chain)
    job = TrainingJob(module, layout, toy, train, (ControlVariates(),), 5, lanes=8)
    hops = [Hop(1, route, 1, client, route_length=1 + client) for route, client in enumerate((1, 2, 3, 4))]
    start, found = layout.flatten(module), []
    for trainer in (
        EagerTrainer(job, FlatModule(module, layout)),
        trainer_for(job, FlatModule(module, layout)),
    ):
        contexts = [first_context(job, start) for _ in hops]
        out = [torch.empty_like(start) for _ in hops]
        reports = trainer.train_hops(hops, contexts, out)
        kept = [context.new_client_state["control"] for context in contexts]
        found.append((torch.stack(out), torch.stack(kept), [report.lr for report in reports]))
    torch.testing.assert_close(found[0][:2], found[1][:2], rtol=1e-5, atol=1e-6)
    assert found[0][2] == found[1][2] == pytest.approx([0.3 * 0.2, 0.3 * 0.6, 0.3 * (1 - 0.8 / 3), 0.3 * 0.8])


@pytest.mark.parametrize("anchor", ["recv", "round"])
def test_terms_act_on_every_lane(toy, anchor):
    assert_alike(both(toy, [3, 0, 5], terms=(ProximalPenalty(mu=0.5, anchor=anchor),), batch_size=3, epochs=2))


@pytest.mark.parametrize("uphill", ["batch", "last"])
def test_every_lane_goes_uphill_by_itself(toy, uphill):
    train = {"batch_size": 4, "epochs": 2, "lr": 0.1}
    found = both(toy, range(6), terms=(Sharpness(rho=0.5, uphill=uphill),), **train)
    assert_alike(found)
    (plain, _), _ = both(toy, range(6), **train)
    assert float((found[1][0] - plain).abs().amax(1).min()) > 1e-3  # in every lane, it is not plain training


@settings(max_examples=25)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8),
    st.integers(1, 12),
    st.integers(1, 3),
)
def test_any_clients_and_batch_sizes(clients, batch_size, epochs):
    assert_alike(both(make_federation([5, 9, 3, 8, 4, 7]), clients, batch_size=batch_size, epochs=epochs, lr=0.1))


@pytest.mark.parametrize("train", [{}, {"momentum": 0.9, "weight_decay": 0.01, "clip": 0.5, "epochs": 2}])
def test_convolutional_models_on_unequal_clients(train):
    torch.manual_seed(4)
    module = build_model("cnn-s", (1, 8, 8), 3)
    terms = (ProximalPenalty(mu=0.5, anchor="round"),) if train else ()
    clients = images([5, 19, 3, 8, 1, 7])
    assert_alike(both(clients, range(6), terms, module, batch_size=4, lr=0.05, **train))


@pytest.mark.parametrize("lanes", [2, 3, 5, 6])
def test_more_hops_than_lanes_take_turns(toy, lanes):
    assert_alike(both(toy, [3, 1, 0, 5, 2, 4], lanes=lanes, batch_size=4, lr=0.1))


@pytest.mark.parametrize("sizes", [[0, 3, 0], [0, 0]])
def test_clients_without_samples_hand_the_model_on(sizes):
    assert_alike(both(make_federation(sizes), range(len(sizes)), batch_size=4, lr=0.1))


def test_the_same_bits_at_every_hop():
    torch.manual_seed(4)
    module = build_model("cnn-s", (1, 8, 8), 3)
    layout = FlatLayout.of(module)
    job = TrainingJob(module, layout, images([5, 19, 3, 8, 1, 70]), TrainSettings(batch_size=16), (), 5, lanes=8)
    start = layout.flatten(module)

    def context(trainer, clients):
        out = [torch.empty_like(start) for _ in clients]
        hops = [Hop(1, route, 0, client) for route, client in enumerate(clients)]
        trainer.train_hops(hops, [HopContext(start, start)] * len(hops), out)
        return torch.stack(out)

    fresh, used = (trainer_for(job, FlatModule(module, layout)) for _ in range(2))
    for clients in ([5, 1, 0], [2], [4, 4], [1, 3]):  # other widths and numbers of lanes
        context(used, clients)
    assert torch.equal(context(fresh, [0, 1, 2, 3]), context(used, [0, 1, 2, 3]))


def test_a_diverging_lane_leaves_the_others_alone(toy):
    module = network()
    layout = FlatLayout.of(module)
    job = TrainingJob(module, layout, toy, TrainSettings(batch_size=2), (), 5, lanes=4)
    trainer = trainer_for(job, FlatModule(module, layout))
    start = layout.flatten(module)
    hops = [Hop(1, route, 0, route) for route in range(3)]
    clean, spoiled = ([torch.empty_like(start) for _ in hops] for _ in range(2))
    trainer.train_hops(hops, [HopContext(start, start)] * 3, clean)
    reports = trainer.train_hops(
        hops, [HopContext(received, start) for received in (start, start + torch.inf, start)], spoiled
    )
    assert [isfinite(report.max_abs_weight) for report in reports] == [True, False, True]
    assert torch.equal(clean[0], spoiled[0])
    assert torch.equal(clean[2], spoiled[2])


def test_a_client_with_broken_samples_leaves_the_others_alone():
    clean, spoiled = images([9, 3, 5]), images([9, 3, 5])
    spoiled.train_samples(0).x.fill_(torch.nan)  # among them what would fill up the short batches of others
    models = []
    for federation in (clean, spoiled):
        torch.manual_seed(4)
        ((_, _), (batched_lanes, reports)) = both(
            federation, range(3), module=build_model("cnn-s", (1, 8, 8), 3), batch_size=4
        )
        models.append(batched_lanes)
    assert [isfinite(report.max_abs_weight) for report in reports] == [False, True, True]
    assert torch.equal(models[0][1:], models[1][1:])


@pytest.mark.parametrize(
    ("module", "lanes", "kind"),
    [
        (network(), 8, BatchedTrainer),
        (network(), 1, EagerTrainer),
        (nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1)), 8, EagerTrainer),
        (build_model("cnn-s", (1, 8, 8), 3), 8, EagerTrainer),  # not for these samples
    ],
)
def test_the_choice_depends_on_the_job_alone(toy, module, lanes, kind):
    job = TrainingJob(module, FlatLayout.of(module), toy, TrainSettings(), (), 5, lanes=lanes)
    assert isinstance(trainer_for(job, FlatModule(module, job.layout)), kind)


def test_an_own_loss_is_left_to_automatic_differentiation(toy):
    module = network()
    job = TrainingJob(
        module,
        FlatLayout.of(module),
        toy,
        TrainSettings(),
        (),
        5,
        lanes=8,
        task=CustomTask(loss=lambda out, y: out.sum()),
    )
    assert isinstance(trainer_for(job, FlatModule(module, job.layout)), EagerTrainer)


WEIGHTED = (1.0, 0.2, 3.0)


@pytest.mark.parametrize(
    "task",
    [
        Classification(class_weights=WEIGHTED),
        Classification(label_smoothing=0.2),
        Classification(class_weights=WEIGHTED, label_smoothing=0.2),
    ],
    ids=["class weights", "label smoothing", "both"],
)
@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_other_losses_of_classes(toy, task, lanes):
    assert_alike(both(toy, range(6), task=task, lanes=lanes, batch_size=4, epochs=2, lr=0.2))


def test_a_class_without_weight_in_a_batch_by_itself_has_no_loss(toy):
    """Zero divided by zero, as in PyTorch: the lanes of other clients do not notice."""
    task = Classification(class_weights=(1.0, 0.0, 1.0))
    (eager, _), (batched_lanes, _) = both(toy, range(6), task=task, batch_size=2, lr=0.2)
    broken = eager.isnan().any(1)
    assert broken.any()
    assert not broken.all()
    assert torch.equal(batched_lanes.isnan().any(1), broken)
    torch.testing.assert_close(eager[~broken], batched_lanes[~broken], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("task", "targets", "outputs"),
    [
        (Binary(), lambda rng, n: rng.integers(0, 2, n), 1),
        (Binary(class_weights=(0.5, 2.0)), lambda rng, n: rng.integers(0, 2, n), 1),
        (MultiLabel(), lambda rng, n: rng.integers(0, 2, (n, 5)).astype(np.float32), 5),
        (Regression(), lambda rng, n: rng.normal(size=n).astype(np.float32), 1),
        (Regression(), lambda rng, n: rng.normal(size=(n, 2, 3)), 6),
        (Regression(loss="mae"), lambda rng, n: rng.normal(size=(n, 2)), 2),
        (Regression(loss="huber", delta=0.5), lambda rng, n: rng.normal(size=(n, 2)), 2),
    ],
    ids=["binary", "weighted binary", "multi-label", "one number", "a matrix", "absolute error", "Huber's loss"],
)
@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_other_tasks(task, targets, outputs, lanes):
    torch.manual_seed(3)
    module = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, outputs))
    found = both(numbers(targets), range(6), module=module, task=task, lanes=lanes, batch_size=4, epochs=2, lr=0.1)
    assert_alike(found)


class OwnBinary(Binary):
    def batch_loss(self, outputs, targets):
        return 2 * super().batch_loss(outputs, targets)


class OwnBatchableBinary(OwnBinary):
    def sample_losses(self, outputs, targets):
        return 2 * Binary().sample_losses(outputs, targets)


def test_a_task_with_another_loss_does_not_inherit_its_gradient():
    assert Binary().batchable
    assert not OwnBinary().batchable
    data, module = numbers(lambda rng, n: rng.integers(0, 2, n)), nn.Linear(4, 1)
    assert_alike(both(data, range(6), module=module, task=OwnBatchableBinary(), batch_size=4, lr=0.1))


CNN_S = 8 * 9 * 8 * 8 + 16 * 8 * 9 * 4 * 4 + 64 * 16 * 2 * 2 + 3 * 64
"""The multiplications that the model takes for one image of 8×8."""

WINDOWS = 9 * 8 * 8 + 8 * 9 * 4 * 4
"""The values in the windows of its convolutions."""

MLP = 64 * 64 + 64 * 3
"""The multiplications of the dense network."""


@pytest.mark.parametrize(
    ("name", "batch_size", "lanes", "kind"),
    [
        ("mlp", 16, 8, BatchedTrainer),
        ("cnn-s", 16, 8, BatchedTrainer),
        ("cnn-s", MAX_WINDOW_VALUES // WINDOWS // 8, 8, BatchedTrainer),
        ("cnn-s", MAX_WINDOW_VALUES // WINDOWS // 8 + 1, 7, BatchedTrainer),
        ("cnn-s", MAX_WINDOW_VALUES // WINDOWS + 1, 1, BatchedTrainer),
        ("mlp", MAX_MULTIPLICATIONS // MLP // 8, 8, BatchedTrainer),
        ("mlp", MAX_MULTIPLICATIONS // MLP // 8 + 1, 7, BatchedTrainer),
        ("cnn-s", MAX_MULTIPLICATIONS // CNN_S, 1, BatchedTrainer),
        ("cnn-s", MAX_MULTIPLICATIONS // CNN_S + 1, 1, EagerTrainer),
        ("resnet18", 16, 1, EagerTrainer),
    ],
)
def test_large_models_and_batches_get_fewer_lanes(name, batch_size, lanes, kind):
    module = build_model(name, (1, 8, 8), 3)
    job = TrainingJob(
        module, FlatLayout.of(module), images([5, 3]), TrainSettings(batch_size=batch_size), (), 5, lanes=8
    )
    assert batched_model_for(job)[1] == lanes
    assert isinstance(trainer_for(job, FlatModule(module, job.layout)), kind)
