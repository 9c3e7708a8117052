"""Numbers and tables as text."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from fedrelay.experiment.sections import StepRule, TrainSettings
from fedrelay.tasks.metric_info import MetricInfo

if TYPE_CHECKING:
    from fedrelay.tasks.task_facts import TaskFacts

PERCENT = MetricInfo()
"""A share of which more is better, such as accuracy."""

NONE = "–"
"""Shown for a missing value."""

Level = Mapping[str, float | None]
"""`mean` and `std` over seeds; both are None without a value."""

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def percent(share: float | None, digits: int = 1) -> str:
    """0.961 → `96.1 %`."""
    return NONE if share is None or math.isnan(share) else f"{100 * share:.{digits}f} %"


def score(metric: MetricInfo, value: float | None) -> str:
    """A value of a metric: `96.1 %`, or `0.8214` where it is no share."""
    if metric.percent or value is None or math.isnan(value):
        return percent(value)
    return f"{value:.4g}"


def score_name(task: TaskFacts) -> str:
    """The headline with its unit, for the head of a column: `accuracy %`, `RMSE`."""
    return f"{task.label} %" if task.headline_info.percent else task.label


def spread(level: Level, runs: int, metric: MetricInfo = PERCENT) -> str:
    """Mean and standard deviation, `96.1 ± 0.4` in percent; no deviation for a single run."""
    mean, std = level["mean"], level["std"] or 0
    if mean is None or math.isnan(mean):
        return NONE
    if metric.percent:
        return f"{100 * mean:.1f}" + (f" ± {100 * std:.1f}" if runs > 1 else "")
    return f"{mean:.4g}" + (f" ± {std:.2g}" if runs > 1 else "")


def difference(metric: MetricInfo, value: float | None) -> str:
    """A difference of two scores with its sign."""
    if value is None or math.isnan(value):
        return NONE
    return metric.difference(value)


def interval(metric: MetricInfo, ends: tuple[float, float] | None) -> str:
    """The interval of a difference: `[+1.0, +5.2]`."""
    return NONE if ends is None else f"[{difference(metric, ends[0])}, {difference(metric, ends[1])}]"


def p_value(value: float | None) -> str:
    """0.0123 → `0.012`, 0.0001 → `< 0.001`."""
    return NONE if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}" if value < 0.1 else f"{value:.2f}"


def count(number: float | None) -> str:
    """1200 → `1,200`; 46.5 → `46.5`."""
    if number is None:
        return NONE
    return f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"


def whole(number: float | None) -> str:
    """1196.7 → `1,197`."""
    return count(None if number is None else round(number))


def tenths(number: float | None) -> str:
    """46.54 → `46.5`; 46.04 → `46`."""
    return count(None if number is None else round(number, 1))


def size(number: float | None) -> str:
    """25396800 → `25.4 MB`; units are powers of 1000."""
    if number is None:
        return NONE
    power = 0
    while power < len(_UNITS) - 1 and round(number, 1 if power else 0) >= 1000:
        number, power = number / 1000, power + 1
    return f"{number:.{1 if power else 0}f} {_UNITS[power]}"


def duration(seconds: float | None) -> str:
    """Seconds below a minute, then `3:20` or `1:02:05`."""
    if seconds is None or not math.isfinite(seconds):
        return NONE
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def moment(seconds: float | None) -> str:
    """Like `duration`, but `12.5 ms` below a second."""
    return duration(seconds) if seconds is None or not 0 < seconds < 1 else f"{1000 * seconds:.3g} ms"


def factor(ratio: float) -> str:
    """`12×`, `1.9×`, `0.03×`."""
    return f"{ratio:.0f}×" if ratio >= 10 else f"{ratio:.1f}×" if ratio >= 0.1 else f"{ratio:.1g}×"


def plural(number: int, noun: str) -> str:
    """`1 client`, `20 clients`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def work_per_hop(train: TrainSettings) -> str:
    """`2 epochs`, `20 steps`, `1 epoch of an average client`, with what is special about its batches."""
    if isinstance(train.steps, int):
        work = plural(train.steps, "step")
    else:
        work = plural(train.epochs, "epoch") + _WORK_OF_CLIENTS[train.steps]
    return work if train.batches == "shuffled" else f"{work} of {train.batches} batches"


_WORK_OF_CLIENTS: dict[StepRule, str] = {
    "by-size": "",
    "equal": " of an average client",
    "inverse-size": " of an average client, the more the smaller the client",
}


def step_size(train: TrainSettings) -> str:
    """`0.05`, or with what changes it: `0.05 × 0.998 after every round`, `0.05, cosine, gradients clipped at 1`."""
    schedule, chain = train.schedule, train.chain_schedule
    parts = [f"{train.lr:g}" if train.optimizer == "sgd" else f"{train.lr:g} ({train.optimizer})"]
    if schedule.name == "step":
        every = "round" if schedule.every == 1 else f"{schedule.every} rounds"
        parts[0] += f" × {schedule.factor:g} after every {every}"
    elif schedule.name == "warmup":
        parts.append(f"{schedule.rounds} rounds of warm-up{', then cosine' if schedule.then == 'cosine' else ''}")
    elif schedule.name == "cosine":
        parts.append("cosine")
    if schedule.floor:
        parts[-1] += f" to × {schedule.floor:g}"
    if chain.end is not None:
        parts.append(f"along chains {chain.name} to × {chain.end:g}")
    if train.clip:
        parts.append(f"gradients clipped at {train.clip:g}")
    return ", ".join(parts)


def setting(value: Any) -> str:
    """A setting as specs write it: `true`, `[{what: dropout, rate: 0.3}]`; what is not set is left out."""
    if not isinstance(value, list | dict | bool):
        return str(value)
    text: str = yaml.safe_dump(_only_set(value), default_flow_style=True, sort_keys=False, width=math.inf)
    return text.removesuffix("...\n").strip()


def _only_set(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _only_set(below) for name, below in value.items() if below is not None}
    return [_only_set(each) for each in value] if isinstance(value, list) else value


def settings_line(settings: Mapping[str, Any]) -> str:
    """`lr 0.2, terms.prox.mu 0.1`."""
    return ", ".join(f"{name.removeprefix('train.')} {setting(value)}" for name, value in settings.items())


def shortened(items: Sequence[object], most: int, separator: str) -> str:
    """Join all items, or the first and the last of many."""
    if len(items) <= most:
        return separator.join(map(str, items))
    tail = most // 3
    return separator.join([*map(str, items[: most - tail]), "…", *map(str, items[len(items) - tail :])])


def times(events: Mapping[str, int]) -> str:
    """`dropout 12×, nan 3×`."""
    return ", ".join(f"{what} {count(number)}×" for what, number in sorted(events.items()))


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as CSV; columns are in the order of their first appearance."""
    text = io.StringIO()
    columns = dict.fromkeys(column for row in rows for column in row)
    writer = csv.DictWriter(text, fieldnames=list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _csv_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    """Quote text that a spreadsheet would run as a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def finite(value: Any) -> Any:
    """The value with None in place of numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): finite(below) for name, below in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(below) for below in value]
    return value
