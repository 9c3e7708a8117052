"""What a sweep gives back: a comparison for every cell. Reading it needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrelay.experiment.spec import Comparison, full_path
from fedrelay.experiment.sweep_cells import SweepCell
from fedrelay.notebook_display import NotebookDisplay
from fedrelay.runtime.comparison_result import ComparisonResult
from fedrelay.tasks.task_facts import TaskFacts


@dataclass(frozen=True, repr=False)
class SweepResult(NotebookDisplay):
    """The comparisons of a sweep, cell by cell."""

    comparison: Comparison
    cells: tuple[SweepCell, ...]
    outcomes: tuple[ComparisonResult, ...]
    """One for each cell."""

    def __repr__(self) -> str:
        axes = ", ".join(f"{path} ({len(values)} values)" for path, values in self.comparison.sweep.items())
        return f"SweepResult({axes}; methods: {len(self.comparison.methods)}, seeds: {len(self.comparison.seeds)})"

    @property
    def task(self) -> TaskFacts:
        """What was learned, and the metric that methods are compared by."""
        known = [each for each in self.outcomes if any(method.results for method in each.methods)]
        return (known or list(self.outcomes))[0].task

    def at(self, values: Mapping[str, Any]) -> ComparisonResult:
        """The comparison of one cell: `result.at({"alpha": 0.1})`.

        Raises:
            KeyError: There is no such cell.
        """
        wanted = {full_path(key): value for key, value in values.items()}
        for cell, outcome in zip(self.cells, self.outcomes, strict=True):
            if cell.values == wanted:
                return outcome
        raise KeyError(f"no cell {wanted}; the sweep has {'; '.join(cell.name for cell in self.cells)}")
