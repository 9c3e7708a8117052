"""`fedrelay show`: the state and the last results of a run, a comparison or a sweep."""

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
        "fedrelay show runs/fedseq-digits-seed1",
        "fedrelay show runs/fedseq-digits-seed1 --plot forgetting.png",
        "fedrelay show runs/compare-digits",
    )
)
def show(
    folder: Annotated[Path, Argument(metavar="RUN", help="the folder of a run, a comparison or a sweep")],
    plot: Annotated[
        Path | None, Option(metavar="FILE.png", help="draw the forgetting matrix of the last followed chain")
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show the progress and the last results of a run and, if it followed chains, how much they forgot.

    Of a comparison or a sweep, show the tables that it prints at its end, from the runs as they are now.
    """
    from fedrelay.report.forgetting import forgetting_table, last_forgetting
    from fedrelay.report.terminal.run_progress import progress_table
    from fedrelay.report.terminal.table_shapes import facts_grid
    from fedrelay.runtime.run_folder_reader import RunFolderReader
    from fedrelay.runtime.run_status import RunStatus
    from fedrelay.runtime.spec_files import COMPARISON_SPEC, TUNING_SPEC

    if (folder / COMPARISON_SPEC).is_file():
        if plot is not None:
            raise SpecError(
                f"--plot: {folder} is a comparison; give one of its runs, or use 'fedrelay report {folder}'"
            )
        _show_comparison(CommandOutput(quiet=quiet, json=json), folder)
        return
    if (folder / TUNING_SPEC).is_file():
        example = folder / "trials/METHOD/trial-01/seed-1"
        raise SpecError(f"{folder}: is a tuning; its results are in {folder / 'tuning.json'}; show a run, as {example}")
    output, run = CommandOutput(quiet=quiet, json=json), RunFolderReader.open(folder)
    experiment, history, chain, status = run.experiment, run.lines("metrics"), last_forgetting(run), RunStatus.of(run)
    last = (history[-1] if history else {}) | run.final_metrics.get("last", {})
    page = [progress_table(experiment, last, status, run.task, run.best, run.extensions)]
    if chain is not None:
        page += ["", forgetting_table(chain, run.task.measured_on_clients)]
    if plot is not None:
        if chain is None:
            raise SpecError(f"--plot: {folder} followed no chain; run with eval.forgetting to follow chains")
        from fedrelay.report.figure_files import save_figures
        from fedrelay.report.figure_specs import forgetting

        save_figures(plot, [forgetting(chain, metric=run.task.measured_on_clients)])
        page += ["", facts_grid({"figure": str(plot)})]
    output.print(*page)
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


def _show_comparison(output: CommandOutput, folder: Path) -> None:
    """A comparison or a sweep as far as it is, in the tables that it prints at its end."""
    from fedrelay.report.comparison_summary import comparison_facts
    from fedrelay.report.load_runs import load_runs
    from fedrelay.report.load_sweep import load_sweep, only_sweep
    from fedrelay.report.sweep_summary import sweep_facts
    from fedrelay.report.terminal.run_tables import comparison_state, comparison_tables
    from fedrelay.report.terminal.sweep_tables import sweep_tables

    if only_sweep([folder]) is not None:
        result, states = load_sweep(folder)
        output.print(sweep_tables(result))
        output.print_json({**sweep_facts(result), "states": states})
        return
    loaded = load_runs([folder])
    tables = [comparison_tables(loaded.outcome), ""] if any(each.results for each in loaded.outcome.methods) else []
    output.print(*comparison_state(loaded), "", *tables)
    output.print_json({**comparison_facts(loaded.outcome), "states": loaded.states})
