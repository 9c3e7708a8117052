"""`fedrelay show`: the state and the last results of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Json, Quiet, examples
from fedrelay.errors import SpecError

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedrelay show runs/fedseq-digits-seed1", "fedrelay show runs/fedseq-digits-seed1 --plot forgetting.png"
    )
)
def show(
    folder: Annotated[Path, Argument(metavar="RUN", help="the folder of a run")],
    plot: Annotated[
        Path | None, Option(metavar="FILE.png", help="draw the forgetting matrix of the last followed chain")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show the progress and the last results of a run and, if it followed chains, how much they forgot."""
    from fedrelay.report.forgetting import forgetting_table, last_forgetting
    from fedrelay.report.format import shortened
    from fedrelay.report.terminal.run_tables import facts_grid, progress_table
    from fedrelay.runtime.comparison import SPEC
    from fedrelay.runtime.run_folder import RunFolderReader
    from fedrelay.runtime.run_status import RunStatus
    from fedrelay.tuning.run_tuning import SPEC as TUNING

    if (folder / SPEC).is_file():
        found = sorted([*folder.glob("*/*/run.json"), *folder.glob("*/*/*/run.json")])  # those of a sweep are in cells
        runs = shortened([run.parent for run in found], 12, ", ") or "none yet"
        raise SpecError(f"{folder}: is a comparison; show one of its runs: {runs}")
    if (folder / TUNING).is_file():
        example = folder / "trials/METHOD/trial-01/seed-1"
        raise SpecError(f"{folder}: is a tuning; its results are in {folder / 'tuning.json'}; show a run, as {example}")
    output, run = CommandOutput(quiet=quiet, json=json), RunFolderReader.open(folder)
    experiment, history, chain, status = run.experiment, run.lines("metrics"), last_forgetting(run), RunStatus.of(run)
    page = [progress_table(experiment, history, status, run.task, run.best, run.extensions)]
    if chain is not None:
        page += ["", forgetting_table(chain, run.task.measured_on_clients)]
    if plot is not None:
        if chain is None:
            raise SpecError(f"--plot: {folder} followed no chain; run with eval.forgetting to follow chains")
        from fedrelay.report.drawing import save_figures
        from fedrelay.report.figure_specs import forgetting

        save_figures(plot, [forgetting(chain, metric=run.task.measured_on_clients)])
        page += ["", facts_grid({"figure": str(plot)})]
    output.print(*page)
    last = history[-1] if history else {}
    output.print_json(
        {
            "method": experiment.method,
            "data": experiment.data.name,
            "seed": experiment.seed,
            **last,
            "rounds": experiment.rounds,
            **status.facts(),
            "best": run.best,
            "extensions": run.extensions,
            "forgetting": chain,
        }
    )
