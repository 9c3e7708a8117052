"""What holds for every task: parts add up, the mean loss is the training loss, a single pass gives the same scores."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.errors import DataError, SpecError
from fedrelay.tasks.base import LOSS, EvaluationSums, Task
from fedrelay.tasks.binary import Binary
from fedrelay.tasks.classification import Classification
from fedrelay.tasks.custom import CustomTask
from fedrelay.tasks.language_model import LanguageModel
from fedrelay.tasks.multilabel import MultiLabel
from fedrelay.tasks.regression import Regression
from fedrelay.tasks.segmentation import Segmentation

N = 60


def absolute_error(outputs, targets):
    return (outputs - targets).abs().mean()


def within_one(outputs, targets):
    return ((outputs - targets).abs() <= 1).float()


def draw(task: Task, seed: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs and targets that fit a task; some labels of positions are ignored."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    def labels(classes: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, classes, shape, generator=random)

    if isinstance(task, Binary):
        return normal(N, 1), labels(2, N)
    if isinstance(task, MultiLabel):
        return normal(N, 4), labels(2, N, 4).float()
    if isinstance(task, Regression | CustomTask):
        return normal(N), normal(N)
    if isinstance(task, Segmentation):
        y = labels(3, N, 4, 5)
        y[::7, 0] = IGNORED_LABEL
        return normal(N, 3, 4, 5), y
    if isinstance(task, LanguageModel):
        y = labels(11, N, 6)
        y[::3, 4:] = IGNORED_LABEL
        return normal(N, 6, 11), y
    return normal(N, 3), labels(3, N)


TASKS = {
    "classification": Classification(),
    "weighted": Classification(class_weights=(0.5, 1.0, 4.0)),
    "smoothed": Classification(class_weights=(0.5, 1.0, 4.0), label_smoothing=0.1),
    "binary": Binary(),
    "binary, weighted": Binary(class_weights=(1.0, 3.0)),
    "multilabel": MultiLabel(),
    "regression": Regression(),
    "mae": Regression(loss="mae"),
    "huber": Regression(loss="huber", delta=0.5),
    "segmentation": Segmentation(),
    "segmentation, cross-entropy": Segmentation(dice_weight=0),
    "language-model": LanguageModel(),
    "custom": CustomTask(loss=absolute_error, metrics_of={"within_one": within_one}, higher_is_better=("within_one",)),
}
each_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())


def same_scores(task: Task, one: EvaluationSums, other: EvaluationSums) -> None:
    first, second = task.metrics_from_sums(one.values), task.metrics_from_sums(other.values)
    assert first.keys() == second.keys()
    assert [first[name] for name in first] == pytest.approx([second[name] for name in first], rel=1e-6)


@each_task
def test_parts_add_up_to_one_pass(task):
    outputs, targets = draw(task)
    whole = task.evaluation_sums(outputs, targets)
    parts = [task.evaluation_sums(outputs[part], targets[part]) for part in (slice(0, 7), slice(7, 8), slice(8, None))]
    joined = parts[0] + parts[1] + parts[2]
    same_scores(task, whole, joined)
    assert joined.mean_loss == pytest.approx(whole.mean_loss, rel=1e-5)
    assert joined.weight == pytest.approx(whole.weight)


@each_task
def test_the_mean_loss_is_the_training_loss(task):
    outputs, targets = draw(task)
    sums = task.evaluation_sums(outputs, targets)
    if isinstance(task, Segmentation):  # each image counts with its own loss, in training the batch has one
        expected = np.mean([float(task.loss_of_model_outputs(outputs[[k]], targets[[k]])) for k in range(N)])
    else:
        expected = float(task.loss_of_model_outputs(outputs, targets))
    assert sums.mean_loss == pytest.approx(expected, rel=1e-5)


@each_task
def test_scores_have_the_names_of_the_metrics_and_the_headline(task):
    outputs, targets = draw(task)
    found = task.metrics_from_sums(task.evaluation_sums(outputs, targets).values)
    assert set(task.metrics) <= set(found)
    assert task.headline == next(iter(task.metrics))
    assert task.metric_info("loss") == LOSS
    assert all(isinstance(value, float) for value in found.values())


@each_task
def test_double_precision_gives_the_same_loss(task):
    outputs, targets = draw(task)
    numbers = targets.double() if targets.is_floating_point() else targets
    single, double = task.evaluation_sums(outputs, targets), task.evaluation_sums(outputs.double(), numbers)
    assert task.loss_of_model_outputs(outputs.double(), targets).dtype == torch.float64
    assert double.mean_loss == pytest.approx(single.mean_loss, rel=1e-5)
    same_scores(task, single, double) if not isinstance(task, Regression | LanguageModel) else None


@each_task
def test_outputs_that_are_not_finite_give_no_crash(task):
    outputs, targets = draw(task)
    outputs = outputs.clone()
    outputs[0] = float("nan")
    outputs[1] = float("inf")
    sums = task.evaluation_sums(outputs, targets)
    found = task.metrics_from_sums(sums.values)
    assert isinstance(found, Mapping)
    assert not np.isfinite(sums.mean_loss)


@each_task
def test_nobody_else_can_report_sums_of_another_number_of_predictions(task):
    sums = task.evaluation_sums(*draw(task))
    # Weighted sums say nothing about how many predictions there were: classification counts labels instead.
    count = N if getattr(task, "class_weights", "none") != "none" else round(sums.weight)
    assert task.why_sums_implausible(sums, range(count, count + 1)) == ""
    assert "instead of" in task.why_sums_implausible(sums, range(count + 1, count + 2))


def test_a_negative_loss_is_a_contradiction_unless_the_loss_is_the_users():
    sums = EvaluationSums(-1.0, 2, {"moments": np.zeros(4), "totals": np.zeros(1)})
    assert Regression().why_sums_implausible(sums, range(2, 3)) == "its loss is negative"
    own = CustomTask(loss=lambda outputs, targets: -(outputs * targets).mean())
    assert own.why_sums_implausible(own.evaluation_sums(torch.ones(2), torch.ones(2)), range(2, 3)) == ""


def test_counts_that_contradict_each_other():
    outputs, targets = draw(Classification())
    sums = Classification().evaluation_sums(outputs, targets)
    impossible = {**sums.values, "correct": sums.values["actual"] + 1}
    found = Classification().why_sums_implausible(EvaluationSums(sums.loss, sums.weight, impossible), range(N, N + 1))
    assert found == "its counts contradict each other"
    outputs, targets = draw(Binary())
    sums = Binary().evaluation_sums(outputs, targets)
    impossible = {**sums.values, "confusion": sums.values["confusion"][::-1].copy()}
    found = Binary().why_sums_implausible(EvaluationSums(sums.loss, sums.weight, impossible), range(N, N + 1))
    assert found == "its counts contradict each other"


def test_no_samples_have_no_loss():
    assert EvaluationSums(0.0, 0).mean_loss == 0


def test_models_of_hugging_face_return_logits_in_an_object():
    outputs, targets = draw(Classification())
    wrapped = SimpleNamespace(logits=outputs)
    assert (
        Classification().evaluation_sums(wrapped, targets).loss
        == Classification().evaluation_sums(outputs, targets).loss
    )
    with pytest.raises(SpecError, match=r"must return a tensor for the task 'classification', got dict"):
        Classification().evaluation_sums({"a": outputs}, targets)


@pytest.mark.parametrize(
    ("task", "fact", "message"),
    [
        (Classification(), {}, "task 'classification': needs class labels"),
        (Classification(class_weights=(1.0,)), {"class_count": 3}, "a weight for each of 3 classes, got 1"),
        (Binary(), {}, "task 'binary': needs class labels"),
        (Binary(), {"class_count": 3}, "needs one label 0 or 1 per sample; 'toy' has 3 classes"),
        (Binary(), {"class_count": 2, "target_shape": (5,)}, r"labels of shape \(5,\)"),
        (Binary(class_weights=(1.0,)), {"class_count": 2}, "a weight for each of 2 classes, got 1"),
        (MultiLabel(), {}, "0 or 1 for each label"),
        (MultiLabel(), {"class_count": 5, "target_shape": (8,)}, "'toy' has class labels"),
        (Regression(), {"class_count": 2}, "'toy' has class labels"),
        (Segmentation(), {"class_count": 2}, "needs a class for every pixel"),
        (Segmentation(), {"target_shape": (4, 4)}, "task 'segmentation': needs class labels"),
        (LanguageModel(), {"class_count": 9}, "needs a token at every position"),
        (LanguageModel(), {"class_count": 9, "target_shape": (4, 4)}, "needs a token at every position"),
    ],
)
def test_targets_that_do_not_fit_are_refused(task, fact, message, facts):
    with pytest.raises((DataError, SpecError), match=message):
        task.prepared(facts(**fact))


@pytest.mark.parametrize(
    ("task", "fact", "shape"),
    [
        (Classification(), {"class_count": 3}, (2, 3)),
        (Classification(), {"class_count": 3, "target_shape": (7,)}, (2, 7, 3)),
        (Binary(), {"class_count": 2}, (2, 1)),
        (MultiLabel(), {"target_shape": (4,)}, (2, 4)),
        (Regression(), {}, (2, 1)),
        (Regression(), {"target_shape": (3,)}, (2, 3)),
        (Segmentation(), {"class_count": 3, "target_shape": (4, 5)}, (2, 3, 4, 5)),
        (LanguageModel(), {"class_count": 11, "target_shape": (6,)}, (2, 6, 11)),
    ],
)
def test_outputs_that_do_not_fit_are_refused(task, fact, shape, facts):
    known = facts(**fact)
    targets = torch.zeros(2, *known.target_shape, dtype=torch.int64 if known.class_count else torch.float32)
    task.check_targets(known)
    task.check_outputs(torch.zeros(shape), targets, known)
    wrong = torch.zeros(*shape, 2)
    with pytest.raises(SpecError, match=r"must return outputs of shape .* for 2 samples \(task "):
        task.check_outputs(wrong, targets, known)
    assert task.output_count(known) == int(np.prod(shape[1:])) or task.output_count(known) == known.class_count


def test_one_number_per_sample_may_have_an_axis_or_none(facts):
    for task, known in ((Regression(), facts()), (Binary(), facts(class_count=2))):
        task.check_outputs(torch.zeros(2), torch.zeros(2), known)
        task.check_outputs(torch.zeros(2, 1), torch.zeros(2), known)


def test_classes_that_are_ruled_out_leave_scores_as_they_are():
    outputs = torch.tensor([[2.0, -torch.inf, 1.0], [0.0, 1.0, -torch.inf]])
    sums = Classification().evaluation_sums(outputs, torch.tensor([0, 1]))
    assert sums.non_finite == 0
    assert Classification().scores(sums)["accuracy"] == 1


def test_samples_without_finite_outputs_add_up():
    outputs = torch.tensor([[2.0, 1.0], [torch.nan, 0.0], [0.0, torch.inf]])
    sums = Classification().evaluation_sums(outputs, torch.tensor([0, 0, 1]))
    assert (sums.non_finite, sums.first_non_finite) == (2, 1)
    both = sums.beginning_at(3) + sums.beginning_at(6)
    assert (both.non_finite, both.first_non_finite, both.weight) == (4, 4, 6)
    assert Classification().scores(both)["accuracy"] is None
    numbers = Regression().evaluation_sums(torch.tensor([1.0, torch.nan]), torch.tensor([1.0, 2.0]))
    assert numbers.non_finite == 1
    assert np.isfinite(np.asarray(numbers.values["moments"])).all()
    task = CustomTask(loss=lambda outputs, targets: outputs[0].sum())
    assert task.evaluation_sums((torch.tensor([torch.nan, 1.0]), 3), torch.zeros(2)).non_finite == 1
