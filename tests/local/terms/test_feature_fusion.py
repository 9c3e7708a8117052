"""FedFusion: the two extractors, which of them learns, what the reference is, and how λ is smoothed."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.local.terms.conftest import run_hop
from torch import nn

import fedrelay as fr
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.executor import InlineExecutor
from fedrelay.engines.local.simulation_engine import SimulationEngine
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.terms.contrastive_loss import ContrastiveLoss
from fedrelay.local.terms.feature_fusion import FeatureFusion
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.feature_recorder import last_linear
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.two_part_classifier import TwoPartClassifier
from fedrelay.models.zoo import build_model
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route

OPERATORS = ("conv", "multi", "single")


def plain_net():
    torch.manual_seed(4)
    return build_model("mlp", (4,), 3, hidden=(5,))


def fusion_net(operator, net=None):
    return FeatureFusion(operator=operator).adapt_model(plain_net() if net is None else net)


def part(module, flat, prefix):
    """The values of one part of a module."""
    return torch.cat([e.view(flat).flatten() for e in FlatLayout.of(module).entries if e.name.startswith(f"{prefix}.")])


@pytest.mark.parametrize("operator", ["multi", "single"])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_extractors_that_agree_change_nothing(toy, operator, share):
    plain, module = plain_net(), fusion_net(operator)
    with torch.no_grad():
        module.fusion.share.fill_(share)
        torch.testing.assert_close(module(toy.test.x), plain(toy.test.x))


@pytest.mark.parametrize("operator", OPERATORS)
def test_only_the_reference_is_frozen(toy, operator):
    module = fusion_net(operator)
    before = FlatLayout.of(module).flatten(module)
    out, _ = run_hop(module, toy, (FeatureFusion(operator=operator),), epochs=3, batch_size=2)
    for name in ("features", "fusion", "classifier"):
        assert not torch.equal(part(module, out, name), part(module, before, name))
    assert torch.equal(part(module, out, "reference"), part(module, before, "features"))
    assert not part(module, out, "reference").isnan().any()


@pytest.mark.parametrize(("anchor", "expected"), [("recv", 1.0), ("round", 2.0)])
def test_the_reference_is_the_anchors_extractor(toy, anchor, expected):
    module = fusion_net("conv")
    size = FlatLayout.of(module).size
    received, round_model = torch.full((size,), 1.0), torch.full((size,), 2.0)
    out, _ = run_hop(module, toy, (FeatureFusion(anchor=anchor),), received=received, round_model=round_model)
    assert (part(module, out, "reference") == expected).all()


def test_a_share_frozen_at_zero_is_plain_training(toy):
    plain, _ = run_hop(plain_net(), toy, batch_size=2, epochs=2)
    module = fusion_net("single")
    module.fusion.share.requires_grad_(False)
    out, _ = run_hop(module, toy, (FeatureFusion(operator="single"),), batch_size=2, epochs=2)
    both = torch.cat([part(module, out, "features"), part(module, out, "classifier")])
    torch.testing.assert_close(both, plain, rtol=0, atol=0)


def test_the_reference_of_a_frozen_layer_does_not_travel(toy):
    net = TwoPartClassifier(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 5), nn.ReLU()), nn.Linear(5, 3))
    net.features[0].requires_grad_(False)
    module = fusion_net("multi", net)
    layout = FlatLayout.of(module)
    assert {entry.name.rpartition(".")[0] for entry in layout.frozen} == {"features.0", "reference.0"}
    assert layout.size == 2 * 35 + 5 + 18
    result = fr.run(
        "fedfusion", data=toy, model=net, rounds=2, lr=0.5, terms={"fusion": {"operator": "multi"}}, workers=1
    )
    assert torch.equal(result.model["reference.0.weight"], result.model["features.0.weight"])
    assert not torch.equal(result.model["reference.1.weight"], result.model["features.1.weight"])


def test_statistics_of_the_reference_stand_still(toy):
    net = TwoPartClassifier(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 5), nn.ReLU()), nn.Linear(5, 3))
    module = fusion_net("multi", net)
    before = FlatLayout.of(module).flatten(module)
    out, _ = run_hop(
        module, toy, (FeatureFusion(operator="multi"),), batch_size=1
    )  # lone samples put norms to rest and back
    assert not module.reference[0].training
    assert torch.equal(part(module, out, "reference.0"), part(module, before, "features.0"))
    out, _ = run_hop(copy.deepcopy(module), toy, (FeatureFusion(operator="multi"),), batch_size=4)
    assert not torch.equal(part(module, out, "features.0"), part(module, before, "features.0"))


def test_chains_refer_to_the_predecessor_and_other_terms_fit(toy):
    module = fusion_net("conv")
    assert last_linear(module) is module.classifier
    terms = (FeatureFusion(), ContrastiveLoss())
    job = TrainingJob(module, FlatLayout.of(module), toy, TrainSettings(batch_size=4), terms, 3)
    engine, start = SimulationEngine(job, InlineExecutor(job)), FlatLayout.of(module).flatten(module)
    (one,) = engine.run_round(RoundPlan(1, (Route((0,)),)), AS_PLANNED, RoundInputs(start))
    first = one.weights.clone()
    (two,) = engine.run_round(RoundPlan(1, (Route((0, 1)),)), AS_PLANNED, RoundInputs(start))
    assert torch.equal(part(module, first, "reference"), part(module, start, "features"))
    assert not torch.equal(part(module, two.weights, "reference"), part(module, start, "features"))


@pytest.mark.parametrize("operator", OPERATORS)
def test_it_has_the_type_of_the_model(operator):
    assert FlatLayout.of(fusion_net(operator, plain_net().double())).dtype == torch.float64


def test_a_model_in_one_piece_is_refused():
    with pytest.raises(SpecError, match="fusion needs a model in two parts, `features` and a linear `classifier`"):
        FeatureFusion().adapt_model(nn.Linear(4, 3))


def test_a_warm_up_fuses_with_the_extractor_of_its_own_round(toy):
    settings = {"data": toy, "model": {"name": "mlp", "hidden": (5,)}, "fraction": 1.0, "workers": 1, "lr": 0.5}
    warmed = fr.run("fedavg-first+fedfusion", rounds=3, warmup={"rounds": 2}, **settings)
    plain = fr.run("fedfusion", rounds=2, **settings)
    before, after = plain.model, warmed.model
    references = [name for name in after if name.startswith("reference.")]
    assert references
    for name in references:  # what all clients of round 3 trained against is the model of the warm-up
        torch.testing.assert_close(after[name], before[name.replace("reference", "features")])


@pytest.mark.parametrize(("smoothing", "expected"), [(0.9, 0.14), (0.0, 0.5), (0.25, 0.4)])
def test_lambda_changes_slowly(smoothing, expected):
    module = fusion_net("single")
    layout = FlatLayout.of(module)
    before, merged = torch.full((layout.size,), 0.1), torch.full((layout.size,), 0.5)
    kept = FeatureFusion(operator="single", smoothing=smoothing).adjust_merged_model(merged, before, layout)
    (share,) = (entry for entry in layout.entries if entry.name == "fusion.share")
    assert share.view(kept).item() == pytest.approx(expected)
    assert int((kept != merged).sum()) <= 1


def test_a_convolution_has_no_lambda():
    layout = FlatLayout.of(fusion_net("conv"))
    merged = torch.randn(layout.size, generator=torch.Generator().manual_seed(0))
    assert torch.equal(FeatureFusion().adjust_merged_model(merged, torch.zeros_like(merged), layout), merged)


def test_lambda_is_a_moving_average_over_rounds(toy):
    """After one round λ is a tenth of what clients found; they all begin with zero."""
    settings = {"data": toy, "model": {"name": "mlp", "hidden": (5,)}, "rounds": 1, "batch_size": 2, "workers": 1}
    slow, fast = (
        fr.run("fedfusion", terms={"fusion": {"operator": "multi", "smoothing": smoothing}}, **settings).model
        for smoothing in (0.9, 0.0)
    )
    assert fast["fusion.share"].abs().max() > 0
    torch.testing.assert_close(slow["fusion.share"], 0.1 * fast["fusion.share"])
    assert torch.equal(slow["classifier.weight"], fast["classifier.weight"])
