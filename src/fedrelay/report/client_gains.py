"""Every client with every method, as plain values for pages, tables and files."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fedrelay.report.format import NONE, count, difference, score
from fedrelay.report.page_limits import evenly
from fedrelay.runtime.client_comparison import LEAST_SAMPLES, ClientComparison, ClientGain, shown_name
from fedrelay.runtime.comparison_result import ComparisonResult
from fedrelay.tasks.metric_info import MetricInfo

FEW_CLIENTS = 12
"""Up to this many clients, tables show each; above that, how they spread."""

INTERVALS_IN_WORDS = (
    "Whiskers span two 95 % intervals: Student's t of differences over seeds, and a bootstrap over held-out samples. "
    "With one seed there is only the second. They are not corrected for the number of clients. "
    f"With fewer than {LEAST_SAMPLES} held-out samples, or nearly none of a class, nothing is certain."
)

INTERVALS_AT_NODES = (
    "Whiskers span the 95 % interval over seeds alone, Student's t of differences. Nodes send no resamples, so it does "
    "not show how much depends on the held-out samples: with other samples a gain or a loss may turn. They are not "
    "corrected for the number of clients."
)


def gain_facts(outcome: ComparisonResult, most: int) -> dict[str, Any] | None:
    """What a page shows of single clients; None if they were not evaluated.

    Args:
        outcome: The comparison.
        most: The most clients that are kept of each method.
    """
    found = outcome.clients
    if found is None:
        return None
    rows = list(found)
    return {
        "alone": found.alone,
        "clients": max(len(each) for each in found.gains.values()),
        "methods": {name: _method(found, name, most) for name in found.gains},
        "columns": {name: [row[name] for row in rows] for name in rows[0]},
    }


def _method(found: ClientComparison, name: str, most: int) -> dict[str, Any]:
    spread = found.spread(name)
    effects = [each.effect for each in found.gains[name]]
    return {
        "who_loses": found.who_loses(name) if name in found.compared else "",
        "spread": None if spread is None else asdict(spread),
        "effects": {each: effects.count(each) for each in ("gains", "unclear", "loses")},
        "rows": [
            {
                "name": shown_name(each.name),
                "samples": each.train_samples,
                "held_out": each.held_out,
                "score": each.score,
                "gain": each.gain,
                "ends": hull(each),
                "effect": each.effect,
                "reason": each.reason,
            }
            for each in evenly(found.gains[name], most)
        ],
    }


def hull(client: ClientGain) -> tuple[float, float] | None:
    """From the lowest to the highest end of the known intervals: it lies on one side of 0 where all of them do."""
    known = [each for each in (client.interval_over_seeds, client.over_samples) if each is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def client_table(facts: dict[str, Any], metric: MetricInfo) -> tuple[list[str], list[list[dict[str, Any]]]]:
    """Columns and rows: for each client its samples, and for each method its score and its gain."""
    columns = ["Client", "train", "held out", *facts["methods"]]
    by_method = [method["rows"] for method in facts["methods"].values()]
    rows = [
        [
            {"text": first["name"]},
            {"text": count(first["samples"])},
            {"text": count(first["held_out"])},
            *(_cell(each, metric) for each in (first, *others)),
        ]
        for first, *others in zip(*by_method, strict=False)
    ]
    return columns, rows


def _cell(row: dict[str, Any], metric: MetricInfo) -> dict[str, Any]:
    if row["score"] is None:
        return {"text": NONE, "chips": [{"text": row["reason"], "kind": "waiting", "title": row["reason"]}]}
    small = f" {difference(metric, row['gain'])}" if row["gain"] is not None else ""
    return {"text": score(metric, row["score"]), "small": small, "bold": row["effect"] in ("gains", "loses")}


def score_and_gain(row: dict[str, Any], metric: MetricInfo) -> str:
    """The score of a client, without the unit, and its gain: `92.9 +0.5`."""
    if row["score"] is None:
        return NONE
    gain = f" {difference(metric, row['gain'])}" if row["gain"] is not None else ""
    return f"{score(metric, row['score']).removesuffix(' %')}{gain}"


def interval_of_gain(row: dict[str, Any], metric: MetricInfo) -> str:
    """What the 95 % intervals of a client's gain span together: `-2.0 … +2.7`; empty where none is known."""
    ends = row["ends"]
    return " … ".join(difference(metric, end) for end in ends) if ends is not None and row["gain"] is not None else ""


def spread_table(facts: dict[str, Any], metric: MetricInfo) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: how the metric of each method spreads over clients, and how many gain."""
    columns = ["Method", "mean", "std", "worst client", "worst tenth", "correlation with size"]
    columns += ["gain", "unclear", "lose"] if facts["alone"] else []
    rows = []
    for name, method in facts["methods"].items():
        spread = method["spread"]
        if spread is None:
            rows.append([name, *[NONE] * (len(columns) - 1)])
            continue
        correlation = spread["size_correlation"]
        row = [name, *(score(metric, spread[each]) for each in ("mean", "std"))]
        row += [
            f"{shown_name(spread['worst'])}: {score(metric, spread['worst_value'])}",
            score(metric, spread["worst_decile"]),
        ]
        row.append(NONE if correlation is None else f"{correlation:+.2f}")
        if facts["alone"]:
            counts = method["effects"].values() if name != facts["alone"] else ()
            row += [str(each) for each in counts] or [NONE] * 3
        rows.append(row)
    return columns, rows
