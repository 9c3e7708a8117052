from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score
from sklearn.utils.class_weight import compute_class_weight

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.errors import SpecError
from fedrelay.tasks.classification import Classification, is_plain_classification


@pytest.fixture
def sample(generator):
    return torch.randn(200, 4, generator=generator), torch.randint(0, 4, (200,), generator=generator)


def test_scores_are_those_of_scikit_learn(sample):
    outputs, targets = sample
    found = Classification().metrics_from_sums(Classification().evaluation_sums(outputs, targets).values)
    predicted = outputs.argmax(1)
    assert found["accuracy"] == accuracy_score(targets, predicted)
    for name, function in (("precision", precision_score), ("recall", recall_score), ("f1", f1_score)):
        assert found[name] == pytest.approx(function(targets, predicted, average="macro"), rel=1e-12)


@pytest.mark.parametrize("weights", ["none", (0.1, 1.0, 2.0, 5.0)], ids=str)
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_is_that_of_pytorch(sample, weights, smoothing):
    outputs, targets = sample
    task = Classification(class_weights=weights, label_smoothing=smoothing)
    weight = None if weights == "none" else torch.tensor(weights)
    expected = torch.nn.CrossEntropyLoss(weight=weight, label_smoothing=smoothing)(outputs, targets)
    assert float(task.batch_loss(outputs, targets)) == float(expected)
    assert task.evaluation_sums(outputs, targets).mean_loss == pytest.approx(float(expected), rel=1e-5)


def test_balanced_weights_are_those_of_scikit_learn(facts, sample):
    outputs, targets = sample
    known = facts(class_count=3, histograms=((30, 1, 4), (10, 0, 5)))
    task = Classification(class_weights="balanced").prepared(known)
    labels = np.repeat([0, 1, 2], [40, 1, 9])
    expected = compute_class_weight("balanced", classes=np.arange(3), y=labels)
    np.testing.assert_allclose(task.class_weights, expected, rtol=1e-12)
    three = targets.clamp(max=2)
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor(expected, dtype=torch.float32))(outputs[:, :3], three)
    assert float(task.batch_loss(outputs[:, :3], three)) == pytest.approx(float(loss), rel=1e-6)


def test_a_class_that_no_client_has_weighs_nothing(facts):
    task = Classification(class_weights="balanced").prepared(facts(class_count=3, histograms=((6, 0, 2),)))
    assert task.class_weights == (8 / 12, 0.0, 8 / 4)


def test_ignored_labels_count_nowhere(generator):
    outputs, targets = torch.randn(3, 5, 4, generator=generator), torch.randint(0, 4, (3, 5), generator=generator)
    targets[0, 2:] = IGNORED_LABEL
    sums = Classification().evaluation_sums(outputs, targets)
    assert sums.weight == 12 == sums.values["actual"].sum()
    kept = targets != IGNORED_LABEL
    assert sums.mean_loss == pytest.approx(float(torch.nn.functional.cross_entropy(outputs[kept], targets[kept])))


def test_the_labels_of_one_sequence_are_one_event(generator):
    outputs, targets = torch.randn(1, 5, 4, generator=generator), torch.randint(0, 4, (1, 5), generator=generator)
    mean, total = Classification().batch_loss(outputs, targets), Classification().single_sample_loss(outputs, targets)
    assert float(total) == pytest.approx(5 * float(mean), rel=1e-6)


def test_only_the_plain_loss_is_built_into_batched_models():
    assert is_plain_classification(Classification())
    assert not is_plain_classification(Classification(label_smoothing=0.1))
    assert not is_plain_classification(Classification(class_weights=(1.0, 1.0)))


def test_weights_of_zero_for_all_classes_are_refused(facts):
    with pytest.raises(SpecError, match="class_weights: at least one weight must be above 0"):
        Classification(class_weights=(0.0, 0.0)).prepared(facts(class_count=2))
