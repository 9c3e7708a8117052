"""`fedrelay show`: what a run has come to, without continuing it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Json, Quiet, examples
from fedrelay.errors import SpecError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "fedrelay show runs/fedseq-digits-seed1", "fedrelay show runs/fedseq-digits-seed1 --plot forgetting.png"
        )
    )(show)


def show(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run")],
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", help="draw what the last followed chain still knew of its clients"),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show how far a run has come and, where it followed chains, what they forgot of their clients."""
    from fedrelay.report.fate import Fate
    from fedrelay.report.recall import last_recall, recall_table
    from fedrelay.report.tables import facts_grid, progress_table
    from fedrelay.runtime.comparison import SPEC
    from fedrelay.runtime.store import Records

    if (folder / SPEC).is_file():
        runs = ", ".join(str(run.parent) for run in sorted(folder.glob("*/*/run.json"))) or "none yet"
        raise SpecError(f"{folder}: holds a comparison; show one of its runs: {runs}")
    screen, run = CommandOutput(quiet=quiet, json=json), Records.open(folder)
    experiment, history, recall, fate = run.experiment, run.lines("metrics"), last_recall(run), Fate.of(run)
    page = [progress_table(experiment, history, fate.rows())]
    if recall is not None:
        page += ["", recall_table(recall)]
    if plot is not None:
        if recall is None:
            raise SpecError(f"--plot: {folder} followed no chain; set eval.forgetting to have it do so")
        from fedrelay.report.plots import draw_recall

        draw_recall(recall, plot)
        page += ["", facts_grid({"picture": str(plot)})]
    screen.show(*page)
    last = history[-1] if history else {}
    screen.emit(
        {
            "method": experiment.method,
            "data": experiment.data.name,
            "seed": experiment.seed,
            **last,
            "rounds": experiment.rounds,
            **fate.facts(),
            "forgetting": None if recall is None else recall.facts(),
        }
    )
