"""Clipping and noise, by hand; the same on stacks and alone; and what cannot be guarded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.conftest import make_federation
from tests.local.terms.conftest import run_hop
from torch import nn

import fedrelay as fr
from fedrelay.experiment.method import build_method
from fedrelay.experiment.spec import Experiment, TrainSettings, validate
from fedrelay.local.batched_trainer import BatchedTrainer, batched_model_for
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.blend_with_received import BlendWithReceived
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.local.trainer import EagerTrainer, TrainingJob, hop_noise
from fedrelay.models.flat_layout import FlatLayout, FlatModule
from fedrelay.rng import generator
from fedrelay.routes.plan import Hop


def test_changes_are_clipped_each_for_itself():
    received = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    theta = torch.tensor([[4.0, 5.0], [0.3, 0.4]])
    ClientLevelPrivacy(clip=2.5, noise=0).adjust_sent_model(theta, HopContext(received, received), noise=None)
    torch.testing.assert_close(theta, torch.tensor([[2.5, 3.0], [0.3, 0.4]]))


def test_noise_has_the_promised_size(linear):
    federation = make_federation([8] * 4)
    job = TrainingJob(linear, FlatLayout.of(linear), federation, TrainSettings(), (), 7)
    models = torch.zeros(3, 100_000)
    hops = [Hop(1, route, 0, 2) for route in range(3)]
    theta = models.clone()
    ClientLevelPrivacy(clip=2, noise=1.5).adjust_sent_model(
        theta, HopContext(models, models), lambda purpose: hop_noise(job, hops, models, purpose)
    )
    assert theta.std(dim=1).tolist() == pytest.approx([3.0] * 3, rel=0.01)
    assert theta.mean(dim=1).abs().max() < 0.05
    assert np.abs(np.corrcoef(theta.numpy()) - np.eye(3)).max() < 0.02
    expected = generator(7, "dp", 1, 2, 0, 2).standard_normal(100_000, np.float32)
    assert torch.equal(theta[2], torch.from_numpy(expected) * 3)


def test_secret_noise_is_fresh_normal_and_never_from_the_seed(linear, toy):
    job = TrainingJob(linear, FlatLayout.of(linear), toy, TrainSettings(), (), 7, secret_noise=True)
    hops, models = [Hop(1, 0, 0, 1), Hop(1, 0, 0, 1)], torch.zeros(2, 50_001, dtype=torch.float64)
    draws = torch.cat([hop_noise(job, hops, models, "dp") for _ in range(2)])
    repeatable = hop_noise(replace(job, secret_noise=False), hops, models, "dp")[:1]
    correlations = np.corrcoef(torch.cat([draws, repeatable]).numpy())
    assert np.abs(correlations - np.eye(5)).max() < 0.02
    assert draws.std(dim=1).tolist() == pytest.approx([1.0] * 4, rel=0.02)
    assert draws.mean(dim=1).abs().max() < 0.02
    assert float((draws.abs() < 0.67449).double().mean()) == pytest.approx(0.5, abs=0.01)  # the quartiles
    assert hop_noise(job, hops[:1], torch.zeros(7), "dp").dtype == torch.float32


def test_a_hop_by_hand(linear, toy):
    received = FlatLayout.of(linear).flatten(linear)
    plain, _ = run_hop(linear, toy, received=received, lr=0.5)
    guarded, _ = run_hop(linear, toy, (ClientLevelPrivacy(clip=0.25, noise=0.5),), received=received, lr=0.5)
    change = plain - received
    assert change.norm() > 0.25
    noise = torch.from_numpy(generator(7, "dp", 1, 0, 0, 1).standard_normal(len(received), np.float32))
    torch.testing.assert_close(guarded, received + change * (0.25 / change.norm()) + 0.125 * noise)


def test_what_others_see_comes_after_the_noise(linear, toy):
    """The regulator's fold travels with the model, so it must hold the guarded model."""
    received = FlatLayout.of(linear).flatten(linear)
    guarded, context = run_hop(
        linear, toy, (BlendWithReceived(alpha=0), ClientLevelPrivacy(clip=0.1, noise=3.0)), received=received, lr=0.5
    )
    torch.testing.assert_close(context.payload["sum"], guarded)
    swapped, _ = run_hop(
        linear, toy, (ClientLevelPrivacy(clip=0.1, noise=3.0), BlendWithReceived(alpha=0)), received=received, lr=0.5
    )
    assert torch.equal(swapped, guarded)  # whatever the order of the terms


def test_stacked_and_alone(linear):
    federation = make_federation([8, 5, 8, 3])
    layout, terms = FlatLayout.of(linear), (ClientLevelPrivacy(clip=0.5, noise=0.1),)
    job = TrainingJob(linear, layout, federation, TrainSettings(lr=0.3, batch_size=4), terms, 7, lanes=4)
    hops = [Hop(2, route, 0, route) for route in range(4)]
    start = layout.flatten(linear)
    contexts = [HopContext(start, start)] * 4
    alone, together = ([torch.empty_like(start) for _ in hops] for _ in range(2))
    EagerTrainer(job, FlatModule(linear, layout)).train_hops(hops, contexts, alone)
    BatchedTrainer(job, *batched_model_for(job)).train_hops(hops, contexts, together)
    torch.testing.assert_close(torch.stack(together), torch.stack(alone), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("method", ["fedavg+dp", "fedseq+dp", "spfl+dp+feddyn", "fedseqinter+dp", "wfsl+dp", "moon+dp"])
def test_the_same_for_any_number_of_workers_and_after_an_interruption(method, small, tmp_path):
    settings = {**small, "checkpoint": {"seconds": 0}, "terms": {"dp": {"noise": 0.1}}}
    if "wfsl" in method:
        settings["warmup"] = {"cycles": 2}
    whole = fr.run(method, **settings | {"workers": 2})

    class Die:
        def on_run_start(self, experiment, round):
            pass

        def on_profiling_progress(self, done, clients):
            pass

        def on_round_end(self, context):
            if context.round == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fr.run(method, **settings, out=tmp_path / "run", callbacks=Die())
    resumed = fr.resume(tmp_path / "run")
    assert torch.equal(resumed.weights, whole.weights)
    assert resumed.history == whole.history
    assert resumed.privacy == whole.privacy
    assert whole.privacy["epsilon_max"] == whole.history[-1]["epsilon"] > whole.history[0]["epsilon"]


def test_hops_of_a_warm_up_count_and_are_guarded(small):
    plain, guarded = (
        fr.run("wfsl+dp", **small, warmup={"cycles": 3}, terms={"dp": {"noise": noise, "clip": 0.01}})
        for noise in (0, 1)
    )
    assert not torch.equal(plain.weights, guarded.weights)
    assert guarded.privacy["hops_max"] == 3  # every client once in every cycle
    assert plain.summary()["privacy"]["epsilon_max"] is None


def test_clients_without_budget_are_passed_over(small):
    settings = {**small, "fraction": 1.0, "rounds": 6, "workers": 1}
    free = fr.run("fedseq+dp", **settings)
    term = ClientLevelPrivacy(epsilon=ClientLevelPrivacy().accountant.epsilon(2) + 0.01)
    assert term.max_hops == 2
    bound = fr.run("fedseq+dp", **settings, terms={"dp": {"epsilon": term.epsilon}})
    assert free.privacy["hops_max"] == 6
    assert bound.privacy["hops_max"] == 2
    assert bound.privacy["epsilon_max"] <= term.epsilon
    assert bound.client_updates == 2 * 20
    assert [row["accuracy"] for row in bound.history][1:] == [bound.history[1]["accuracy"]] * 5  # no client is left
    assert fr.plan("fedseq+dp", 3, **settings, terms={"dp": {"epsilon": term.epsilon}}).routes == ()
    assert fr.plan("fedseq+dp", 2, **settings, terms={"dp": {"epsilon": term.epsilon}}).client_updates == 20


def test_a_budget_without_room_for_one_hop_is_refused(small):
    said = r"epsilon: a single hop costs [\d.]+, more than the budget of 0\.1"
    with pytest.raises(fr.SpecError, match=said):
        fr.run("fedseq+dp", **small, terms={"dp": {"epsilon": 0.1}})


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.last = nn.BatchNorm2d(1), nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.norm(x).flatten(1))


def test_models_with_statistics_are_refused(small):
    with pytest.raises(fr.SpecError, match=r"the model's buffer 'norm\.running_mean' would leave clients"):
        fr.run("fedavg+dp", **small, model=Normed())


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("scaffold+dp", {}, "'dp' cannot protect what the term 'control' sends beside the model"),
        ("ewc+dp", {}, "what the term 'fisher' sends"),
        ("shared-raw+dp", {}, "cannot protect samples that clients share"),
        ("centralized+dp", {}, "no clients for 'dp' to protect"),
        ("dp", {"noise": 0, "epsilon": 3}, "a budget needs noise; set noise above 0 or leave out epsilon"),
        ("dp", {"noise": 1e-9}, r"terms\.dp\.noise: must be 0 or at least 0\.001, got 1e-09"),
        ("dp", {"clip": 0}, r"terms\.dp\.clip: must be greater than 0"),
        ("dp", {"sigma": 1}, r"terms\.dp\.sigma: unknown key"),
    ],
)
def test_what_cannot_be(method, options, message):
    with pytest.raises(fr.SpecError, match=message):
        build_method(validate(Experiment, {"method": method, "terms": {"dp": options}}))


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        ({"faults": [{"what": "gone", "rate": 0.1}]}, "the privacy budget does not count repeated rounds"),
        ({"guard": {"on_divergence": "skip"}}, "the privacy budget does not count repeated rounds"),
        ({"recovery": {"deadline": 3.0}}, "the privacy budget does not count repeated rounds"),
        (
            {"faults": [{"what": "gone"}], "recovery": {"policy": "backup", "repeats": 0}},
            "does not count hops caused by 'backup'",
        ),
    ],
)
def test_noise_is_never_used_twice(trouble, message):
    with pytest.raises(fr.SpecError, match=message):
        build_method(validate(Experiment, {"method": "dp", **trouble}))
    assert build_method(validate(Experiment, {"method": "dp", **trouble, "recovery": {"repeats": 0}}))


def test_models_mixed_by_clients_samples_are_refused():
    with pytest.raises(fr.SpecError, match=r"route\.weights: 'accuracy' reveals how models do on a client's samples"):
        build_method(validate(Experiment, {"method": "fedstar+dp", "route": {"weights": "accuracy"}}))
    assert build_method(validate(Experiment, {"method": "fedstar+dp"}))


def test_profiles_are_warned_of(small, caplog):
    fr.plan("fedseq+dp", **small)
    assert "which epsilon of terms.dp does not cover" not in caplog.text
    fr.plan("fedgsp+dp", **small)
    assert "clients send profiles or class counts, which epsilon of terms.dp does not cover" in caplog.text


def test_frozen_parameters_get_no_noise_and_do_not_leave(toy):
    net = nn.Sequential(nn.Linear(4, 5).requires_grad_(False), nn.Linear(5, 3))
    result = fr.run("fedavg+dp", data=toy, model=net, rounds=1, terms={"dp": {"clip": 0.1, "noise": 5.0}}, workers=1)
    assert len(result.weights) == 18
    assert torch.equal(result.model["0.weight"], net[0].weight)
    assert not torch.equal(result.model["1.weight"], net[1].weight)
