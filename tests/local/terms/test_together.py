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
from fedrelay.local.terms.base import MergedRound
from fedrelay.local.terms.blend_with_received import BlendWithReceived
from fedrelay.local.terms.contrastive_loss import ContrastiveLoss
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.terms.drift_penalty import DriftPenalty
from fedrelay.local.terms.fisher_penalty import FisherPenalty
from fedrelay.local.terms.glam import Glam
from fedrelay.local.terms.mmd_penalty import MmdPenalty
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.local.terms.tensor_declarations import Payload
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route

CHAINS = ((0, 1, 2), (3, 4), (5,))
ROTATIONS = ((0, 1, 2), (1, 2, 0), (2, 0, 1), (5, 3))


def run_two_rounds(federation, terms, routes, *, executor=InlineExecutor, lanes=1, **train):
    """Two rounds; returns the models, payloads and client states, and whether models were batched."""
    torch.manual_seed(6)
    module = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    layout = FlatLayout.of(module)
    job = TrainingJob(module, layout, federation, TrainSettings(batch_size=3, epochs=2, **train), terms, 3, lanes)
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
    ],
)
@pytest.mark.parametrize("routes", [CHAINS, ROTATIONS], ids=["chains", "rotations"])
def test_lanes_give_what_each_gives_alone(toy, terms, routes):
    *alone, unstacked = run_two_rounds(toy, terms, routes)
    *batched_lanes, together = run_two_rounds(toy, terms, routes, lanes=8)
    assert (unstacked, together) == (False, True)
    torch.testing.assert_close(alone, batched_lanes, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "term", [Glam(), ContrastiveLoss(), MmdPenalty(), FisherPenalty()], ids=lambda term: type(term).__name__
)
def test_terms_that_ask_models_are_trained_one_by_one(toy, term):
    *_, batched_lanes = run_two_rounds(toy, (term,), CHAINS, lanes=8)
    assert not batched_lanes


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
