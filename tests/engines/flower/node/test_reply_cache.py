"""Noise cannot be removed by asking again: every new reply is charged, a repeated request gets its first reply."""

from __future__ import annotations

from itertools import count, islice

import numpy as np
import pytest
import torch

from fedrelay.engines.flower.node.owner_privacy_policy import DeclinedByOwner, OwnerPrivacyPolicy, PrivacyBudget
from fedrelay.engines.flower.node.reply_cache import REMEMBERED
from fedrelay.local.terms.blend_with_received import BlendWithReceived
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.local.terms.drift_penalty import DriftPenalty

pytest.importorskip("dp_accounting", reason="the extra 'dp' is not installed")

WIDE = 2_000
"""Weights of the attacked model: enough for correlations to show."""


@pytest.fixture
def attacked(make_service, tmp_path):
    """A node whose owner demands noise of at least 2, with a budget for some 50 hops; call it again to restart it."""
    policy = OwnerPrivacyPolicy(2.0)

    def start():
        (tmp_path / "node").mkdir(exist_ok=True)
        return make_service(policy=policy, budget=PrivacyBudget(tmp_path / "node", policy, 40.0, 1e-5))

    return start


def wide_job(ask, dp, *terms, **train):
    return ask.job(*terms, dp, hidden=(WIDE // 6,), **{"lr": 0.5, **train})


def model_of(reply):
    return torch.from_numpy(np.array(reply.arrays["models"][0])).double()


def ask_twice(ask, first, second):
    """Two requests of an attacker: (terms.dp, other terms, settings of train, models, header) each."""
    requests = []
    for dp, terms, train, models, header in (first, second):
        job = wide_job(ask, dp, *terms, **train)
        recv = torch.zeros(job.layout.size)
        rows = {"recv": recv} | {name: recv + shift for name, shift in models.items()}
        requests.append(ask.hop(job, rows, **header))
    return requests


PLAIN = (ClientLevelPrivacy(noise=2), (), {}, {}, {})
ATTACKS = {
    "another noise": (ClientLevelPrivacy(noise=3), (), {}, {}, {}),
    "another clip": (ClientLevelPrivacy(noise=2, clip=2), (), {}, {}, {}),
    "another delta": (ClientLevelPrivacy(noise=2, delta=1e-6), (), {}, {}, {}),
    "another round": (ClientLevelPrivacy(noise=2), (), {}, {}, {"hop": [2, 0, 0, 5, 0, 1]}),
    "another route": (ClientLevelPrivacy(noise=2), (), {}, {}, {"hop": [1, 1, 0, 5, 0, 1]}),
    "another attempt": (ClientLevelPrivacy(noise=2), (), {}, {}, {"hop": [1, 0, 0, 5, 1, 1]}),
    "another run": (ClientLevelPrivacy(noise=2), (), {}, {}, {"run": "fedcba9876543210"}),
    "another round model": (ClientLevelPrivacy(noise=2), (), {}, {"round": 0.5}, {}),
    "another received model": (ClientLevelPrivacy(noise=2), (), {}, {"recv": 1e-7}, {}),
    "another payload": (ClientLevelPrivacy(noise=2), (), {}, {"baggage sum": 1.0}, {}),
    "another learning rate": (ClientLevelPrivacy(noise=2), (), {"lr": 0.500001}, {}, {}),
    "no training": (ClientLevelPrivacy(noise=2), (), {"lr": 1e-30}, {}, {}),
    "more epochs": (ClientLevelPrivacy(noise=2), (), {"epochs": 2}, {}, {}),
    "another term": (ClientLevelPrivacy(noise=2), (BlendWithReceived(alpha=0.0),), {}, {}, {}),
    "another usual length": (ClientLevelPrivacy(noise=2), (), {}, {}, {"typical_norm": 1.0}),
    "a scaled reply": (ClientLevelPrivacy(noise=2), (), {}, {}, {"tamper": {"what": "replace", "factor": 2.0}}),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_two_replies_have_independent_noise_and_both_are_charged(attack, attacked, ask):
    service = attacked()
    first, second = ask_twice(ask, PLAIN, ATTACKS[attack])
    replies = [model_of(service.answer(request)) for request in (first, second)]
    assert service.budget.spent == 2
    # The clipped change has a norm of at most 2, the noise of some 2·√2000 ≈ 90: what is seen is noise.
    noise = [reply / reply.std() for reply in replies]
    assert abs(float((noise[0] * noise[1]).mean())) < 6 / np.sqrt(len(noise[0]))
    assert abs(float(torch.corrcoef(torch.stack(noise))[0, 1])) < 6 / np.sqrt(len(noise[0]))


@pytest.mark.parametrize(("option", "values"), [("noise", (2.0, 3.0)), ("clip", (0.25, 0.375))])
def test_two_strengths_do_not_give_the_model_by_subtraction(option, values, attacked, ask):
    """With equal noise n, a = m + 2n and b = m + 3n, so 3a − 2b = m. Fresh noise leaves N(0, 3²·2² + 2²·3²) of it."""
    service = attacked()
    requests = ask_twice(
        ask, *((ClientLevelPrivacy(**{"noise": 2.0, "clip": 0.25, option: value}), (), {}, {}, {}) for value in values)
    )
    a, b = (model_of(service.answer(request)) for request in requests)
    small, large = values
    combined = (large * a - small * b) / (large - small)
    deviation = 2.0 * 0.25 * np.sqrt(2) * large / (large - small)  # two independent noises, each of small·large
    if option == "noise":
        deviation = 0.25 * np.sqrt(2) * small * large / (large - small)
    assert float(combined.std()) == pytest.approx(deviation, rel=0.1)
    assert service.budget.spent == 2


def test_averaging_costs_budget_for_every_reply(attacked, ask):
    """A mean of n replies has noise of 1/√n of one, no less, and n hops are charged; then the budget ends it."""
    service = attacked()
    job = wide_job(ask, ClientLevelPrivacy(noise=2))
    recv = torch.zeros(job.layout.size)
    requests = (ask.hop(job, {"recv": recv}, hop=[round, 0, 0, 5, 0, 1]) for round in count(1))
    replies = [model_of(service.answer(request)) for request in islice(requests, service.budget.most)]
    assert service.budget.spent == service.budget.most == len(replies) > 20
    with pytest.raises(DeclinedByOwner, match="the privacy budget of this node is spent"):
        service.answer(next(requests))
    mean = torch.stack(replies).mean(dim=0)
    assert float(mean.std()) == pytest.approx(2.0 / np.sqrt(len(replies)), rel=0.1)


def test_a_known_part_of_the_noise_tells_nothing_of_the_rest(attacked, ask):
    """Asked not to train, the node returns pure noise; the next noise does not follow from it."""
    service = attacked()
    job = wide_job(ask, ClientLevelPrivacy(noise=2), lr=1e-30)
    recv = torch.zeros(job.layout.size)
    noises = [model_of(service.answer(ask.hop(job, {"recv": recv}, hop=[n, 0, 0, 5, 0, 1]))) for n in (1, 2, 3)]
    assert (torch.corrcoef(torch.stack(noises)) - torch.eye(3)).abs().max() < 6 / np.sqrt(len(recv))


def test_the_same_request_is_answered_the_same_and_charged_once(attacked, ask):
    """After a lost reply, after a restart of the node, and after a resume, which numbers requests anew."""
    request, renumbered = (
        ask.hop(wide_job(ask, ClientLevelPrivacy(noise=2)), zeros(ask), request=id, nonce=f"random {id}")
        for id in (100, 200)
    )
    service = attacked()
    first = service.answer(request)
    restarted = attacked()
    for again in (service.answer(request), restarted.answer(request), restarted.answer(renumbered)):
        assert np.array_equal(again.arrays["models"], first.arrays["models"])
        repeated = {"audit": {**first.header["audit"], "repeated": True}}
        assert {**again.header, "request": 100, "seconds": first.header["seconds"]} == first.header | repeated
        assert again.header["seconds"] != first.header["seconds"]  # those of this request, not of the training
    assert restarted.answer(renumbered).header["request"] == 200
    assert restarted.budget.spent == 1


def zeros(ask):
    return {"recv": torch.zeros(wide_job(ask, ClientLevelPrivacy()).layout.size)}


def test_a_repeated_request_is_answered_although_the_budget_is_spent(attacked, ask):
    service = attacked()
    request = ask.hop(wide_job(ask, ClientLevelPrivacy(noise=2)), zeros(ask))
    first = service.answer(request)
    for number in count():
        if not service.budget.left:
            break
        service.budget.charge(f"hop {number}")
    assert np.array_equal(service.answer(request).arrays["models"], first.arrays["models"])


def test_client_state_goes_with_the_repeated_reply(attacked, ask):
    service = attacked()
    job = ask.job(DriftPenalty(), ClientLevelPrivacy(noise=2))
    service.answer(ask.hop(job, request=100))
    service.answer(ask.hop(job, request=101))
    kept = [service.state_files.get(ask.run, version, (), ()) for version in (100, 101)]
    assert kept[0].keys() == kept[1].keys() != set()
    assert all(torch.equal(kept[0][name], kept[1][name]) for name in kept[0])
    assert service.budget.spent == 1


def test_old_and_damaged_replies_are_drawn_and_charged_anew(attacked, ask, caplog):
    service = attacked()
    requests = [ask.hop(ask.job(ClientLevelPrivacy(noise=2)), hop=[n, 0, 0, 5, 0, 1]) for n in range(1, REMEMBERED + 2)]
    replies = [service.answer(request) for request in requests]
    kept = sorted((service.state_files.folder / ask.run).glob("answer-*"))
    assert len(kept) == REMEMBERED
    again = service.answer(requests[0])
    assert not np.array_equal(again.arrays["models"], replies[0].arrays["models"])
    assert service.budget.spent == REMEMBERED + 2
    for path in kept:
        path.write_bytes(b"no tensors")
    service.answer(requests[-1])
    assert service.budget.spent == REMEMBERED + 3
    assert "is damaged; the request is answered and charged anew" in caplog.text


def test_replies_without_noise_are_not_kept(service, ask):
    service.answer(ask.hop(ask.job()))
    assert not list(service.state_files.folder.rglob("answer-*"))
