"""Reads the folder of a sweep, in whatever state it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Comparison, validate
from fedrelay.experiment.sweep_cells import sweep_cells
from fedrelay.report.load_runs import ReportRuns, compared_methods
from fedrelay.runtime.comparison_result import load_comparison
from fedrelay.runtime.spec_files import COMPARISON_SPEC
from fedrelay.runtime.sweep_result import SweepResult


def only_sweep(folders: Sequence[Path]) -> Path | None:
    """The folder, if it holds a sweep.

    Raises:
        SpecError: There are other folders, too.
    """
    found = [folder for folder in folders if (folder / COMPARISON_SPEC).is_file() and load_comparison(folder).sweep]
    if found and len(folders) > 1:
        raise SpecError(f"{found[0]}: is a sweep, which has a page of its own; give it alone, or its cells without it")
    return found[0] if found else None


def load_sweep(folder: Path, baseline: str | None = None) -> tuple[SweepResult, dict[str, int]]:
    """Read a sweep as far as it is, and count the states of its runs.

    Raises:
        RunFolderError: The folder is damaged.
        SpecError: The baseline is none of the methods.
    """
    comparison = load_comparison(folder)
    if baseline is not None:
        tree = {**comparison.model_dump(), "baseline": baseline}
        comparison = validate(Comparison, tree)
    cells = tuple(sweep_cells(comparison))
    loaded = [
        ReportRuns(
            (folder / cell.folder,), cell.comparison, tuple(compared_methods(folder / cell.folder, cell.comparison))
        )
        for cell in cells
    ]
    states = Counter(str(run.state) for each in loaded for _, run in each.runs)
    return SweepResult(comparison, cells, tuple(each.outcome for each in loaded)), dict(states)
