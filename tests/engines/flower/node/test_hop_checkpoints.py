"""A node that is killed while it trains goes on where it was, and nothing is charged or answered twice."""

from __future__ import annotations

import stat
from functools import partial

import numpy as np
import pytest
import torch

from fedrelay.engines.flower.node.hop_checkpoints import UNFINISHED, CheckpointRule
from fedrelay.engines.flower.node.owner_privacy_policy import OwnerPrivacyPolicy, PrivacyBudget
from fedrelay.errors import SpecError
from fedrelay.local.hop_watcher import HopProgress
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.local.terms.control_variates import ControlVariates

EVERY_EPOCH = CheckpointRule.parse("1epoch")


class Killed(BaseException):
    """Like kill -9: nothing that the node would do with an exception is done."""


@pytest.fixture
def start(make_service):
    """Starts the node: `dies_at` is the step after which it is killed."""

    def started(dies_at=None, rule=EVERY_EPOCH, **options):
        said, steps = [], []

        def on_step(progress):
            steps.append(progress.step)
            if progress.step == dies_at:
                raise Killed

        service = make_service(checkpoints=rule, say=said.append, on_step=on_step, **options)
        service.said, service.steps = said, steps
        return service

    return started


@pytest.fixture
def long_hop(ask):
    """A request for a hop of five epochs with two steps each."""
    return partial(ask.hop, ask.job(hidden=(5,), epochs=5), {"recv": torch.zeros(ask.job(hidden=(5,)).layout.size)})


def unfinished(service, ask):
    return service.state_files.folder / ask.run / UNFINISHED


def kill(service, request, budget=None):
    with pytest.raises(Killed):
        service.answer(request)


def test_epochs_that_are_done_are_not_trained_again(start, long_hop, ask):
    whole = start(rule=CheckpointRule.parse("off")).answer(long_hop())
    kill(dead := start(dies_at=7), long_hop(nonce="first"))
    assert stat.S_IMODE(unfinished(dead, ask).stat().st_mode) == 0o600
    service = start()
    reply = service.answer(long_hop(nonce="second", request=200))
    assert service.said[0] == "round 1, route 0, hop 0: goes on after step 6, where it was interrupted"
    assert service.steps == [7, 8, 9, 10]
    assert np.array_equal(reply.arrays["models"], whole.arrays["models"])
    assert (reply.header["steps"], reply.header["loss"]) == (10, whole.header["loss"])
    assert unfinished(service, ask).exists()  # the reply has not left yet
    service.replied()
    assert not unfinished(service, ask).exists()


def test_a_long_reply_that_did_not_arrive_is_sent_again(start, long_hop, ask):
    """After a lost connection, and after a resume: the work of hours is not done twice."""
    first = start().answer(long_hop())
    service = start()
    again = service.answer(long_hop(nonce="other", request=300))
    assert service.steps == []
    assert np.array_equal(again.arrays["models"], first.arrays["models"])
    assert again.header["request"] == 300
    service.answer(long_hop(hop=[2, 0, 0, 5, 0, 1]))
    assert len(list((service.state_files.folder / ask.run).glob("answer-*"))) == 1  # they are as large as a model


@pytest.mark.parametrize(
    "other", [{"hop": [2, 0, 0, 5, 0, 1]}, {"hop": [1, 0, 0, 5, 1, 1]}, {"typical_norm": 1.0}, {"merges": 1}]
)
def test_a_checkpoint_of_another_request_is_dropped_and_said(other, start, long_hop, ask):
    kill(start(dies_at=7), long_hop())
    service = start(rule=CheckpointRule.parse("off"))
    service.answer(long_hop(**other))
    assert service.steps == list(range(1, 11))
    assert "an unfinished hop (round 1, route 0, hop 0) does not fit this request; it is dropped" in service.said[0]
    assert not unfinished(service, ask).exists()


def test_a_checkpoint_of_other_samples_or_another_device_is_dropped(start, long_hop, ask, monkeypatch):
    kill(start(dies_at=7), long_hop())
    service = start(validation=0.3)
    service.answer(long_hop())
    assert service.steps[0] == 1
    assert "does not fit this request" in service.said[0]


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04 cut"])
def test_a_damaged_checkpoint_is_ignored(content, start, long_hop, ask, caplog):
    kill(dead := start(dies_at=7), long_hop())
    unfinished(dead, ask).write_bytes(content)
    service = start()
    service.answer(long_hop())
    assert service.steps == list(range(1, 11))
    assert "the hop begins anew" in caplog.text


def test_client_state_is_that_of_an_undisturbed_hop(start, ask):
    request = ask.hop(ask.job(ControlVariates(), epochs=3))
    whole = start(rule=CheckpointRule.parse("off"))
    reply = whole.answer(request)
    state = dict(whole.state_files.get(ask.run, 100, (), ()))
    kill(start(dies_at=3), request)
    service = start()
    again = service.answer(request)
    assert service.steps == [3, 4, 5, 6]
    assert np.array_equal(again.arrays["models"], reply.arrays["models"])
    found = service.state_files.get(ask.run, 100, (), ())
    assert all(torch.equal(found[name], state[name]) for name in state)


@pytest.mark.parametrize("dies_at", [1, 3])
def test_a_hop_with_noise_is_charged_once_and_answered_once(dies_at, start, ask, tmp_path):
    """Whether it is killed before the first checkpoint or after it."""
    pytest.importorskip("dp_accounting", reason="the extra 'dp' is not installed")
    policy = OwnerPrivacyPolicy(2.0)
    (tmp_path / "node").mkdir()

    def budget():
        return PrivacyBudget(tmp_path / "node", policy, 40.0, 1e-5)

    request = ask.hop(ask.job(ClientLevelPrivacy(noise=2), epochs=3))
    killed = start(dies_at=dies_at, policy=policy, budget=budget())
    killed.budget.settle = lambda: None  # a process that is killed does nothing more
    kill(killed, request)
    assert budget().spent == 1
    service = start(policy=policy, budget=budget())
    first = service.answer(request)
    assert budget().spent == 1
    again = start(policy=policy, budget=budget()).answer(request)
    assert np.array_equal(again.arrays["models"], first.arrays["models"])
    assert budget().spent == 1
    for path in service.state_files.folder.rglob("answer-*"):
        path.unlink()
    other = start(policy=policy, budget=budget()).answer(request)  # its reply is forgotten, so it costs again
    assert not np.array_equal(other.arrays["models"], first.arrays["models"])
    assert budget().spent == 2


def test_a_hop_that_fails_is_charged_again(start, ask, tmp_path):
    """An error is a reply, too, so asking again must not be free."""
    pytest.importorskip("dp_accounting", reason="the extra 'dp' is not installed")
    policy = OwnerPrivacyPolicy(2.0)
    (tmp_path / "node").mkdir()
    service = start(policy=policy, budget=PrivacyBudget(tmp_path / "node", policy, 40.0, 1e-5))

    def fail(progress):
        raise ValueError

    service.on_step = fail
    for spent in (1, 2):
        with pytest.raises(Exception, match="an error at this node"):
            service.answer(ask.hop(ask.job(ClientLevelPrivacy(noise=2))))
        assert service.budget.spent == spent


def test_rules_of_owners():
    assert CheckpointRule.parse("2epochs") == CheckpointRule(epochs=2)
    assert CheckpointRule.parse("10min") == CheckpointRule(seconds=600)
    assert CheckpointRule.parse("1 h") == CheckpointRule(seconds=3600)
    assert not CheckpointRule.parse("off").enabled
    for wrong in ("", "0epoch", "epoch", "10", "-1s", "1day"):
        with pytest.raises(SpecError, match="--checkpoint-every: expects 1epoch, 10min"):
            CheckpointRule.parse(wrong)


@pytest.mark.parametrize(
    ("rule", "step", "since", "took", "due"),
    [
        ("auto", 10, 29.0, 0.0, False),  # the end of an epoch, but the last checkpoint is recent
        ("auto", 10, 31.0, 0.0, True),
        ("auto", 10, 31.0, 2.0, False),  # writing it takes two seconds
        ("auto", 15, 31.0, 0.0, False),
        ("auto", 15, 601.0, 0.0, True),  # an epoch takes hours
        ("2epochs", 10, 9e9, 0.0, False),
        ("2epochs", 20, 0.0, 0.0, True),
        ("30s", 3, 30.0, 9.0, True),
        ("30s", 10, 29.0, 0.0, False),
        ("off", 20, 9e9, 0.0, False),
    ],
)
def test_when_a_hop_is_saved(rule, step, since, took, due):
    assert CheckpointRule.parse(rule).is_due(HopProgress(step, 40, 10), since, took) == due
