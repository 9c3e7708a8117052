"""One comparison for every cell of a sweep. Running it again continues whatever is not complete.

A sweep folder holds `comparison.yaml`, with the sweep, and one comparison folder for every cell: `alpha=0.1/`.
"""

from __future__ import annotations

from fedrelay.data.own_data_per_seed import OwnData
from fedrelay.errors import FedRelayError
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.data_and_model import OwnModel
from fedrelay.experiment.spec import Comparison
from fedrelay.experiment.sweep_cells import SweepCell, sweep_cells
from fedrelay.runtime.callback import Callbacks
from fedrelay.runtime.comparison import check_runs, open_folder, run_comparison
from fedrelay.runtime.sweep_result import SweepResult
from fedrelay.tasks.base import Task


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
