"""Tables of a sweep for a terminal of 80 columns."""

from __future__ import annotations

import shlex
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from fedrelay.experiment.spec import Comparison
from fedrelay.experiment.sweep_cells import SweepCell
from fedrelay.report.format import count
from fedrelay.report.paper_table import MARK
from fedrelay.report.sweep_summary import cell_states, sweep_table
from fedrelay.report.terminal.table_shapes import facts_grid, plain_table
from fedrelay.runtime.sweep_result import SweepResult

COLUMNS = 4
"""Values side by side; more go below."""


def sweep_tables(result: SweepResult) -> RenderableType:
    """Scores by the swept values, what marks mean, and runs that failed."""
    content = sweep_table(result)
    names, parts = content.names, list[RenderableType]()
    for start in range(names, len(content.columns), COLUMNS):
        shown = [*range(names), *range(start, min(start + COLUMNS, len(content.columns)))]
        table = plain_table(*(content.columns[place] for place in shown), numeric=True)
        for row in content.rows:
            cells = [row[place] for place in shown]
            table.add_row(
                *(Text(each.text + (MARK if each.marked else ""), style="bold" if each.bold else "") for each in cells)
            )
        parts += [table, Text()]
    failed = [
        Text(f"  {cell.name}: {cell_states(cell, outcome)}", style="yellow")
        for cell, outcome in zip(result.cells, result.outcomes, strict=True)
        if any(method.failed for method in outcome.methods)
    ]
    return Group(*parts, Padding(Text(content.caption, style="dim"), (0, 0, 0, 2)), *failed)


def sweep_advice(result: SweepResult) -> RenderableType:
    """Where the files of a sweep are, and what to do next."""
    out = result.comparison.out
    rows = {
        "figures": f"{out}/sweep.png",
        "table": f"{out}/table.csv",
        "results": f"{out}/results.json",
        "one cell": f"fedrelay report {shlex.quote(str(result.cells[0].comparison.out))}",
        "report": f"fedrelay report {shlex.quote(str(out))}",
    }
    return facts_grid(rows)


def planned_runs_facts(comparison: Comparison, cells: list[SweepCell]) -> dict[str, Any]:
    """Return what `compare --dry-run --json` prints."""
    per_cell = len(comparison.methods) * len(comparison.seeds)
    return {
        "methods": [entry.name for entry in comparison.methods],
        "seeds": list(comparison.seeds),
        "sweep": {path: list(values) for path, values in comparison.sweep.items()},
        "cells": [cell.folder for cell in cells],
        "runs": per_cell * max(1, len(cells)),
    }


def planned_runs(facts: dict[str, Any]) -> RenderableType:
    """How many runs a comparison has."""
    rows = {"methods": ", ".join(facts["methods"]), "seeds": ", ".join(map(str, facts["seeds"]))}
    rows |= {path: ", ".join(map(str, values)) for path, values in facts["sweep"].items()}
    rows["runs"] = count(facts["runs"])
    return Group(facts_grid(rows), Text("  Every run was checked. Nothing was run.", style="dim"))
