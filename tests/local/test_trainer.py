"""The training pass against plain PyTorch, and its edge rules."""

from __future__ import annotations

import copy
from math import isfinite

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.local.trainer import EagerTrainer, TrainingJob
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.rng import generator
from fedrelay.routes.plan import Hop

HOP = Hop(2, 1, 3, 1)  # client 1 holds nine samples


def eager(job):
    return EagerTrainer(job, FlatModule(job.module, job.layout, precision=job.train.precision))


def run_hop(module, federation, hop=HOP, *, terms=(), received=None, round_model=None, **train):
    layout = FlatLayout.of(module)
    trainer = eager(TrainingJob(module, layout, federation, TrainSettings(**train), terms, seed=7))
    received = layout.flatten(module) if received is None else received
    out = torch.empty_like(received)
    (report,) = trainer.train_hops(
        [hop], [HopContext(received, received if round_model is None else round_model)], [out]
    )
    return out, report


def plain_pytorch(module, federation, *, epochs=1, batch_size=4, clip=None, bf16=False, **optimiser):
    """The same pass with nothing of ours but the order of the samples."""
    module = copy.deepcopy(module).train()
    x, y = federation.train_samples(HOP.client)
    rng = generator(7, "batches", HOP.round, HOP.route, HOP.index, HOP.client)
    sgd = torch.optim.SGD(module.parameters(), **optimiser)
    for _ in range(epochs):
        order = torch.from_numpy(rng.permutation(len(y)))
        for begin in range(0, len(y), batch_size):
            batch = order[begin : begin + batch_size]
            sgd.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = F.cross_entropy(module(x[batch]).float(), y[batch])
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(module.parameters(), clip)
            sgd.step()
    return FlatLayout.of(module).flatten(module)


@pytest.mark.parametrize(
    "settings",
    [
        {"lr": 0.1},
        {"lr": 0.1, "epochs": 3},
        {"lr": 0.1, "momentum": 0.9, "epochs": 2},
        {"lr": 0.1, "weight_decay": 0.01, "momentum": 0.5},
        {"lr": 0.1, "clip": 0.2},
    ],
)
def test_the_pass_is_plain_sgd(toy, linear, settings):
    out, report = run_hop(linear, toy, batch_size=4, **settings)
    expected = plain_pytorch(linear, toy, batch_size=4, **settings)
    torch.testing.assert_close(out, expected, rtol=1e-6, atol=1e-7)
    epochs = settings.get("epochs", 1)
    assert (report.samples, report.steps, report.max_abs_weight) == (9, 3 * epochs, float(out.abs().max()))


def test_bf16_is_plain_autocast_with_float32_weights(toy, linear):
    out, report = run_hop(linear, toy, batch_size=4, lr=0.1, epochs=2, precision="bf16")
    assert torch.equal(out, plain_pytorch(linear, toy, batch_size=4, lr=0.1, epochs=2, bf16=True))
    exact, exact_report = run_hop(linear, toy, batch_size=4, lr=0.1, epochs=2)
    assert not torch.equal(out, exact)
    torch.testing.assert_close(out, exact, rtol=0.02, atol=0.005)
    assert report.loss == pytest.approx(exact_report.loss, rel=0.01)


def test_steps_shrink_from_round_to_round(toy, linear):
    """Exactly: a run that is resumed in a later round gets the same bits."""
    for round, factor in ((0, 1), (1, 1), (2, 0.5), (4, 0.125)):
        hop = Hop(round, 1, 3, 1)
        shrunk, _ = run_hop(linear, toy, hop, batch_size=4, lr=0.1, schedule={"name": "step", "factor": 0.5})
        plain, _ = run_hop(linear, toy, hop, batch_size=4, lr=0.1 * factor)
        assert torch.equal(shrunk, plain)


def test_steps_shrink_along_a_chain(toy, linear):
    for index, factor in ((0, 1.0), (1, 0.75), (2, 0.5)):
        hop = Hop(1, 1, index, 1, route_length=3)
        shrunk, report = run_hop(linear, toy, hop, lr=0.1, chain_schedule={"name": "linear", "end": 0.5})
        plain, _ = run_hop(linear, toy, hop, lr=0.1 * factor)
        assert torch.equal(shrunk, plain)
        assert report.lr == 0.1 * factor


def test_one_full_batch_is_one_gradient_step(toy, linear):
    x, y = toy.train_samples(1)
    module = copy.deepcopy(linear)
    loss = F.cross_entropy(module(x), y)
    loss.backward()
    out, report = run_hop(linear, toy, batch_size=100, lr=0.5)
    step = torch.cat([(p - 0.5 * p.grad).detach().flatten() for p in module.parameters()])
    torch.testing.assert_close(out, step)
    assert report.loss == pytest.approx(loss.item(), rel=1e-6)


def test_a_hop_depends_on_its_key_and_leaves_its_inputs_alone(toy, linear):
    layout = FlatLayout.of(linear)
    received = layout.flatten(linear)
    before = received.clone()
    one, _ = run_hop(linear, toy, received=received, batch_size=2)
    again, _ = run_hop(linear, toy, received=received, batch_size=2)
    other, _ = run_hop(linear, toy, Hop(3, 1, 3, 1), received=received, batch_size=2)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(received, before)
    assert torch.equal(layout.flatten(linear), before)


def test_dropout_is_keyed_too(toy):
    module = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.Linear(16, 3))
    torch.manual_seed(1)
    one, _ = run_hop(module, toy)
    torch.manual_seed(2)
    again, _ = run_hop(module, toy)
    assert torch.equal(one, again)


class BatchSizes(nn.Module):
    """Notes the batches it sees."""

    def __init__(self, *layers):
        super().__init__()
        self.net = nn.Sequential(*layers)
        self.seen = []

    def forward(self, x):
        self.seen.append((len(x), self.net[0].training))
        return self.net(x)


@pytest.mark.parametrize(
    ("client", "batch_size", "expected"),
    [
        (1, 4, [(4, True), (4, True)]),  # nine samples: the ninth is dropped
        (2, 4, [(3, True)]),  # three samples: the only batch is kept
        (2, 1, [(1, False)] * 3),  # lone samples meet frozen statistics
    ],
)
def test_batchnorm_models_drop_a_short_last_batch(toy, client, batch_size, expected):
    module = BatchSizes(nn.BatchNorm1d(4), nn.Linear(4, 3))
    trainer = eager(TrainingJob(module, FlatLayout.of(module), toy, TrainSettings(batch_size=batch_size), (), seed=7))
    received = FlatLayout.of(module).flatten(module)
    out = torch.empty_like(received)
    trainer.train_hops([Hop(1, 0, 0, client)], [HopContext(received, received)], [out])
    assert trainer.flat_module.module.seen == expected
    assert out[-1].item() == sum(training for _, training in expected)  # batches tracked
    assert all(norm.training for norm in trainer.norms)


def test_other_models_keep_it(toy):
    module = BatchSizes(nn.Linear(4, 3))
    trainer = eager(TrainingJob(module, FlatLayout.of(module), toy, TrainSettings(batch_size=4), (), seed=7))
    received = FlatLayout.of(module).flatten(module)
    trainer.train_hops([HOP], [HopContext(received, received)], [torch.empty_like(received)])
    assert [size for size, _ in trainer.flat_module.module.seen] == [4, 4, 1]


def test_divergence_is_reported(toy, linear):
    _, report = run_hop(linear, toy, lr=1e38, epochs=5, batch_size=1)
    assert not isfinite(report.max_abs_weight)


class TestProx:
    def test_without_strength_nothing_changes(self, toy, linear):
        plain, _ = run_hop(linear, toy, batch_size=2)
        prox, _ = run_hop(linear, toy, batch_size=2, terms=(ProximalPenalty(mu=0),))
        assert torch.equal(plain, prox)

    def test_the_first_step_is_that_of_plain_sgd(self, toy, linear):
        plain, _ = run_hop(linear, toy, batch_size=100)
        prox, _ = run_hop(linear, toy, batch_size=100, terms=(ProximalPenalty(mu=3.0),))
        assert torch.equal(plain, prox)

    def test_a_strong_pull_holds_the_model_in_place(self, toy, linear):
        layout = FlatLayout.of(linear)
        out, _ = run_hop(linear, toy, batch_size=1, epochs=20, lr=1e-4, terms=(ProximalPenalty(mu=5e3),))
        free, _ = run_hop(linear, toy, batch_size=1, epochs=20, lr=1e-4)
        start = layout.flatten(linear)
        assert (out - start).norm() < 0.1 * (free - start).norm()

    def test_the_anchor_is_the_received_model_or_the_rounds(self, toy, linear):
        received = FlatLayout.of(linear).flatten(linear)
        shifted = received + 1.0
        from_recv, _ = run_hop(
            linear,
            toy,
            received=received,
            round_model=shifted,
            batch_size=100,
            lr=0.1,
            terms=(ProximalPenalty(mu=2.0),),
        )
        from_round, _ = run_hop(
            linear,
            toy,
            received=received,
            round_model=shifted,
            batch_size=100,
            lr=0.1,
            terms=(ProximalPenalty(mu=2.0, anchor="round"),),
        )
        # One step: the pull towards the round's model adds η·μ·1 to every weight.
        torch.testing.assert_close(from_round - from_recv, torch.full_like(received, 0.2))
