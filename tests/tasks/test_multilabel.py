from __future__ import annotations

import pytest
import torch
from sklearn.metrics import f1_score

from fedrelay.tasks.multilabel import MultiLabel


def test_scores_are_those_of_scikit_learn(generator):
    outputs, targets = torch.randn(90, 5, generator=generator), torch.randint(0, 2, (90, 5), generator=generator)
    targets[:, 4] = 0  # a label that nobody has
    found = MultiLabel().metrics_from_sums(MultiLabel().evaluation_sums(outputs, targets.float()).values)
    predicted = (outputs >= 0).long()
    assert found["f1_macro"] == pytest.approx(f1_score(targets, predicted, average="macro"), rel=1e-12)
    assert found["f1_micro"] == pytest.approx(f1_score(targets, predicted, average="micro"), rel=1e-12)
    assert found["label_accuracy"] == pytest.approx(float((targets == predicted).double().mean()))


def test_the_loss_is_that_of_pytorch(generator):
    outputs, targets = torch.randn(9, 3, generator=generator), torch.randint(0, 2, (9, 3), generator=generator).float()
    expected = torch.nn.BCEWithLogitsLoss()(outputs, targets)
    assert float(MultiLabel().loss_of_model_outputs(outputs, targets)) == float(expected)
    assert MultiLabel().evaluation_sums(outputs, targets).weight == 27
