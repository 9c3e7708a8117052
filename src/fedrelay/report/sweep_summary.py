"""A sweep in numbers, the same for the terminal, the page, CSV, JSON and papers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import fmean, stdev
from typing import Any

from fedrelay.experiment.sweep_cells import SweepCell, axis_names
from fedrelay.metrics.paired_differences import margin_of_mean
from fedrelay.report.comparison_summary import DIFFERENCES_IN_WORDS, difference_facts, seed_notes
from fedrelay.report.format import as_csv, plural, spread
from fedrelay.report.paper_table import MARK, Cell, PaperTable
from fedrelay.report.tuning_statement import Statement, tuning_statement
from fedrelay.runtime.comparison_result import ComparisonResult, MethodResults
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.sweep_result import SweepResult


def sweep_rows(result: SweepResult) -> list[Row]:
    """One row for every cell and method: the swept values, the score, and the difference to the baseline."""
    return [
        {**cell.values, **row}
        for cell, outcome in zip(result.cells, result.outcomes, strict=True)
        for row in _cell_rows(outcome)
    ]


def _cell_rows(outcome: ComparisonResult) -> Iterator[Row]:
    differences, best = difference_facts(outcome)["methods"], _best(outcome)
    for method in outcome.methods:
        scores = [score for score in method.scores.values() if not math.isnan(score)]
        found = differences.get(method.name, {})
        yield {
            "method": method.name,
            "runs": len(scores),
            "failed": len(method.failed),
            "mean": fmean(scores) if scores else None,
            "std": stdev(scores) if len(scores) > 1 else None,
            "margin": margin_of_mean(stdev(scores), len(scores)) if len(scores) > 1 else None,
            "best": method is best,
            **{
                f"difference_{name}": found.get(name)
                for name in ("mean", "low", "high", "effect_size", "adjusted_p_value")
            },
            "more_than_chance": found.get("more_than_chance"),
        }


def _best(outcome: ComparisonResult) -> MethodResults | None:
    """The best federated method without failed seeds; None with fewer than two methods to choose from."""
    known = [
        method
        for method in outcome.methods
        if method.training == "federated"
        and not method.failed
        and method.results
        and not any(map(math.isnan, method.scores.values()))
    ]
    gain = outcome.task.headline_info.gain
    return max(known, key=lambda method: gain(fmean(method.scores.values()))) if len(known) > 1 else None


def sweep_facts(result: SweepResult) -> dict[str, Any]:
    """Return the content of `results.json` and `--json`."""
    return {
        "task": result.task.name,
        "metric": result.task.headline,
        "measure": f"{result.task.headline}_last",
        "higher_is_better": result.task.headline_info.higher_is_better,
        "sweep": {path: list(values) for path, values in result.comparison.sweep.items()},
        "methods": [entry.name for entry in result.comparison.methods],
        "seeds": list(result.comparison.seeds),
        "baseline": result.outcomes[0].baseline.name,
        "cells": [
            {
                "values": dict(cell.values),
                "folder": cell.folder,
                "methods": {row.pop("method"): row for row in _cell_rows(outcome)},
                "notes": list(seed_notes(outcome)),
            }
            for cell, outcome in zip(result.cells, result.outcomes, strict=True)
        ],
        **DIFFERENCES_IN_WORDS,
        "tuning": statement_of_sweep(result),
        "out": str(result.comparison.out) if result.comparison.out else None,
    }


def statement_of_sweep(result: SweepResult) -> Statement:
    """What was tuned: as in a comparison, apart from what is swept."""
    found = tuning_statement(result.outcomes[0])
    swept = " and ".join(result.comparison.sweep)
    vary = "vary" if len(result.comparison.sweep) > 1 else "varies"
    if found["differing"]:
        return {**found, "text": f"{found['text']} From cell to cell, {swept} {vary}, alike for all methods."}
    text = f"Nothing was tuned: in every cell, one set of hyperparameters for all methods; {swept} {vary}."
    return {**found, "text": text}


def sweep_csv(result: SweepResult) -> str:
    """Return the content of `table.csv`."""
    return as_csv(sweep_rows(result))


def sweep_table(result: SweepResult) -> PaperTable:
    """Methods by the values of the swept setting; with two settings, the second one has the columns."""
    axes = list(result.comparison.sweep.values())
    names, columns = axis_names(result.comparison.sweep), axes[-1]
    outers: list[tuple[Any, ...]] = [(value,) for value in axes[0]] if len(axes) > 1 else [()]
    found = {(*(row[path] for path in result.comparison.sweep), row["method"]): row for row in sweep_rows(result)}
    rows = []
    for method in (entry.name for entry in result.comparison.methods):
        for outer in outers:
            cells = [_score_cell(result, found[(*outer, value, method)], f"{names[-1]}={value}") for value in columns]
            rows.append((Cell(method), *(Cell(str(value)) for value in outer), *cells))
    heads = ("Method", *names[:-1], *(f"{names[-1]} {value}" for value in columns))
    return PaperTable("sweep", sweep_caption(result), heads, tuple(rows), names=1 + len(names[:-1]))


def _score_cell(result: SweepResult, row: Row, prefix: str) -> Cell:
    numbers = {f"{prefix} {name}": row[name] for name in ("mean", "std", "more_than_chance")}
    text = spread({"mean": row["mean"], "std": row["std"]}, row["runs"], result.task.headline_info)
    return Cell(text, numbers, bold=row["best"], marked=bool(row["more_than_chance"]))


def sweep_caption(result: SweepResult) -> str:
    """Metric, data, rounds, seeds, what marks mean, what was tuned."""
    comparison, info = result.comparison, result.task.headline_info
    unit, direction = " in percent" if info.percent else "", "higher" if info.higher_is_better else "lower"
    swept = " and ".join(axis_names(comparison.sweep))
    seeds = len(comparison.seeds)
    deviation = "mean ± standard deviation over" if seeds > 1 else "with"
    rounds = "" if "rounds" in comparison.sweep else f", {plural(comparison.rounds, 'round')}"
    sentences = [
        f"Test {result.task.label}{unit} on {comparison.data.name}{rounds}, by {swept}: {deviation} "
        f"{plural(seeds, 'seed')} of the mean of the last evaluations; {direction} is better.",
        "Bold: the best federated method without failed seeds.",
        f"{MARK}: the difference to {result.outcomes[0].baseline.name} is more than chance in this cell "
        f"({DIFFERENCES_IN_WORDS['test']})."
        if seeds > 1
        else "One seed: no deviation, no test; use at least three seeds.",
        "Two seeds tell little; use at least three." if seeds == 2 else "",
        statement_of_sweep(result)["text"],
    ]
    return " ".join(filter(None, sentences))


def cell_states(cell: SweepCell, outcome: ComparisonResult) -> str:
    """`6 of 6 runs`, with failures."""
    done = sum(len(method.results) for method in outcome.methods)
    failed = sum(len(method.failed) for method in outcome.methods)
    planned = len(cell.comparison.methods) * len(cell.comparison.seeds)
    return f"{done} of {plural(planned, 'run')}" + (f", {failed} failed" if failed else "")
