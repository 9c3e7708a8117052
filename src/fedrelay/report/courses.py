"""Learning curves as columns: mean and deviation over seeds, over rounds and over everything a round costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrelay.metrics.curves import mean_std
from fedrelay.report.gathering import Seen
from fedrelay.report.thinning import evenly, significant
from fedrelay.runtime.result import COSTS, Row

MEASURES = ("accuracy", "f1", "loss", "train_loss")


def course(runs: Sequence[Seen], most: int) -> dict[str, Any]:
    """The curves of one method; of each round, over the runs that have got there, whose number goes along."""
    by_round = [{int(row["round"]): row for row in run.history} for run in runs]
    evaluated = sorted(set().union(*by_round))
    shown = evenly(evaluated, most)
    rows = [[rows[number] for rows in by_round if number in rows] for number in shown]
    return {
        "evaluated": len(evaluated),
        **{name: [_mean(each, name) for each in rows] for name in COSTS},
        "seeds": [len(each) for each in rows],
        **{measure: _measured(rows, measure) for measure in MEASURES},
        "runs": [
            {
                "seed": run.seed,
                **{name: [_value(found.get(number, {}), name) for number in shown] for name in (*COSTS, *MEASURES)},
            }
            for run, found in zip(runs, by_round, strict=True)
        ],
    }


def _measured(rows: Sequence[Sequence[Row]], measure: str) -> dict[str, list[float | None]]:
    """Mean and deviation, point by point; None where nobody has a number."""
    found = [[value for row in each if (value := _value(row, measure)) is not None] for each in rows]
    pairs = [mean_std(values) if values else (None, None) for values in found]
    return {
        "mean": [significant(mean) for mean, _ in pairs],
        "std": [significant(std) for _, std in pairs],
    }


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [value for row in rows if (value := _value(row, name)) is not None]
    mean = sum(values) / len(values) if values else None
    return int(mean) if mean is not None and mean.is_integer() else significant(mean, 9)


def _value(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    return significant(value, 9) if isinstance(value, int | float) else None
