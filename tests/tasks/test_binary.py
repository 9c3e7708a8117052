from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, average_precision_score, brier_score_loss, recall_score, roc_auc_score
from torchmetrics.classification import BinaryCalibrationError

from fedrelay.errors import SpecError
from fedrelay.tasks.binary import CALIBRATION_BINS, Binary


@pytest.fixture
def sample(generator):
    targets = torch.randint(0, 2, (300,), generator=generator)
    return torch.randn(300, 1, generator=generator) + targets[:, None], targets


def test_scores_are_those_of_scikit_learn_and_torchmetrics(sample):
    outputs, targets = sample
    found = Binary().metrics_from_sums(Binary().evaluation_sums(outputs, targets).values)
    logits, probabilities = outputs[:, 0], outputs[:, 0].double().sigmoid()
    predicted = (logits >= 0).long()
    assert found["auroc"] == pytest.approx(roc_auc_score(targets, logits), abs=1e-12)
    assert found["average_precision"] == pytest.approx(average_precision_score(targets, logits), abs=1e-12)
    assert found["accuracy"] == accuracy_score(targets, predicted)
    assert found["sensitivity"] == recall_score(targets, predicted)
    assert found["specificity"] == recall_score(targets, predicted, pos_label=0)
    assert found["brier"] == pytest.approx(brier_score_loss(targets, probabilities), rel=1e-12)


def test_the_calibration_error_is_that_of_the_probability_of_the_positive_class(sample):
    outputs, targets = sample
    found = Binary().metrics_from_sums(Binary().evaluation_sums(outputs, targets).values)["calibration_error"]
    metric = BinaryCalibrationError(n_bins=CALIBRATION_BINS, norm="l1")
    # torchmetrics compares the probability of the positive class with its share, bin by bin, as we do
    assert found == pytest.approx(float(metric(outputs[:, 0].double().sigmoid(), targets)), abs=1e-6)


@pytest.mark.parametrize("weights", ["none", (0.5, 3.0)], ids=str)
def test_the_loss_is_that_of_pytorch(sample, weights):
    outputs, targets = sample
    labels = targets.float()
    weight = None if weights == "none" else torch.where(targets == 1, weights[1], weights[0])
    expected = torch.nn.BCEWithLogitsLoss(weight=weight)(outputs[:, 0], labels)
    task = Binary(class_weights=weights)
    assert float(task.loss_of_model_outputs(outputs, targets)) == float(expected)
    assert task.evaluation_sums(outputs, targets).mean_loss == pytest.approx(float(expected), rel=1e-6)


def test_balanced_weights_make_both_classes_weigh_the_same(facts):
    task = Binary(class_weights="balanced").prepared(facts(class_count=2, histograms=((9, 1), (6, 4))))
    assert task.class_weights == (20 / 30, 20 / 10)
    counts = np.array([15, 5])
    assert (counts * task.class_weights).tolist() == [10, 10]


def test_samples_of_one_class_leave_some_scores_open():
    found = Binary().metrics_from_sums(Binary().evaluation_sums(torch.tensor([1.0, -1.0]), torch.tensor([1, 1])).values)
    assert found["auroc"] is None
    assert found["specificity"] is None
    assert (found["accuracy"], found["sensitivity"], found["average_precision"]) == (0.5, 0.5, 1.0)
    found = Binary().metrics_from_sums(Binary().evaluation_sums(torch.tensor([1.0, -1.0]), torch.tensor([0, 0])).values)
    assert found["average_precision"] is None
    assert found["sensitivity"] is None


def test_weights_of_zero_are_refused(facts):
    with pytest.raises(SpecError, match="class_weights: at least one weight must be above 0"):
        Binary(class_weights=(0.0, 0.0)).prepared(facts(class_count=2))


def test_a_class_that_no_client_has_weighs_nothing(facts):
    """As in classification."""
    task = Binary(class_weights="balanced").prepared(facts(class_count=2, histograms=((5, 0),)))
    assert task.class_weights == (1.0, 0.0)
