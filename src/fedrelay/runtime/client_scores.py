"""The scores of single clients after one evaluation: a small table, and how they spread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedrelay.metrics.client_spread import ClientSpread, client_spread
from fedrelay.runtime.html_table import html_table
from fedrelay.tasks.task_facts import TaskFacts

Kind = Literal["scores", "fine_tuned", "test"]
"""On a client's held-out samples; on these after fine-tuning; on the test samples, where clients have own models."""

_PREFIX: Mapping[Kind, str] = {"scores": "", "fine_tuned": "fine_tuned_", "test": "test_"}


@dataclass(frozen=True, repr=False)
class ClientScores:
    """Every client of a run, after the last evaluation of single clients.

    Iterate over it for plain rows: `pandas.DataFrame(result.clients)` is a table of them.
    """

    round: int
    """The round of the evaluation."""

    lines: tuple[Mapping[str, Any], ...]
    """The lines of `client_metrics.jsonl` of that round, one for each client in the order of their numbers."""

    task: TaskFacts
    resamples: Mapping[str, Sequence[float | None]]
    """Client → the headline on resamples of its held-out samples, where the run has computed it."""

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """A flat row for each client; `fine_tuned_` begins metrics after fine-tuning, `test_` those on test samples."""
        about = ("round", "client", "name", "train_samples", "held_out")
        for line in self.lines:
            row = {name: line[name] for name in about}
            for kind, prefix in _PREFIX.items():
                row |= {f"{prefix}{name}": value for name, value in line.get(kind, {}).items()}
            yield {**row, "not_evaluated": line.get("not_evaluated", "")}

    def __len__(self) -> int:
        return len(self.lines)

    def __repr__(self) -> str:
        spread = self.spread()
        known = f"{self.task.headline} {spread.mean:.4f} ± {spread.std:.4f}, worst {spread.worst!r}" if spread else ""
        return f"ClientScores({len(self)} clients, round {self.round}{': ' if known else ''}{known})"

    def _repr_html_(self) -> str:
        rows = list(self)
        columns = list(dict.fromkeys(name for row in rows for name in row))
        return html_table(columns, [[_cell(row.get(name)) for name in columns] for row in rows])

    @property
    def names(self) -> list[str]:
        """The names of all clients."""
        return [line["name"] for line in self.lines]

    @property
    def not_evaluated(self) -> dict[str, str]:
        """Client → why it was not evaluated."""
        return {line["name"]: line["not_evaluated"] for line in self.lines if "not_evaluated" in line}

    def values(self, metric: str | None = None, kind: Kind = "scores") -> dict[str, float | None]:
        """Client → a metric, by default that of the run; None where it is not known."""
        wanted = metric or self.task.headline
        return {line["name"]: line.get(kind, {}).get(wanted) for line in self.lines}

    def undefined(self, metric: str | None = None) -> dict[str, str]:
        """Client → why it was evaluated, but a metric has no value there."""
        wanted = metric or self.task.headline
        return {
            line["name"]: why_without_value(self.task, wanted, line)
            for line in self.lines
            if line["scores"] and line["scores"].get(wanted) is None
        }

    def spread(self, metric: str | None = None, kind: Kind = "scores") -> ClientSpread | None:
        """Mean, deviation, worst clients and the effect of size; None where no client has the metric."""
        wanted = metric or self.task.headline
        known = [
            (line["name"], value, line["train_samples"])
            for line in self.lines
            if (value := line.get(kind, {}).get(wanted)) is not None
        ]
        if not known:
            return None
        names, values, sizes = zip(*known, strict=True)
        better = self.task.metric_info(wanted).higher_is_better
        return client_spread(names, values, sizes, higher_is_better=better)

    def summary(self) -> dict[str, Any]:
        """The spread of the metric as plain values, also after fine-tuning, and the clients without it."""
        kinds: tuple[Kind, ...] = ("scores", "fine_tuned") if "fine_tuned" in self.lines[0] else ("scores",)
        spreads = {kind: self.spread(kind=kind) for kind in kinds}
        found = {str(kind): None if each is None else asdict(each) for kind, each in spreads.items()}
        reasons = {"not_evaluated": self.not_evaluated, "undefined": self.undefined()}
        return {"round": self.round, "metric": self.task.headline, **found, **reasons}


def last_client_scores(
    lines: Sequence[Mapping[str, Any]], resamples: Sequence[Mapping[str, Any]], task: TaskFacts
) -> ClientScores | None:
    """The scores of the last evaluation of single clients; None if there was none.

    Args:
        lines: All lines of `client_metrics.jsonl`.
        resamples: All lines of `client_resamples.jsonl`.
        task: What was learned.
    """
    if not lines:
        return None
    round = lines[-1]["round"]
    last = tuple(line for line in lines if line["round"] == round)
    names = {line["client"]: line["name"] for line in last}
    drawn = {names[line["client"]]: line["values"] for line in resamples if line["round"] == round}
    return ClientScores(round, last, task, drawn)


def why_without_value(task: TaskFacts, metric: str, line: Mapping[str, Any]) -> str:
    """Why a metric of a client that was evaluated has no value."""
    finite = line["scores"].get("loss") is not None
    return task.metric_info(metric).why_undefined if finite else "the loss is not finite"


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
