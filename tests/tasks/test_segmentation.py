from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score

import fedrelay as fr
from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.tasks.segmentation import Segmentation, soft_dice_loss


@pytest.fixture
def sample(generator):
    targets = torch.randint(0, 3, (6, 8, 7), generator=generator)
    targets[:, 0] = IGNORED_LABEL
    return torch.randn(6, 3, 8, 7, generator=generator), targets


def test_scores_are_those_of_scikit_learn_without_ignored_pixels(sample):
    outputs, targets = sample
    found = Segmentation().metrics_from_sums(Segmentation().evaluation_sums(outputs, targets).values)
    kept = targets != IGNORED_LABEL
    actual, predicted = targets[kept], outputs.argmax(1)[kept]
    dice = f1_score(actual, predicted, average=None)  # Dice of a class is its F1
    assert [found[f"dice_{k}"] for k in range(3)] == pytest.approx(dice.tolist(), rel=1e-12)
    assert found["dice"] == pytest.approx(dice.mean(), rel=1e-12)
    assert found["iou"] == pytest.approx(jaccard_score(actual, predicted, average="macro"), rel=1e-12)
    assert found["pixel_accuracy"] == float((actual == predicted).double().mean())


def test_the_background_can_be_left_out(sample):
    outputs, targets = sample
    task = Segmentation(background=False)
    found = task.metrics_from_sums(task.evaluation_sums(outputs, targets).values)
    assert "dice_0" not in found
    assert found["dice"] == pytest.approx(np.mean([found["dice_1"], found["dice_2"]]))


def test_a_class_that_neither_occurs_nor_is_predicted_does_not_count():
    outputs = torch.zeros(1, 3, 2, 2)
    outputs[:, 0] = 1
    targets = torch.zeros(1, 2, 2, dtype=torch.int64)
    found = Segmentation().metrics_from_sums(Segmentation().evaluation_sums(outputs, targets).values)
    assert (found["dice"], found["dice_0"], found["dice_1"]) == (1.0, 1.0, None)


def test_the_soft_dice_loss_by_hand():
    outputs = torch.log(torch.tensor([[[0.75], [0.25]]]))  # one sample, two classes, one pixel
    targets = torch.tensor([[0]])
    # (2·0.75 + 1) / (0.75 + 1 + 1) and (0 + 1) / (0.25 + 0 + 1)
    assert float(soft_dice_loss(outputs, targets)) == pytest.approx(1 - (2.5 / 2.75 + 1 / 1.25) / 2)


def test_ignored_pixels_have_no_gradient(sample):
    outputs, targets = sample
    outputs.requires_grad_()
    Segmentation().batch_loss(outputs, targets).backward()
    assert (outputs.grad[:, :, 0] == 0).all()
    assert (outputs.grad[:, :, 1:] != 0).any()


def test_an_image_without_labels_counts_nowhere(sample):
    outputs, targets = sample
    targets = targets.clone()
    targets[2] = IGNORED_LABEL
    labelled = [k for k in range(6) if k != 2]
    sums, without = (
        Segmentation().evaluation_sums(outputs, targets),
        Segmentation().evaluation_sums(outputs[labelled], targets[labelled]),
    )
    assert (sums.loss, sums.weight) == (without.loss, without.weight)
    assert math.isfinite(sums.mean_loss)


def test_signals_and_volumes(generator):
    for shape in ((9,), (3, 4, 5)):
        outputs = torch.randn(2, 3, *shape, generator=generator)
        targets = torch.randint(0, 3, (2, *shape), generator=generator)
        expected = torch.nn.functional.cross_entropy(outputs, targets) + soft_dice_loss(outputs, targets)
        assert float(Segmentation().batch_loss(outputs, targets)) == float(expected)
        assert Segmentation().evaluation_sums(outputs, targets).values["confusion"].sum() == targets.numel()


def test_volumes_with_classes_of_voxels_need_a_model_of_ones_own():
    x = np.zeros((6, 1, 4, 4, 4), np.float32)
    data = fr.federate(x[:4], np.arange(256).reshape(4, 4, 4, 4) % 2, x[4:], x[4:, 0].astype(int), clients=2)
    problem = r"^model: there is none in the zoo with a class at each position of a volume .* \[samples, 2, 4, 4, 4\]$"
    with pytest.raises(fr.SpecError, match=problem):
        fr.run("fedavg", data=data, rounds=1)


def test_a_run_can_be_judged_by_one_class():
    rng = np.random.default_rng(4)
    x = rng.normal(size=(12, 1, 4, 4)).astype(np.float32)
    data = fr.federate(x[:8], (x[:8, 0] > 0).astype(int), x[8:], (x[8:, 0] > 0).astype(int), clients=2, partition="iid")
    model = torch.nn.Conv2d(1, 2, 1)
    result = fr.run("fedavg", data=data, model=model, rounds=1, workers=1, validation=0.25, metric="dice_1")
    assert (result.metric, result.score) == ("dice_1", result.history[-1]["dice_1"])
    assert result.best.value == result.history[-1]["validation_dice_1"]
