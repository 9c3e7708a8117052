"""Evaluation on the held-out samples of single clients, against plain PyTorch and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

import fedrelay as fr
from fedrelay.data.holdout import held_out_samples
from fedrelay.experiment.sections import TrainSettings
from fedrelay.local.trainer import SampleOrders, TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.rng import torch_seed
from fedrelay.routes.plan import Hop

SETTINGS = {"data": "heart-disease", "rounds": 2, "fraction": 1.0, "per_client": 2, "lr": 0.1}


@pytest.fixture(scope="module")
def tuned():
    return fr.run("fedavg", **SETTINGS, fine_tune=3, batch_size=8, hidden=(4,))


def outputs(result, samples, state=None):
    module = torch.nn.Sequential(torch.nn.Linear(samples.x.shape[1], 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    module.load_state_dict(dict(zip(module.state_dict(), (state or result.model).values(), strict=True)))
    return module, module(samples.x).flatten()


def test_metrics_of_every_hospital_are_those_of_scikit_learn(tuned):
    held_out = held_out_samples(fr.load_data("heart-disease"))
    for client, line in enumerate(tuned.clients.lines):
        samples, found = held_out.of(client), line["scores"]
        scores = torch.sigmoid(outputs(tuned, samples)[1].double()).detach().numpy()
        y = samples.y.numpy()
        assert line["held_out"] == len(y)
        assert found["auroc"] == pytest.approx(roc_auc_score(y, scores), abs=1e-12)
        assert found["average_precision"] == pytest.approx(average_precision_score(y, scores), abs=1e-12)
        assert found["brier"] == pytest.approx(brier_score_loss(y, scores), abs=1e-6)
        assert found["accuracy"] == np.mean((scores >= 0.5) == y)


def test_spread_is_computed_from_these(tuned):
    values = np.array(list(tuned.clients.values().values()))
    spread = tuned.clients.spread()
    assert (spread.mean, spread.std) == pytest.approx((values.mean(), values.std()))
    assert (spread.worst_value, spread.worst_decile) == (values.min(), values.min())
    assert spread.worst == tuned.clients.names[int(values.argmin())]


def test_fine_tuning_is_three_steps_of_gradient_descent(tuned):
    """The order of samples is FedRelay's own; the steps and the evaluation are not."""
    data, client = fr.load_data("heart-disease"), 2
    samples = data.train_samples(client)
    module, _ = outputs(tuned, samples)
    seed = torch_seed(tuned.experiment.seed, "fine-tune")
    job = TrainingJob(module, FlatLayout.of(module), data, TrainSettings(batch_size=8), (), seed, fixed_steps=3)
    [order] = SampleOrders(job).of_hop(Hop(2, client, 0, client), samples.size)
    assert len(order) == 24
    for step in range(3):
        rows = torch.from_numpy(order[8 * step : 8 * step + 8])
        module.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(
            module(samples.x[rows]).flatten(), samples.y[rows].float()
        ).backward()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter -= 0.1 * parameter.grad
    kept = held_out_samples(data).of(client)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(module(kept.x).flatten(), kept.y.float()).item()
    assert tuned.clients.lines[client]["fine_tuned"]["loss"] == pytest.approx(loss, rel=1e-5)
    assert tuned.clients.lines[client]["scores"]["loss"] != pytest.approx(loss, rel=1e-3)


def test_the_global_model_is_not_changed_by_fine_tuning(tuned):
    plain = fr.run("fedavg", **SETTINGS, batch_size=8, hidden=(4,))
    assert plain.weights_sha256 == tuned.weights_sha256
    assert [line["scores"] for line in plain.clients.lines] == [line["scores"] for line in tuned.clients.lines]


def test_pooled_data_are_evaluated_and_fine_tuned_hospital_by_hospital():
    result = fr.run("centralized", **SETTINGS, fine_tune=2)
    assert [line["name"] for line in result.clients.lines] == ["cleveland", "hungarian", "switzerland", "va"]
    assert [line["train_samples"] for line in result.clients.lines] == [242, 235, 98, 160]
    assert result.bytes == 0
    assert all(line["fine_tuned"]["loss"] != line["scores"]["loss"] for line in result.clients.lines)
