"""One comparison for every cell of a sweep. Running it again continues whatever is not complete.

A sweep folder holds `comparison.yaml`, with the sweep, and one comparison folder for every cell: `alpha=0.1/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedrelay.data.own_data_per_seed import OwnData
from fedrelay.errors import FedRelayError
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.data_and_model import OwnModel
from fedrelay.experiment.spec import Comparison, full_path
from fedrelay.experiment.sweep_cells import SweepCell, sweep_cells
from fedrelay.runtime.callback import Callbacks
from fedrelay.runtime.comparison import ComparisonResult, check_runs, open_folder, run_comparison
from fedrelay.tasks.base import Task
from fedrelay.tasks.task_facts import TaskFacts


@dataclass(frozen=True, repr=False)
class SweepResult:
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


def run_sweep(
    comparison: Comparison,
    *,
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
    callbacks: Callbacks | None = None,
) -> SweepResult:
    """Run all runs of a sweep that are not complete yet; nothing runs if any cell is not valid."""
    cells = sweep_cells(comparison)

    def check() -> None:
        for cell in cells:
            check_cell(cell, federation, module, task)

    if comparison.out is not None:
        open_folder(comparison.out, comparison, check)
    else:
        check()
    outcomes = []
    for cell in cells:
        try:
            outcomes.append(
                run_comparison(cell.comparison, federation=federation, module=module, task=task, callbacks=callbacks)
            )
        except FedRelayError as error:
            raise type(error)(f"{cell.name}: {error}") from error.__cause__
    return SweepResult(comparison, tuple(cells), tuple(outcomes))


def check_cell(
    cell: SweepCell, federation: OwnData | None = None, module: OwnModel | None = None, task: Task | None = None
) -> None:
    """Prepare the runs of a cell without running them.

    Raises:
        FedRelayError: They cannot run; the message names the cell.
    """
    try:
        check_runs([run for _, run in experiments(cell.comparison)], federation, module, task)
    except FedRelayError as error:
        raise type(error)(f"sweep, {cell.name}: {error}") from error.__cause__
