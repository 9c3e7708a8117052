"""An owner's own demands hold whatever the server asks for."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from fedrelay.engines.flower.messages import Message, hop_report, pack_models
from fedrelay.engines.flower.node.owner_privacy_policy import DeclinedByOwner, OwnerPrivacyPolicy, PrivacyBudget
from fedrelay.errors import EngineError, SpecError
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.models.flat_layout import FlatLayout


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ([], r"this node takes part only with \+dp and terms.dp.noise at least 2"),
        ([ProximalPenalty()], r"only with \+dp"),
        ([ClientLevelPrivacy(noise=1.9)], "terms.dp.noise is 1.9; this node requires at least 2"),
        ([ClientLevelPrivacy(noise=2, clip=3)], "terms.dp.clip is 3; this node requires at most 1"),
        ([ClientLevelPrivacy(noise=2), ClientLevelPrivacy(noise=2)], r"only with \+dp"),
        ([ClientLevelPrivacy(noise=2), ControlVariates()], "ControlVariates sends more than noise protects"),
    ],
)
def test_hops_with_less_privacy_are_declined_before_training(terms, message, make_service, ask):
    service = make_service(policy=OwnerPrivacyPolicy(2, 1))
    with pytest.raises(DeclinedByOwner, match=message):
        service.answer(ask.hop(ask.job(*terms)))


def test_a_hop_with_enough_privacy_is_taken_and_its_loss_stays(make_service, ask):
    reply = make_service(policy=OwnerPrivacyPolicy(2, 1)).answer(
        ask.hop(ask.job(ClientLevelPrivacy(noise=2.5, clip=0.5)))
    )
    assert reply.arrays["models"].any()
    assert reply.header["loss"] is None
    report, _ = hop_report(reply, 8, 2, 1.0)
    assert (report.samples, report.steps) == (8, 2)
    assert math.isnan(report.loss)
    json.dumps(dict(reply.header))


def test_statistics_in_buffers_are_declined(make_service, ask):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.last = nn.BatchNorm1d(3), nn.Linear(3, 2)

        def forward(self, x):
            return self.last(self.norm(x))

    module = Counting()
    wanted = replace(
        ask.job(ClientLevelPrivacy(noise=2)), module=module, layout=FlatLayout.of(module), module_rebuilder=None
    )
    with pytest.raises(DeclinedByOwner, match=r"buffer 'norm\.running_mean' would leave clients without noise"):
        make_service(policy=OwnerPrivacyPolicy(2), module=Counting()).answer(ask.hop(wanted))


def test_profiles_and_evaluations_are_declined(make_service, ask):
    service = make_service(policy=OwnerPrivacyPolicy(2))
    assert (service.facts().tests, service.facts().least_noise) == (0, 2)
    wanted = ask.hop(ask.job(ClientLevelPrivacy(noise=2)))
    with pytest.raises(DeclinedByOwner, match="a profile would leave this node without noise"):
        service.answer(Message({**wanted.header, "kind": "profile"}, wanted.arrays))
    evaluation = pack_models({**wanted.header, "kind": "evaluate"}, {"model": torch.zeros(8)})
    with pytest.raises(DeclinedByOwner, match="an evaluation would leave this node"):
        service.answer(evaluation)
    assert make_service().facts().tests == 4


def test_a_budget_is_counted_over_restarts_and_ends(make_service, ask, tmp_path):
    pytest.importorskip("dp_accounting", reason="the extra 'dp' is not installed")
    policy = OwnerPrivacyPolicy(1.0)

    def service():
        return make_service(policy=policy, budget=PrivacyBudget(tmp_path / "node", policy, 8.0, 1e-5))

    (tmp_path / "node").mkdir()
    request = ask.hop(ask.job(ClientLevelPrivacy(noise=3)))
    assert service().budget.left == 2  # ε(2) ≤ 8 < ε(3) for noise 1; more noise counts as that
    with pytest.raises(DeclinedByOwner):
        service().answer(ask.hop(ask.job()))  # what is declined costs nothing
    service().answer(request)
    again = service()
    assert (again.budget.spent, again.budget.left) == (1, 1)
    again.answer(ask.hop(ask.job(ClientLevelPrivacy(noise=3)), hop=[2, 0, 0, 5, 0, 1]))
    with pytest.raises(DeclinedByOwner, match="the privacy budget of this node is spent: 2 hops, ε = 8"):
        again.answer(ask.hop(ask.job(ClientLevelPrivacy(noise=3)), hop=[3, 0, 0, 5, 0, 1]))
    (tmp_path / "node" / "hops-charged").write_text("many")
    with pytest.raises(EngineError, match="hops-charged: is damaged"):
        service()


@pytest.mark.parametrize("noise", [0, -1, math.nan, math.inf, 1e-9])
def test_invalid_noise(noise):
    with pytest.raises(SpecError, match=r"--require-dp: must be at least 0\.001"):
        OwnerPrivacyPolicy(noise)


@pytest.mark.parametrize("clip", [0, -1, math.nan, math.inf])
def test_invalid_clips(clip):
    with pytest.raises(SpecError, match="--require-clip: must be greater than 0"):
        OwnerPrivacyPolicy(1, clip)


def test_invalid_budgets(tmp_path):
    for epsilon, delta in ((0, 0.1), (math.nan, 0.1), (1, 0), (1, 1), (1, math.nan)):
        with pytest.raises(SpecError, match="--budget: ε must be"):
            PrivacyBudget(tmp_path, OwnerPrivacyPolicy(1), epsilon, delta)
    pytest.importorskip("dp_accounting", reason="the extra 'dp' is not installed")
    with pytest.raises(SpecError, match=r"--budget: a single hop with noise 0\.1 costs more than 1"):
        PrivacyBudget(tmp_path, OwnerPrivacyPolicy(0.1), 1, 1e-5)


def test_what_another_process_spent_is_not_forgotten(tmp_path):
    """One that was about to end when this one was started."""
    pytest.importorskip("dp_accounting", reason="the extra 'dp' is not installed")
    ending, starting = (PrivacyBudget(tmp_path, OwnerPrivacyPolicy(1.0), 8.0, 1e-5) for _ in range(2))
    ending.charge("a hop")
    ending.charge("another")
    with pytest.raises(DeclinedByOwner, match="the privacy budget of this node is spent: 2 hops"):
        starting.charge("a third")


def test_the_count_of_an_earlier_version_is_not_ignored(tmp_path):
    pytest.importorskip("dp_accounting", reason="the extra 'dp' is not installed")
    (tmp_path / "turns").write_text("2")
    with pytest.raises(SpecError, match="this count is kept in 'hops-charged' now; rename the file"):
        PrivacyBudget(tmp_path, OwnerPrivacyPolicy(1.0), 8.0, 1e-5)
    (tmp_path / "turns").rename(tmp_path / "hops-charged")
    assert PrivacyBudget(tmp_path, OwnerPrivacyPolicy(1.0), 8.0, 1e-5).spent == 2
