"""A hop that is interrupted after any step and goes on elsewhere ends with the same bits."""

from __future__ import annotations

import io

import pytest
import torch
from torch import nn

from fedrelay.data.open_federation import open_federation
from fedrelay.experiment.spec import DataSettings, TrainSettings
from fedrelay.local.hop_context import HopContext
from fedrelay.local.hop_runner import HopInstructions, HopRunner
from fedrelay.local.optimizers.state_terms import optimizer_state_terms
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.sharpness import Sharpness
from fedrelay.local.terms.tensor_declarations import ClientState, Payload, ServerState
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.plan import Hop

HOP = HopInstructions(Hop(2, 0, 1, 1))


class Stop(BaseException):
    """The process dies."""


class Interruption:
    """Saves the hop after a step, and ends it."""

    def __init__(self, step):
        self.step, self.saved, self.seen = step, None, []

    def start(self):
        return None

    def after_step(self, progress, take_snapshot):
        self.seen.append(progress)
        if progress.step == self.step:
            content = io.BytesIO()
            torch.save(take_snapshot(), content)
            self.saved = content.getvalue()
            raise Stop


class Continuation(Interruption):
    """Goes on from what was saved."""

    def __init__(self, saved):
        super().__init__(-1)
        self.start = lambda: torch.load(io.BytesIO(saved), weights_only=True)


class Noisy(nn.Sequential):
    """A network with everything that changes from step to step: dropout, BatchNorm, a buffer that is not saved."""

    def __init__(self):
        layers = [nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.3), nn.Linear(12, 10)]
        super().__init__(nn.Flatten(), *layers)
        self.register_buffer("calls", torch.zeros(1), persistent=False)

    def forward(self, x):
        if self.training:
            self.calls += 1
        return super().forward(x) * (1 + 0.01 * self.calls)


CASES = {
    "momentum": ({"momentum": 0.9}, ()),
    "adam": ({"optimizer": "adam", "lr": 0.01}, ()),
    "an optimizer of PyTorch": ({"optimizer": "torch.optim:NAdam", "lr": 0.01}, ()),
    "the state of the optimizer is kept": ({"optimizer": "adam", "lr": 0.01, "optimizer_state": "client"}, ()),
    "SCAFFOLD": ({}, (ControlVariates(),)),
    "FedSAM with the last gradient": ({}, (Sharpness(uphill="last"),)),
}


@pytest.fixture(scope="module")
def digits():
    return open_federation(DataSettings(name="digits", clients=12, alpha=0.5), 3)


def runner_and_context(digits, settings, terms):
    train = TrainSettings(**{"batch_size": 16, "lr": 0.05, "epochs": 3, **settings})
    torch.manual_seed(0)
    module = Noisy()
    job = TrainingJob(module, FlatLayout.of(module), digits, train, (*terms, *optimizer_state_terms(train)), seed=4)
    start = job.layout.flatten(module)

    def tensors(kind):
        return {name: torch.full((size,), 0.01) for name, size in job.tensor_sizes(kind).items()}

    state = tensors(ClientState)
    new = {name: torch.zeros_like(each) for name, each in state.items()}
    return HopRunner(job), HopContext(start, start, tensors(ServerState), state, new, tensors(Payload))


def run(digits, settings, terms, watcher):
    runner, context = runner_and_context(digits, settings, terms)
    out = torch.empty_like(context.received)
    [report] = runner.run([HOP], [context], [out], watcher=watcher)
    return out, report, context.new_client_state, context.payload


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("part", [0.1, 0.5, 1.0])
def test_the_bits_are_the_same_wherever_it_stopped(case, part, digits):
    settings, terms = CASES[case]
    whole = run(digits, settings, terms, watched := Interruption(-1))
    last = watched.seen[-1]
    assert last.step == last.steps == len(watched.seen)
    interrupted = Interruption(max(1, round(part * last.steps)))
    with pytest.raises(Stop):
        run(digits, settings, terms, interrupted)
    torch.manual_seed(99)  # the generator of another process
    rest = run(digits, settings, terms, watched := Continuation(interrupted.saved))
    assert len(watched.seen) == last.steps - interrupted.step  # nothing is trained twice
    assert torch.equal(rest[0], whole[0])
    assert rest[1] == whole[1]
    for one, other in zip(rest[2:], whole[2:], strict=True):
        assert one.keys() == other.keys()
        assert all(torch.equal(one[name], other[name]) for name in other)


def test_watching_changes_nothing(digits):
    watched = run(digits, {}, (), Interruption(-1))
    assert torch.equal(watched[0], run(digits, {}, (), None)[0])


def test_progress_in_words(digits):
    run(digits, {"epochs": 2}, (), watched := Interruption(-1))
    per_epoch = watched.seen[0].steps_per_epoch
    assert str(watched.seen[0]) == f"epoch 1 of 2, step 1 of {2 * per_epoch}"
    assert str(watched.seen[-1]) == f"epoch 2 of 2, step {2 * per_epoch} of {2 * per_epoch}"
    assert [each.step for each in watched.seen if each.ends_epoch] == [per_epoch, 2 * per_epoch]
