from __future__ import annotations

import pytest

from fedrelay.errors import SpecError
from fedrelay.tasks.base import LOSS, MetricInfo
from fedrelay.tasks.binary import Binary
from fedrelay.tasks.classification import Classification
from fedrelay.tasks.custom import CustomTask
from fedrelay.tasks.regression import Regression
from fedrelay.tasks.segmentation import Segmentation
from fedrelay.tasks.task_facts import CLASSIFICATION, TaskFacts, metric_label


def test_the_headline_is_that_of_the_task_or_the_wanted_one():
    assert TaskFacts.of(Classification()) == CLASSIFICATION
    assert (CLASSIFICATION.headline, CLASSIFICATION.headline_info) == ("accuracy", MetricInfo())
    assert CLASSIFICATION.best_possible == 1.0
    assert TaskFacts.of(Binary(), "sensitivity").headline == "sensitivity"
    rmse = TaskFacts.of(Regression())
    assert (rmse.headline, rmse.label, rmse.headline_info, rmse.best_possible) == ("rmse", "RMSE", LOSS, None)
    assert TaskFacts.of(Regression(), "loss").headline_info == LOSS


def test_a_run_is_judged_by_a_single_class_where_the_task_scores_classes():
    facts = TaskFacts.of(Segmentation(), "dice_1", class_count=3)
    assert (facts.headline, facts.headline_info) == ("dice_1", MetricInfo(needs="pixels of class 1"))
    assert (facts.measured_on_clients, "dice_2" in facts.metrics) == ("dice", False)
    assert TaskFacts.from_dict(facts.as_dict()) == facts
    for task, name in ((Segmentation(), "dice_3"), (Segmentation(background=False), "dice_0")):
        with pytest.raises(SpecError, match=f"eval.metric: unknown metric '{name}'.*dice_2"):
            TaskFacts.of(task, name, class_count=3)


def test_an_unknown_metric_is_refused_with_the_known_ones():
    with pytest.raises(SpecError, match=r"eval.metric: unknown metric 'rsme'.*rmse.* for the task 'regression'"):
        TaskFacts.of(Regression(), "rsme")


def test_models_are_compared_on_clients_by_the_tasks_own_headline():
    assert TaskFacts.of(Binary(), "brier").measured_on_clients == "auroc"
    own = CustomTask(loss=max, metrics_of={"one": max, "two": max}, headline_metric="two")
    assert TaskFacts.of(own).measured_on_clients == "two"
    assert TaskFacts.of(CustomTask(loss=max)).measured_on_clients == "loss"


@pytest.mark.parametrize("task", [Classification(), Binary(), Regression()], ids=lambda task: task.name)
def test_facts_come_back_from_plain_values(task):
    facts = TaskFacts.of(task)
    assert TaskFacts.from_dict(facts.as_dict()) == facts


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"name": "x", "headline": "y", "metrics": {}},
        {"name": "x", "headline": "loss", "metrics": 3},
        {"name": 1, "headline": "loss", "metrics": {}},
        {"name": "x", "headline": "a", "metrics": {"a": {}}},
    ],
)
def test_damaged_facts_are_refused(damaged):
    with pytest.raises(ValueError, match=r"it does not say|its headline"):
        TaskFacts.from_dict(damaged)


def test_labels():
    assert [metric_label(name) for name in ("rmse", "r2", "pixel_accuracy")] == ["RMSE", "R²", "pixel accuracy"]
