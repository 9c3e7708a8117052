"""Several rounds of the same arrivals, merged here and by Flower's strategies.

Flower starts v at 0, corrects FedAdam's bias with the exponent t + 1, and weighs what Multi-Krum keeps by samples: each
is an option here. It has no FedNova, FedDisco, inverse distance or geometric median.
"""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch

from fedrelay.merge.adaptive import ServerAdagrad, ServerAdam, ServerYogi
from fedrelay.merge.krum import Krum
from fedrelay.merge.mean import Mean
from fedrelay.merge.median import Median
from fedrelay.merge.server_momentum import ServerMomentum
from fedrelay.merge.trimmed_mean import TrimmedMean

pytest.importorskip("flwr")
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import strategy as flower

START = np.array([0.5, -1.0, 2.0, 0.0, 3.0])
ADAPTIVE = {"eta": 0.05, "tau": 1e-3, "initial_parameters": ndarrays_to_parameters([START])}
PAIRS = [
    (Mean(), lambda: flower.FedAvg()),
    (ServerAdagrad(lr=0.05, first_v=0), lambda: flower.FedAdagrad(**ADAPTIVE)),
    (ServerAdam(lr=0.05, first_v=0, correct_bias=True), lambda: flower.FedAdam(**ADAPTIVE)),
    (ServerYogi(lr=0.05, first_v=0), lambda: flower.FedYogi(**ADAPTIVE)),
    (
        ServerMomentum(lr=0.7, beta=0.6),
        lambda: flower.FedAvgM(
            server_learning_rate=0.7, server_momentum=0.6, initial_parameters=ADAPTIVE["initial_parameters"]
        ),
    ),
    (Median(), lambda: flower.FedMedian()),
    (TrimmedMean(share=0.2), lambda: flower.FedTrimmedAvg(beta=0.2)),
    (Krum(attackers=2), lambda: flower.Krum(num_malicious_clients=2, num_clients_to_keep=0)),
    (
        Krum(attackers=2, keep=4, weights="samples"),
        lambda: flower.Krum(num_malicious_clients=2, num_clients_to_keep=4),
    ),
]


@pytest.mark.parametrize(("rule", "strategy"), PAIRS, ids=[repr(rule) for rule, _ in PAIRS])
def test_flower_comes_to_the_same(make_inputs, rule, strategy):
    logging.getLogger("flwr").setLevel(logging.ERROR)
    theirs, rng = strategy(), np.random.default_rng(0)
    weights, state = torch.from_numpy(START), {}
    for server_round in range(1, 6):
        models = weights.numpy() + rng.normal(size=(8, len(START)))
        samples = rng.integers(1, 90, 8).tolist()
        results = [
            (None, FitRes(Status(Code.OK, ""), ndarrays_to_parameters([model]), n, {}))
            for model, n in zip(models, samples, strict=True)
        ]
        expected, _ = theirs.aggregate_fit(server_round, results, [])
        weights, state = rule.apply(make_inputs(models, samples=samples, global_model=weights, state=state))
        assert weights.numpy() == pytest.approx(parameters_to_ndarrays(expected)[0], rel=1e-12)
