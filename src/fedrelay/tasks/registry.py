"""All tasks by name, and how a task is built from the settings of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from fedrelay.errors import SpecError
from fedrelay.experiment.error_messages import unknown
from fedrelay.experiment.spec import validate
from fedrelay.tasks.base import Task
from fedrelay.tasks.binary import Binary
from fedrelay.tasks.classification import Classification
from fedrelay.tasks.language_model import LanguageModel
from fedrelay.tasks.multilabel import MultiLabel
from fedrelay.tasks.regression import Regression
from fedrelay.tasks.segmentation import Segmentation
from fedrelay.user_code import find_value, is_code_reference, module_of_reference

TASKS: dict[str, type[Task]] = {
    task.name: task for task in (Classification, Binary, MultiLabel, Regression, Segmentation, LanguageModel)
}
"""The built-in tasks."""


def build_task(settings: Mapping[str, Any], default: str) -> Task:
    """The task that settings describe.

    Args:
        settings: The section `task` of an experiment: a name and the options of that task.
        default: The task of the data, where no name is given.

    Raises:
        SpecError: The task or one of its options is unknown or not valid.
    """
    options = {**settings}
    name = options.pop("name", default)
    if not isinstance(name, str):
        raise SpecError(f"task.name: must be a name, got {name!r}")
    if not is_code_reference(name):
        if name not in TASKS:
            raise SpecError(f"task.name: {unknown('task', name, TASKS)}; or your own as MODULE:CLASS")
        return validate(TASKS[name], options, "task.")
    found = find_value(name)
    if isinstance(found, Task):  # a value of the module, such as a CustomTask
        if options:
            raise SpecError(f"task.{next(iter(options))}: has no effect on {name}, which is complete")
        return found
    if not isinstance(found, type) or not issubclass(found, Task):
        what = "does not exist" if found is None else "is neither a subclass nor an instance of fedrelay.Task"
        module = module_of_reference(name)
        raise SpecError(f"task.name: {name} {what}; {module} has {', '.join(_tasks_in(module)) or 'no tasks'}")
    if missing := _missing_parts(found):
        raise SpecError(f"task.name: {name} is not complete; define {', '.join(missing)}, as fedrelay.Task says")
    return validate(found, options, "task.")


def _tasks_in(module: str) -> list[str]:
    """The names of all tasks of a module, without those that it only imports."""
    return [
        name
        for name, value in vars(import_module(module)).items()
        if isinstance(value, Task)
        or (isinstance(value, type) and issubclass(value, Task) and value.__module__ == module)
    ]


def _missing_parts(task: type[Task]) -> list[str]:
    """What a class must still define to be a task."""
    facts = [each for each in ("name", "metrics") if not hasattr(task, each) and each not in task.model_fields]
    return [*facts, *sorted(task.__abstractmethods__)]
