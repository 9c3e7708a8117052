from __future__ import annotations

import pytest

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.tasks.binary import Binary
from fedrelay.tasks.classification import Classification
from fedrelay.tasks.registry import TASKS, build_task
from fedrelay.tasks.regression import Regression

OWN = """
import fedrelay as fr
from fedrelay.tasks.custom import CustomTask
from fedrelay.tasks.regression import Regression


class Doubled(Regression):
    factor: float = 2.0

    def batch_loss(self, outputs, targets):
        return self.factor * super().batch_loss(outputs, targets)


class Quantiles(fr.Task):
    def batch_loss(self, outputs, targets):
        return (outputs - targets).abs().mean()


complete = CustomTask(loss=lambda outputs, targets: (outputs.flatten() - targets).abs().mean())
number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_tasks.py").write_text(OWN)


def test_tasks_by_name():
    assert build_task({}, "classification") == Classification()
    assert build_task({"name": "binary"}, "classification") == Binary()
    assert build_task({"loss": "huber", "delta": 2}, "regression") == Regression(loss="huber", delta=2)
    assert list(TASKS) == ["classification", "binary", "multilabel", "regression", "segmentation", "language-model"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "regresion"}, "task.name: unknown task 'regresion'.*regression.*MODULE:CLASS"),
        ({"name": 3}, "task.name: must be a name, got 3"),
        ({"name": "regression", "loss": "cubic"}, "task.loss"),
        ({"name": "regression", "delta": 2}, "task.*delta: has no effect with the loss 'mse'"),
        ({"class_weights": [-1, 1]}, "task.class_weights"),
        ({"label_smoothing": 1}, "task.label_smoothing"),
        ({"nope": 1}, "task.nope"),
        (
            {"name": "own_tasks:nope"},
            "task.name: own_tasks:nope does not exist; own_tasks has Doubled, Quant",
        ),
        ({"name": "own_tasks:number"}, "is neither a subclass nor an instance of fedrelay.Task; own_tasks has "),
        (
            {"name": "own_tasks:complete", "loss": 1},
            "task.loss: has no effect on own_tasks:complete, which is complete",
        ),
        ({"name": "own_tasks:Doubled", "factor": "much"}, "task.factor"),
        (
            {"name": "own_tasks:Quantiles"},
            "^task.name: own_tasks:Quantiles is not complete; define name, metrics, check_targets, .*output_shape",
        ),
        ({"name": "no_such_module:Task"}, "cannot import no_such_module"),
    ],
)
def test_refusals(settings, message, own):
    with pytest.raises(SpecError, match=message):
        build_task(settings, "classification")


def test_own_tasks_by_module_and_name(own):
    assert build_task({"name": "own_tasks:Doubled", "factor": 3}, "regression").factor == 3
    assert isinstance(build_task({"name": "own_tasks:complete"}, "regression"), fr.Task)
