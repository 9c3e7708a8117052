"""Own terms must treat models that are trained together as if each were alone."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

import fedrelay as fr
from fedrelay.experiment.method_catalogue import METHODS, MethodEntry
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.batched_trainer import batched_model_for
from fedrelay.local.term_lane_check import HOOKS, check_terms_in_lanes
from fedrelay.local.terms.base import overriding
from fedrelay.local.terms.glam import Glam
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout

MIXES = "gives other results for models that are trained together than for each alone; work on the last axis"


class Normed(fr.Term):
    """Every hook divides by a norm: of each model, or wrongly of all models together."""

    tensors: ClassVar = (fr.ClientState("kept"), fr.ServerState("told"), fr.Payload("sum"))
    wrong: str = ""
    strength: float = 1e-4

    def unit(self, tensor, hook):
        norm = tensor.norm() if self.wrong == hook else tensor.norm(dim=-1, keepdim=True)
        return self.strength * tensor / norm

    def move_before_gradient(self, theta, gradient):
        theta.add_(self.unit(gradient, "move_before_gradient"))

    def add_gradient(self, gradient, theta, context):
        gradient.add_(self.unit(theta, "add_gradient"))

    def adjust_trained_model(self, theta, context):
        theta.sub_(self.unit(context.server_state["told"], "adjust_trained_model"))

    def adjust_sent_model(self, theta, context, noise):
        theta.add_(self.unit(noise("normed"), "adjust_sent_model"))

    def write_state_and_payload(self, context, outcome):
        context.new_client_state["kept"].add_(self.unit(outcome.trained, "write_state_and_payload") / outcome.steps)
        context.payload["sum"].add_(context.relative_size * outcome.sent)


class Faulty(fr.Term):
    fault: str = ""

    def add_gradient(self, gradient, theta, context):
        match self.fault:
            case "draws":
                gradient.add_(torch.randn_like(theta))
            case "flat":
                gradient.add_(torch.outer(theta, theta)[0])
            case "always":
                gradient.add_(torch.ones(3))


def job_of(toy, linear, term, lanes=8):
    return TrainingJob(linear, FlatLayout.of(linear), toy, TrainSettings(batch_size=2), (term,), 3, lanes)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_mixes_models_is_refused(toy, linear, hook):
    assert overriding([Normed()], hook)
    check_terms_in_lanes(job_of(toy, linear, Normed()))
    with pytest.raises(fr.SpecError) as refused:
        check_terms_in_lanes(job_of(toy, linear, Normed(wrong=hook)))
    assert str(refused.value).startswith(f"term 'Normed', {hook}: {MIXES} (dim=-1, keepdim=True), or set batchable")


def test_a_hook_that_fails_for_batched_models_alone_is_refused(toy, linear):
    message = r"term 'Faulty', add_gradient: fails for models that are trained together, \[lanes, size\]: RuntimeError"
    with pytest.raises(fr.SpecError, match=message):
        check_terms_in_lanes(job_of(toy, linear, Faulty(fault="flat")))


def test_a_hook_that_draws_random_numbers_is_refused(toy, linear):
    with pytest.raises(fr.SpecError, match="term 'Faulty', add_gradient: draws from torch's random generator"):
        check_terms_in_lanes(job_of(toy, linear, Faulty(fault="draws")))


class Squared(fr.LossTerm):
    """A loss that is right for one model, and for several ones or not."""

    batchable: ClassVar[bool] = True
    fault: str = ""

    def loss(self, batch, context):
        difference = batch.rows(batch.outputs.logits) - batch.rows(batch.outputs_of_model(context.received).logits)
        if self.fault == "mixes":
            return difference.square().sum(-1).mean() + 0 * batch.mean(difference[..., 0])
        return batch.mean(difference.square().sum(-1))


class SquaredAlone(Squared):
    def loss(self, batch, context):
        return batch.outputs.logits.square().mean()


def test_a_loss_is_tried_too(toy, linear):
    check_terms_in_lanes(job_of(toy, linear, Squared()))
    with pytest.raises(fr.SpecError, match=f"term 'Squared', loss: {MIXES}"):
        check_terms_in_lanes(job_of(toy, linear, Squared(fault="mixes")))


def test_another_loss_is_for_one_model_unless_it_says_otherwise(toy, linear):
    assert Squared.batchable
    assert not SquaredAlone.batchable
    assert not type("OwnGlam", (Glam,), {"loss": SquaredAlone.loss}).batchable
    assert batched_model_for(job_of(toy, linear, SquaredAlone()))[0] is None


@pytest.mark.parametrize("fault", ["draws", "flat"])
def test_models_that_are_trained_one_by_one_need_no_check(toy, linear, fault):
    check_terms_in_lanes(job_of(toy, linear, Faulty(fault=fault), lanes=1))


def test_what_fails_with_one_model_too_is_left_to_the_run(toy, linear):
    check_terms_in_lanes(job_of(toy, linear, Faulty(fault="always")))


def test_a_run_is_refused_before_it_starts_and_the_users_generator_stays_as_it_is(monkeypatch, tmp_path):
    monkeypatch.setitem(METHODS, "normed", MethodEntry("", terms={"normed": Normed}))
    before = torch.get_rng_state()
    with pytest.raises(fr.SpecError, match=MIXES):
        fr.run("normed", clients=4, rounds=1, out=tmp_path / "run", terms={"normed": {"wrong": "add_gradient"}})
    assert not (tmp_path / "run").exists()
    assert torch.equal(torch.get_rng_state(), before)


class Noisy(fr.Term):
    """Draws in a way that the trial, which computes in float64, does not see."""

    def add_gradient(self, gradient, theta, context):
        if theta.dtype == torch.float32:
            gradient.add_(torch.randn_like(theta), alpha=0.1)


class NoisyAlone(Noisy):
    batchable: ClassVar[bool] = False

    def adjust_received_model(self, model, context):
        model.flat.add_(torch.randn_like(model.flat), alpha=0.1)


class NoisyMerge(fr.Merge):
    def apply(self, inputs):
        return fr.MergeResult(inputs.arrivals[0].weights + 0.1 * torch.randn(len(inputs.global_model)))


@pytest.mark.parametrize("method", ["noisy", "noisy-alone", "noisy-merge"])
def test_random_numbers_of_torch_do_not_depend_on_workers_nor_on_the_users_generator(monkeypatch, method):
    monkeypatch.setitem(METHODS, "noisy", MethodEntry("", terms={"noisy": Noisy}))
    monkeypatch.setitem(METHODS, "noisy-alone", MethodEntry("", terms={"noisy": NoisyAlone}))
    monkeypatch.setitem(METHODS, "noisy-merge", MethodEntry("", merge=NoisyMerge))
    found = set()
    for workers in (1, 2, 3):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(workers)
            settings = {"clients": 12, "rounds": 2, "fraction": 1.0, "lanes": 3, "workers": workers}
            found.add(fr.run(method, **settings).weights_sha256)
    assert len(found) == 1
