"""What holds for all terms: without strength they do nothing, and workers and lanes do not change results."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from fedrelay.data.dataset import IGNORED_LABEL, Dataset
from fedrelay.data.federation import ArrayFederation
from fedrelay.data.partition import ClientIndices
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.executor import ForkedExecutor, InlineExecutor
from fedrelay.engines.local.simulation_engine import SimulationEngine
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.batched_trainer import batched_model_for
from fedrelay.local.hop_context import HopContext
from fedrelay.local.terms.base import Batch, LossTerm, MergedRound, ModelOutputs
from fedrelay.local.terms.blend_with_received import BlendWithReceived
from fedrelay.local.terms.contrastive_loss import ContrastiveLoss
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.drift_penalty import DriftPenalty
from fedrelay.local.terms.fisher_penalty import FisherPenalty
from fedrelay.local.terms.glam import Glam
from fedrelay.local.terms.mmd_penalty import MmdPenalty
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.local.terms.sharpness import Sharpness
from fedrelay.local.terms.tensor_declarations import Payload
from fedrelay.local.trainer import PLAIN_CLASSIFICATION, TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route
from fedrelay.tasks.classification import Classification

CHAINS = ((0, 1, 2), (3, 4), (5,))
ROTATIONS = ((0, 1, 2), (1, 2, 0), (2, 0, 1), (5, 3))


def run_two_rounds(
    federation, terms, routes, *, executor=InlineExecutor, lanes=1, task=PLAIN_CLASSIFICATION, dtype=None, **train
):
    """Two rounds; returns the models, payloads and client states, and whether models were batched."""
    torch.manual_seed(6)
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).to(dtype)
    layout = FlatLayout.of(module)
    settings = TrainSettings(batch_size=3, epochs=2, **train)
    job = TrainingJob(module, layout, federation, settings, terms, 3, lanes, task=task)
    engine, weights, server = SimulationEngine(job, executor(job)), layout.flatten(module), {}
    for round in (1, 2):
        arrivals = engine.run_round(
            RoundPlan(round, tuple(map(Route, routes))), AS_PLANNED, RoundInputs(weights, {}, server)
        )
        engine.commit_client_state()
        models = torch.stack([arrival.weights for arrival in arrivals])
        for term in terms:
            server = server | term.after_merge(MergedRound(models.mean(0), weights, arrivals, 6, server)).server_state
        weights = models.mean(0)
    payload = {name: torch.stack([a.payload[name] for a in arrivals]) for name in job.tensor_names(Payload)}
    engine.close()
    return (
        models,
        payload,
        [engine.client_states.get(client) for client in range(6)],
        batched_model_for(job)[0] is not None,
    )


@pytest.mark.parametrize(
    "term",
    [
        ProximalPenalty(mu=0),
        ContrastiveLoss(mu=0),
        MmdPenalty(strength=0),
        Glam(tau=0, rho=0),
        FisherPenalty(strength=0),
        BlendWithReceived(alpha=0),
    ],
    ids=lambda term: type(term).__name__,
)
@pytest.mark.parametrize("routes", [CHAINS, ROTATIONS], ids=["chains", "rotations"])
def test_without_strength_a_term_is_not_there(toy, term, routes):
    plain, *_ = run_two_rounds(toy, (), routes)
    found, *_ = run_two_rounds(toy, (term,), routes)
    assert torch.equal(plain, found)


@pytest.mark.parametrize(
    "terms",
    [
        (Glam(), ContrastiveLoss(mu=1.0)),
        (MmdPenalty(), FisherPenalty(labels="model"), BlendWithReceived()),
        (ControlVariates(), DriftPenalty(), BlendWithReceived(), ProximalPenalty(mu=0.1)),
    ],
    ids=["teachers", "fisher", "algebra"],
)
def test_worker_processes_give_the_same_bits(toy, terms):
    inline = run_two_rounds(toy, terms, ROTATIONS)
    forked = run_two_rounds(toy, terms, ROTATIONS, executor=lambda job: ForkedExecutor(job, 2))
    torch.testing.assert_close(inline, forked, rtol=0, atol=0)


@pytest.mark.parametrize(
    "terms",
    [
        (ControlVariates(),),
        (DriftPenalty(),),
        (DriftPenalty(alpha_by_size=True), ControlVariates()),
        (BlendWithReceived(alpha=0.3), DriftPenalty(), ProximalPenalty(mu=0.1)),
        (Sharpness(rho=0.5),),
        (Sharpness(rho=0.5, uphill="last"), ControlVariates()),
        (Sharpness(rho=0.5), Glam()),
    ],
)
@pytest.mark.parametrize("routes", [CHAINS, ROTATIONS], ids=["chains", "rotations"])
def test_lanes_give_what_each_gives_alone(toy, terms, routes):
    *alone, unstacked = run_two_rounds(toy, terms, routes)
    *batched_lanes, together = run_two_rounds(toy, terms, routes, lanes=8)
    assert (unstacked, together) == (False, True)
    torch.testing.assert_close(alone, batched_lanes, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "terms",
    [
        (Glam(),),
        (Glam(tau=2.0, rho=0),),
        (Glam(tau=0),),
        (ContrastiveLoss(mu=1.0, anchor="round"),),
        (Glam(), ContrastiveLoss(mu=1.0), ProximalPenalty(mu=0.1)),
        (FisherPenalty(strength=5.0),),
        (FisherPenalty(strength=5.0, memory=0.5, labels="model"), Glam()),
    ],
    ids=str,
)
@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_terms_that_ask_models_do_so_in_every_lane(toy, terms, lanes):
    *alone, _ = run_two_rounds(toy, terms, ROTATIONS)
    *batched_lanes, together = run_two_rounds(toy, terms, ROTATIONS, lanes=lanes)
    assert together
    torch.testing.assert_close(alone, batched_lanes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("task", [Classification(label_smoothing=0.2), Classification(class_weights=(1.0, 2.0, 0.5))])
def test_terms_go_with_every_loss(toy, task):
    terms = (Glam(), ContrastiveLoss(mu=1.0), FisherPenalty(strength=5.0))
    *alone, _ = run_two_rounds(toy, terms, CHAINS, task=task)
    *batched_lanes, together = run_two_rounds(toy, terms, CHAINS, lanes=8, task=task)
    assert together
    torch.testing.assert_close(alone, batched_lanes, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "terms",
    [
        (MmdPenalty(strength=1.0),),
        (MmdPenalty(strength=1.0, outputs="features"),),
        (MmdPenalty(strength=1.0, widths="relative", anchor="round"),),
        (Glam(), ContrastiveLoss(mu=1.0), MmdPenalty(outputs="features")),
    ],
    ids=str,
)
@pytest.mark.parametrize("lanes", [2, 3, 8])
def test_narrow_kernels_in_every_lane(toy, terms, lanes):
    """They magnify rounding a thousand times, so here all is computed in float64."""
    *alone, _ = run_two_rounds(toy, terms, ROTATIONS, dtype=torch.float64)
    *batched_lanes, together = run_two_rounds(toy, terms, ROTATIONS, lanes=lanes, dtype=torch.float64)
    assert together
    torch.testing.assert_close(alone, batched_lanes, rtol=1e-9, atol=1e-10)


def random_batch(lanes):
    """Batches of four samples, with padding in the first lane, and other models whose outputs follow from their sum."""
    random = torch.Generator().manual_seed(0)
    logits, features, more = torch.randn(3, lanes, 4, 3, dtype=torch.float64, generator=random)
    weights = torch.full((lanes, 4), 0.25, dtype=torch.float64)
    weights[0] = torch.tensor([0.5, 0.5, 0, 0])

    def outputs_of_model(models):
        shift = models.sum(-1)[:, None, None] * more
        return ModelOutputs(logits + shift, features + shift)

    targets = torch.zeros(lanes, 4, dtype=torch.int64)
    return Batch(targets, ModelOutputs(logits, features), outputs_of_model, weights)


@pytest.mark.parametrize("term", [Glam(), ContrastiveLoss()], ids=lambda term: type(term).__name__)
def test_gradients_by_hand_are_those_of_the_loss(term):
    """Automatic differentiation of the same loss; the second client has no previous model yet."""
    models = torch.tensor([[0.1], [0.0], [0.3]], dtype=torch.float64)
    context = HopContext(models + 0.5, models - 0.2, client_state={"previous": models})
    by_hand = term.losses_and_gradient(random_batch(3), context)
    losses, gradient = LossTerm.losses_and_gradient(term, random_batch(3), context)
    torch.testing.assert_close(by_hand[0], losses)
    for found, wanted in zip(by_hand[1], gradient, strict=True):
        assert (found is None) == (wanted is None)
        if wanted is not None:
            torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "term",
    [
        ProximalPenalty(),
        ContrastiveLoss(),
        MmdPenalty(),
        Glam(),
        FisherPenalty(strength=10),
        BlendWithReceived(),
        ControlVariates(),
        DriftPenalty(),
    ],
    ids=lambda term: type(term).__name__,
)
def test_with_strength_it_is(toy, term):
    plain, *_ = run_two_rounds(toy, (), CHAINS)
    found, *_ = run_two_rounds(toy, (term,), CHAINS)
    assert found.isfinite().all()
    assert not torch.equal(plain, found)


def sentences(padding):
    """Two clients with sequences whose second half is padding, filled up with some token."""
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 5, (8, 6)), rng.integers(0, 5, (8, 6))
    x[:, 3:], y[:, 3:] = padding, IGNORED_LABEL
    return ArrayFederation(
        Dataset("words", "tokens", x, y, x, y, 5), ClientIndices(np.arange(8), np.array([0, 4, 8])), seed=0
    )


@pytest.mark.parametrize(
    "term",
    [
        Glam(),
        ContrastiveLoss(),
        MmdPenalty(strength=1.0),
        MmdPenalty(strength=1.0, outputs="features"),
        FisherPenalty(),
        FisherPenalty(labels="model"),
    ],
    ids=str,
)
def test_padding_of_sequences_counts_nowhere(term):
    found = []
    for padding in (0, 4):
        torch.manual_seed(6)
        module = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5))
        job = TrainingJob(
            module, FlatLayout.of(module), sentences(padding), TrainSettings(batch_size=2, lr=0.5), (term,), 3
        )
        engine, weights = SimulationEngine(job, InlineExecutor(job)), job.layout.flatten(module)
        for round in (1, 2):
            (arrival,) = engine.run_round(RoundPlan(round, (Route((0, 1)),)), AS_PLANNED, RoundInputs(weights))
            engine.commit_client_state()
            weights = arrival.weights.clone()
        found.append([weights, *(tensor.clone() for tensor in arrival.payload.values())])
    assert weights.isfinite().all()
    torch.testing.assert_close(found[0], found[1])
