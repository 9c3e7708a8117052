"""The files and the page of a sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fedrelay.experiment.sweep_cells import axis_names
from fedrelay.files import make_folder, write_atomically
from fedrelay.report.comparison_files import write_comparison_numbers
from fedrelay.report.figure_files import COLUMN, save_figures
from fedrelay.report.format import count, finite
from fedrelay.report.load_sweep import load_sweep
from fedrelay.report.palette import line_style
from fedrelay.report.paper_files import write_tables_and_figures
from fedrelay.report.paper_table import Cell
from fedrelay.report.sweep_figures import sweep_figures
from fedrelay.report.sweep_summary import (
    cell_states,
    statement_of_sweep,
    sweep_caption,
    sweep_csv,
    sweep_facts,
    sweep_rows,
    sweep_table,
)
from fedrelay.runtime.sweep_result import SweepResult
from fedrelay.runtime.versions import __version__


def write_sweep_files(result: SweepResult, folder: Path) -> None:
    """Write `results.json`, `table.csv` and `sweep.png`, and the numbers of every cell's comparison."""
    for cell, outcome in zip(result.cells, result.outcomes, strict=True):
        write_comparison_numbers(outcome, folder / cell.folder)
    numbers = json.dumps(finite(sweep_facts(result)), indent=1, ensure_ascii=False)
    write_atomically(folder / "results.json", f"{numbers}\n".encode())
    write_atomically(folder / "table.csv", sweep_csv(result).encode())
    if figures := list(sweep_figures(result).values()):
        save_figures(folder / "sweep.png", figures, columns=2)


def write_sweep_figures(result: SweepResult, folder: Path, kind: str) -> list[Path]:
    """Write every figure to a file of its own."""
    make_folder(folder)
    written = []
    for name, figure in sweep_figures(result).items():
        written.append(folder / f"{_safe(name)}.{kind}")
        save_figures(written[-1], [figure])
    return written


def write_sweep_paper(result: SweepResult, folder: Path, width: float = COLUMN) -> list[Path]:
    """Write the table as LaTeX, Markdown and CSV, and the figures as PDF and SVG."""
    figures = [(_safe(name), figure) for name, figure in sweep_figures(result).items()]
    return write_tables_and_figures([sweep_table(result)], figures, {}, folder, width)


def _safe(name: str) -> str:
    return "".join(each if each.isalnum() or each in "+-_." else "_" for each in name)


def sweep_document(folder: Path, baseline: str | None = None) -> dict[str, Any]:
    """The page of a sweep: figures and table over the swept settings, then its cells."""
    result, states = load_sweep(folder, baseline)
    comparison, table = result.comparison, sweep_table(result)
    names, figures = axis_names(comparison.sweep), sweep_figures(result)
    methods = [entry.name for entry in comparison.methods]
    runs = len(result.cells) * len(methods) * len(comparison.seeds)
    done = states.get("complete", 0)
    card = {
        "name": "sweep",
        "choices": [
            {
                "name": "figure",
                "label": "Shown",
                "style": "segments" if len(figures) < 4 else "select",
                "options": [[name, figure["title"]] for name, figure in figures.items()],
            }
        ],
        "legend": [{"name": name, **line_style("method", number)} for number, name in enumerate(methods)]
        if len(names) == 1
        else None,
        "figures": figures,
        "empty": "No run has a result yet.",
    }
    rows = [[_page_cell(cell) for cell in row] for row in table.rows]
    scores = {"name": "scores", "figures": {}, "table": {"columns": list(table.columns), "rows": rows}, "empty": ""}
    cells = [
        [cell.name, cell_states(cell, outcome), f"fedrelay report {folder / cell.folder}"]
        for cell, outcome in zip(result.cells, result.outcomes, strict=True)
    ]
    facts = {
        "data": comparison.data.name,
        **{name: ", ".join(map(str, values)) for name, values in zip(names, comparison.sweep.values(), strict=True)},
        **(
            {} if comparison.data.clients is None or "clients" in names else {"clients": count(comparison.data.clients)}
        ),
        **({} if "rounds" in names else {"rounds": count(comparison.rounds)}),
        "seeds": ", ".join(map(str, comparison.seeds)),
        "baseline": result.outcomes[0].baseline.name,
    }
    return {
        "fedrelay": __version__,
        "title": f"{', '.join(methods)} by {' and '.join(names)}",
        "facts": facts,
        "folders": [str(folder)],
        "states": states,
        "runs_in_all": runs,
        "methods": [{"name": name} for name in methods],
        "headlines": [{"number": f"{done} of {runs}", "text": "runs complete"}],
        "tuning": statement_of_sweep(result),
        "sections": [
            {
                "id": "sweep",
                "title": f"By {' and '.join(names)}",
                "lead": sweep_caption(result),
                "cards": [card, scores],
            },
            {
                "id": "cells",
                "title": "Cells",
                "lead": "Every cell is a comparison of its own, with its own page.",
                "cards": [
                    {
                        "name": "cells",
                        "figures": {},
                        "table": {"columns": ["Cell", "runs", "its page"], "rows": cells},
                        "empty": "",
                    }
                ],
            },
        ],
        "tables": {
            "sweep": (numbers := sweep_rows(result)),
            "scores": numbers,
            "cells": [{"cell": name, "runs": text} for name, text, _ in cells],
        },
    }


def _page_cell(cell: Cell) -> dict[str, Any]:
    return {"text": cell.text + ("*" if cell.marked else ""), "bold": cell.bold}
