"""The files that a comparison leaves in its folder: all numbers, a table, the curves."""

from __future__ import annotations

import json
from pathlib import Path

from fedrelay.files import write_atomically
from fedrelay.report.comparison_summary import comparison_csv, comparison_facts
from fedrelay.report.figure_files import save_figures
from fedrelay.report.figure_specs import comparison_curves, privacy_curves
from fedrelay.report.format import as_csv, finite
from fedrelay.runtime.comparison_result import ComparisonResult


def write_comparison_files(outcome: ComparisonResult, folder: Path) -> None:
    """Write `results.json`, `table.csv`, `curves.png` and, with differential privacy, `privacy.png`."""
    write_comparison_numbers(outcome, folder)
    if curves := comparison_curves(outcome):
        save_figures(folder / "curves.png", curves, columns=2)
    if privacy := privacy_curves(outcome):
        save_figures(folder / "privacy.png", [privacy])


def write_comparison_numbers(outcome: ComparisonResult, folder: Path) -> None:
    """Write `results.json`, `table.csv` and, if single clients were evaluated, `gains.csv`."""
    numbers = json.dumps(finite(comparison_facts(outcome)), indent=1, ensure_ascii=False)
    write_atomically(folder / "results.json", f"{numbers}\n".encode())
    write_atomically(folder / "table.csv", comparison_csv(outcome).encode())
    if outcome.clients is not None:
        write_atomically(folder / "gains.csv", as_csv(list(outcome.clients)).encode())
