from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

from fedrelay.tasks.regression import Regression


@pytest.fixture
def sample(generator):
    targets = 50 + 3 * torch.randn(120, generator=generator)
    return targets[:, None] + torch.randn(120, 1, generator=generator), targets


def test_scores_are_those_of_scikit_learn(sample):
    outputs, targets = sample
    found = Regression().metrics_from_sums(Regression().evaluation_sums(outputs, targets).values)
    actual, predicted = targets.double(), outputs[:, 0].double()
    assert found["rmse"] == pytest.approx(root_mean_squared_error(actual, predicted), rel=1e-12)
    assert found["mae"] == pytest.approx(mean_absolute_error(actual, predicted), rel=1e-12)
    assert found["r2"] == pytest.approx(r2_score(actual, predicted), rel=1e-9)


def test_several_numbers_count_together(generator):
    targets, outputs = torch.randn(40, 3, generator=generator), torch.randn(40, 3, generator=generator)
    found = Regression().metrics_from_sums(Regression().evaluation_sums(outputs, targets).values)
    assert found["rmse"] == pytest.approx(root_mean_squared_error(targets.double().ravel(), outputs.double().ravel()))
    assert Regression().evaluation_sums(outputs, targets).weight == 120


def test_r2_compares_every_number_with_its_own_mean(generator):
    targets = torch.tensor([0.0, 100.0]) + torch.randn(40, 2, generator=generator) * torch.tensor([1.0, 3.0])
    constant = torch.tensor([0.0, 100.0]).expand(40, 2)
    for outputs in (constant, targets + torch.randn(40, 2, generator=generator)):
        found = Regression().metrics_from_sums(Regression().evaluation_sums(outputs, targets).values)["r2"]
        expected = r2_score(targets.double(), outputs.double(), multioutput="variance_weighted")
        assert found == pytest.approx(expected, abs=1e-9)


def test_no_samples_have_no_scores():
    found = Regression().evaluation_sums(torch.zeros(0, 1), torch.zeros(0)).values
    assert set(Regression().metrics_from_sums(found).values()) == {None}


@pytest.mark.parametrize(
    ("task", "loss"),
    [
        (Regression(), torch.nn.MSELoss()),
        (Regression(loss="mae"), torch.nn.L1Loss()),
        (Regression(loss="huber"), torch.nn.HuberLoss()),
        (Regression(loss="huber", delta=0.3), torch.nn.HuberLoss(delta=0.3)),
    ],
    ids=["mse", "mae", "huber", "huber 0.3"],
)
def test_the_loss_is_that_of_pytorch(sample, task, loss):
    outputs, targets = sample
    assert float(task.loss_of_model_outputs(outputs, targets)) == float(loss(outputs[:, 0], targets))


def test_targets_that_are_all_equal_have_no_r2():
    targets = torch.full((7,), 0.1)
    assert Regression().metrics_from_sums(Regression().evaluation_sums(targets + 1, targets).values)["r2"] is None


def test_targets_far_from_zero_keep_their_r2(generator):
    targets = 1e4 + torch.randn(200, generator=generator)
    outputs = targets + 0.1
    found = Regression().metrics_from_sums(Regression().evaluation_sums(outputs, targets).values)["r2"]
    assert found == pytest.approx(r2_score(targets.double(), outputs.double()), abs=1e-6)


def test_an_option_without_effect_is_refused():
    with pytest.raises(ValidationError, match="delta: has no effect with the loss 'mse'"):
        Regression(delta=2)
