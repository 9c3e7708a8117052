"""Every optimiser against `torch.optim`: one model, and lanes of different sizes."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from tests.local.test_batched_trainer import assert_alike, both

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings, experiment
from fedrelay.local.batched_trainer import batched_model_for
from fedrelay.local.hop_context import HopContext
from fedrelay.local.optimizers.build import OPTIMIZERS, build_optimizer
from fedrelay.local.trainer import EagerTrainer, TrainingJob
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.rng import generator
from fedrelay.routes.plan import Hop

THEIRS = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "rmsprop": torch.optim.RMSprop,
    "torch.optim:NAdam": torch.optim.NAdam,
    "torch.optim:Adagrad": torch.optim.Adagrad,
}
CASES = [
    ("sgd", {}, {"momentum": 0.9}),
    ("adam", {}, {}),
    ("adam", {"betas": [0.5, 0.9], "eps": 1e-3}, {"weight_decay": 0.1}),
    ("adam", {"betas": [0.0, 0.99]}, {}),
    ("adamw", {}, {"weight_decay": 0.1}),
    ("rmsprop", {}, {}),
    ("rmsprop", {"alpha": 0.5, "eps": 1e-4}, {"weight_decay": 0.1}),
    ("torch.optim:NAdam", {"momentum_decay": 0.01}, {"weight_decay": 0.1}),
    ("torch.optim:Adagrad", {}, {}),
]


def settings_of(optimizer, options, train):
    return {"lr": 0.02, "batch_size": 3, "epochs": 3, "optimizer": optimizer, "optimizer_options": options, **train}


@pytest.mark.parametrize(("optimizer", "options", "train"), CASES)
def test_a_hop_is_the_pass_of_torch_optim(toy, linear, optimizer, options, train):
    hop, layout = Hop(1, 0, 0, 1), FlatLayout.of(linear)
    settings = TrainSettings(**settings_of(optimizer, options, train))
    job = TrainingJob(linear, layout, toy, settings, (), seed=7)
    received = layout.flatten(linear)
    out = torch.empty_like(received)
    trainer = EagerTrainer(job, FlatModule(linear, layout))
    trainer.train_hops([hop], [HopContext(received, received)], [out])

    module = copy.deepcopy(linear)
    theirs = THEIRS[optimizer](module.parameters(), lr=0.02, **({"weight_decay": 0.0} | options | train))
    x, y = toy.train_samples(1)
    rng = generator(7, "batches", 1, 0, 0, 1)
    for _ in range(3):
        order = torch.from_numpy(rng.permutation(len(y)))
        for batch in order.split(3):
            theirs.zero_grad()
            F.cross_entropy(module(x[batch]), y[batch]).backward()
            theirs.step()
    torch.testing.assert_close(out, layout.flatten(module), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("optimizer", "options", "train"), [case for case in CASES if ":" not in case[0]])
def test_unequal_lanes_get_what_they_would_get_alone(toy, optimizer, options, train):
    assert_alike(both(toy, range(6), clip=0.5, **settings_of(optimizer, options, train)))


def test_many_small_steps_do_not_drift_from_torch_optim():
    """The share of the newest value in a running mean must stay exact while βᵗ is still close to 1."""
    rng = torch.Generator().manual_seed(1)
    train = TrainSettings(optimizer="adam", lr=0.01)
    ours = torch.zeros(50)
    theirs = torch.nn.Parameter(torch.zeros(50, dtype=torch.float64))
    run, reference = build_optimizer(train).start_hop(train, 0.01, ours), torch.optim.Adam([theirs], lr=0.01)
    for _ in range(2000):
        gradient = torch.randn(50, generator=rng)
        theirs.grad = gradient.double()
        reference.step()
        run.step(ours, gradient)
    torch.testing.assert_close(ours.double(), theirs.detach(), rtol=1e-5, atol=1e-5)
    assert float(run.state["steps"]) == 2000


def test_the_names_of_settings_are_those_of_optimisers():
    assert [TrainSettings(optimizer=name).optimizer for name in OPTIMIZERS] == list(OPTIMIZERS)


def test_only_built_in_optimisers_train_batched_models(toy, linear):
    for name, lanes in (("adam", 8), ("torch.optim:Adam", 1)):
        job = TrainingJob(linear, FlatLayout.of(linear), toy, TrainSettings(optimizer=name), (), seed=7, lanes=8)
        assert batched_model_for(job)[1] == lanes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"optimizer": "adm"},
            r"train.optimizer: must be sgd, adam, adamw, rmsprop, or MODULE:CLASS such as torch.optim:NAdam "
            r"\(did you mean 'adam'\?\), got 'adm'",
        ),
        (
            {"optimizer": "adam", "momentum": 0.9},
            "train.momentum: has no effect with the optimizer 'adam'; only with sgd",
        ),
        (
            {"method": "scaffold", "optimizer": "adam"},
            "train.optimizer: control variates .* which 'adam' does not take",
        ),
        ({"method": "feddc", "optimizer": "adam"}, "train.optimizer: control variates .* which 'adam' does not take"),
        (
            {"method": "fednova", "optimizer": "adamw"},
            "train.optimizer: FedNova .* which 'adamw' does not take; use sgd",
        ),
    ],
)
def test_refusals_of_settings(settings, message):
    from fedrelay.experiment.method import build_method

    with pytest.raises(SpecError, match=f"^{message}"):
        build_method(experiment(settings.pop("method", "fedavg"), **settings))


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            {"optimizer": "adam", "optimizer_options": {"beta": 0.9}},
            r"train.optimizer_options.beta: unknown key 'beta' \(did you mean 'betas'\?\); allowed: betas, eps",
        ),
        ({"optimizer_options": {"nesterov": True}}, "train.optimizer_options.nesterov: .*; allowed: none"),
        ({"optimizer": "adam", "optimizer_options": {"eps": 0}}, "train.optimizer_options.eps: must be greater than 0"),
        (
            {"optimizer": "adam", "optimizer_options": {"lr": 1}},
            "train.optimizer_options.lr: is a setting of its own; use train.lr",
        ),
        (
            {"optimizer": "torch.optim:NAdam", "optimizer_options": {"decay": 1}},
            "train.optimizer_options.decay: unknown option 'decay'.*; allowed: betas, eps, momentum_decay",
        ),
        (
            {"optimizer": "torch.optim:NAdam", "optimizer_options": {"eps": -1}},
            "train.optimizer: torch.optim:NAdam cannot train all weights .* .ValueError: Invalid epsilon",
        ),
        ({"optimizer": "torch.optim:Adafactor"}, "train.optimizer: torch.optim:Adafactor is not elementwise"),
        ({"optimizer": "torch.optim:LBFGS"}, "train.optimizer: torch.optim:LBFGS cannot train all weights .*closure"),
        ({"optimizer": "torch.optim:Muon"}, "train.optimizer: torch.optim:Muon cannot train all weights .*2D"),
        ({"optimizer": "torch.optim:SparseAdam"}, "train.optimizer: torch.optim:SparseAdam cannot train all weights"),
        (
            {"optimizer": "torch.nn:Linear"},
            "train.optimizer: torch.nn:Linear: .* not a subclass of torch.optim.Optimizer",
        ),
        ({"optimizer": "torch.optim:Adm"}, "train.optimizer: torch.optim:Adm: torch.optim has no such class"),
        ({"optimizer": "no.such:Thing"}, "train.optimizer: cannot import no.such"),
        (
            {"optimizer": "torch.optim:Rprop", "weight_decay": 0.1},
            "train.weight_decay: torch.optim:Rprop has no weight decay; set train.weight_decay=0",
        ),
    ],
)
def test_refusals_of_optimisers(train, message):
    with pytest.raises(SpecError, match=f"^{message}") as refused:
        build_optimizer(TrainSettings(**train))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop",
                                  "ASGD", "Rprop"])  # fmt: skip
def test_elementwise_classes_are_accepted(name):
    assert not build_optimizer(TrainSettings(optimizer=f"torch.optim:{name}")).batchable
