"""`fedrelay plan`: the routes and the costs of a round."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import (
    PLAN_FLAGS,
    Assignments,
    Json,
    Quiet,
    Source,
    examples,
    experiment_of,
    takes_settings,
)
from fedrelay.errors import SpecError

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedrelay plan fedseq --clients 100 --alpha 0",
        "fedrelay plan fedseq --round 7 --set route.loops=2 --set grouping.max_clients=5",
        "fedrelay plan examples/fedseq.yaml --json",
        "fedrelay plan pairs --plugin mylab.pairs",
    )
)
@takes_settings(*PLAN_FLAGS)
def plan(
    source: Source,
    round: Annotated[int, Option(metavar="T", help="the round to show")] = 1,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: Assignments,
) -> None:
    """Show the routes and the costs of a round without running it.

    Clients train only if groups need profiles of trained models.
    """
    output, experiment = CommandOutput(quiet=quiet, json=json), experiment_of(source, settings)
    if not 1 <= round <= experiment.rounds:
        raise SpecError(f"--round: must be between 1 and the number of rounds ({experiment.rounds}), got {round}")
    from fedrelay.experiment.prepare import prepare
    from fedrelay.report.progress import watching_profiles
    from fedrelay.report.terminal.plan import plan_page, plan_report

    with output.showing_warnings(), watching_profiles(output.stderr) as watch:
        report = plan_report(prepare(experiment, on_profiling_progress=watch), round)
    output.print(plan_page(report))
    output.print_json(report)
