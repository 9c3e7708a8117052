"""How far a run is, for the terminal; nothing here needs PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.experiment.spec import Experiment
from fedrelay.report.format import count, duration, moment, score, size, times
from fedrelay.report.terminal.table_shapes import facts_grid
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.run_status import RunStatus
from fedrelay.tasks.task_facts import CLASSIFICATION, TaskFacts, metric_label


def progress_table(
    experiment: Experiment,
    last: Row,
    status: RunStatus,
    task: TaskFacts = CLASSIFICATION,
    best: Row | None = None,
    extensions: Sequence[Row] = (),
) -> RenderableType:
    """The progress of a run by its last evaluation, its best model on validation samples, and its status."""
    title = Text(f"{experiment.method} on {experiment.data.name}, seed {experiment.seed}", style="bold")
    if not last:
        rows = {"rounds": f"none of {count(experiment.rounds)} evaluated yet"}
        return Group(title, facts_grid(rows | _status(status)))
    rows = {
        "rounds": f"{count(last['round'])} of {count(experiment.rounds)}",
        task.label: score_or_reason(task, task.headline, last),
        **other_scores(task, last),
        **evaluated_on(last),
        "client updates": count(last.get("client_updates")),
        "traffic": size(last.get("bytes")),
        **({} if experiment.data_at_nodes else {"virtual time": moment(last.get("virtual_seconds"))}),
    }
    if best is not None:
        rows["best model"] = best_line(best)
    if longer := [each for each in extensions if each["from"] != each["to"]]:
        rows["extended"] = ", ".join(f"after round {each['done']} to {each['to']} rounds" for each in longer)
    if experiment.withdrawn:
        left = (f"{name} after round {last}" for name, last in experiment.withdrawn.items())
        rows["withdrawn"] = ", ".join(left)
    return Group(title, facts_grid(rows | _status(status)))


def _status(status: RunStatus) -> dict[str, str]:
    where = f" in round {status.round}" if status.state == "diverged" else ""
    rows = {"state": f"{status.state}{where}" + (f" ({status.reason})" if status.reason else "")}
    if status.stopped:
        rows["stopped"] = status.stopped
    if status.state == "stopped":
        rows["saved"] = f"up to round {count(status.saved_round)}" if status.saved_round else "nothing yet"
        rows["continue with"] = status.continue_with
    if status.seconds:
        choosing = f", {duration(status.selection_seconds)} of it choosing clients" if status.selection_seconds else ""
        rows["time in rounds"] = f"{duration(status.seconds)}{choosing}"
    if status.fault_events:
        rows["fault events"] = times(status.fault_events)
    return rows


def evaluated_on(row: Row) -> dict[str, str]:
    """How many samples metrics are on, where rounds are evaluated on some of them."""
    counts = [
        f"{count(row[key])} {each} samples" for each in ("test", "validation") if (key := f"{each}_samples") in row
    ]
    return {"evaluated on": ", ".join(counts)} if counts else {}


def best_line(best: Mapping[str, Any]) -> str:
    """Which round was best on validation samples."""
    return f"round {count(best['round'])}, {best['metric']} {best['value']:.4g}"


def other_scores(task: TaskFacts, row: Row) -> dict[str, str]:
    """The metrics beside the headline; of classification, the macro F1 alone."""
    names = ("f1",) if task == CLASSIFICATION else tuple(task.metrics)
    others = (name for name in names if name != task.headline)
    return {metric_label(name): score_or_reason(task, name, row) for name in others}


def score_or_reason(task: TaskFacts, name: str, row: Row) -> str:
    """A value of a metric, or why there is none: the model has no finite loss, or what the samples need to have."""
    metric, value = task.metric_info(name), row.get(name)
    needs = f" (needs {metric.needs})" if metric.needs else ""
    reason = " (the loss is not finite)" if row.get("loss", 0.0) is None else needs
    return f"{score(metric, value)}{reason if value is None else ''}"
