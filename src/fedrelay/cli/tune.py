"""`fedrelay tune`: which method for this federation, these links and these data?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from fedrelay.cli.interrupts import explain_interruption
from fedrelay.cli.output import CommandOutput
from fedrelay.cli.run import Seeds, data_name, with_seeds
from fedrelay.cli.settings import (
    ALL_FLAGS,
    Assignments,
    Json,
    Quiet,
    apply,
    examples,
    free_folder,
    methods_settings,
    takes_settings,
)
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import parse_assignment, validate
from fedrelay.tuning.settings import Tuning

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedrelay tune --data digits --alpha 0",
        "fedrelay tune fedavg fedprox fedseq --rounds 60 --trials 24",
        "fedrelay tune fedavg fedprox --hyperparameter fedprox:terms.prox.mu=0.001,0.01,0.1",
        "fedrelay tune fedavg fedseq --rounds 200 --set stop.max_bytes=50_000_000",
        "fedrelay tune fedavg fedseq --objective hours --target 0.9 --rounds 100",
        "fedrelay tune examples/digits.yaml --dry-run",
        "fedrelay resume runs/tune-digits",
    )
)
@takes_settings(*ALL_FLAGS)
def tune(
    sources: Annotated[
        list[str] | None,
        Argument(metavar="[METHOD…|FILE]", help="methods, or one YAML file of a comparison; default: seven common"),
    ] = None,
    trials: Annotated[
        int | None, Option("--trials", help="configurations of each method that are tried", rich_help_panel="Tuning")
    ] = None,
    objective: Annotated[
        str | None,
        Option(
            "--objective",
            help="score: the metric within the budget; rounds, updates, bytes, hours: the cost until --target is "
            "reached; the budget is --rounds, stop.max_updates, stop.max_bytes or stop.max_hours",
            rich_help_panel="Tuning",
        ),
    ] = None,
    hyperparameter: Annotated[
        list[str] | None,
        Option(
            "--hyperparameter",
            metavar="METHOD:KEY=A,B,…",
            help="the setting of a method to try beside its learning rate; repeatable",
            rich_help_panel="Tuning",
        ),
    ] = None,
    seeds: Seeds = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="show what would be run and what it would cost", rich_help_panel="Tuning")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: Assignments,
) -> None:
    """Tune methods with equal budgets, compare the best of each with fresh seeds, and recommend one.

    Learning rates, and at most one hyperparameter of each method, are chosen on validation samples by successive
    halving, and so is the method; test samples show what it is worth. All other settings (rungs, range,
    seeds) are under tune.*: --set tune.rungs=2.
    """
    output = CommandOutput(quiet=quiet, json=json)
    tree: dict[str, Any] = methods_settings(sources) if sources else {}
    wanted = {
        "tune.trials": trials,
        "tune.objective": objective,
        "tune.hyperparameter": _hyperparameters(hyperparameter) if hyperparameter else None,
    }
    chosen = [(path, value) for path, value in wanted.items() if value is not None]
    tuning = validate(Tuning, apply(tree, [*chosen, *with_seeds(settings, seeds)]))
    if dry_run:
        _show_plan(output, tuning)
        return
    out = tuning.out or free_folder(f"tune-{data_name(tuning)}")
    tune_methods(output, tuning, out)


def tune_methods(output: CommandOutput, tuning: Tuning, out: Path) -> None:
    """Run or continue a tuning, and print the recommendation."""
    from fedrelay.report.terminal.tuning_tables import tuning_advice, tuning_heading, tuning_tables
    from fedrelay.report.tuning_page import write_tuning_files
    from fedrelay.report.tuning_progress import tuning_progress
    from fedrelay.report.tuning_summary import tuning_facts
    from fedrelay.tuning.run_tuning import run_tuning
    from fedrelay.tuning.tuned_methods import TuningPlan

    TuningPlan.of(tuning)  # mistakes show before the heading
    output.stderr.print(tuning_heading(tuning), "")
    with (
        output.showing_warnings(),
        explain_interruption(out),
        tuning_progress(output.stderr) as on_progress,
    ):
        result = run_tuning(tuning, out, on_progress=on_progress)
    write_tuning_files(result)
    output.print("", tuning_tables(result), "", tuning_advice(result))
    output.print_json(tuning_facts(result))


def _show_plan(output: CommandOutput, tuning: Tuning) -> None:
    from fedrelay.report.terminal.tuning_tables import planned_table, tuning_heading
    from fedrelay.report.tuning_summary import planned_facts
    from fedrelay.tuning.planned_costs import planned_costs
    from fedrelay.tuning.tuned_methods import TuningPlan

    with output.showing_warnings():
        planned = planned_costs(TuningPlan.of(tuning))
    output.print(tuning_heading(tuning), "", planned_table(planned))
    output.print_json(planned_facts(tuning, planned))


def _hyperparameters(texts: list[str]) -> dict[str, dict[str, Any]]:
    """`fedprox:terms.prox.mu=0.01,0.1` → `{"fedprox": {"terms.prox.mu": [0.01, 0.1]}}`."""
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        method, colon, assignment = text.partition(":")
        key, equals, values = assignment.partition("=")
        if not (method and colon and key and equals and values):
            raise SpecError(
                f"--hyperparameter: must be METHOD:KEY=A,B,…, such as fedprox:terms.prox.mu=0.01,0.1, got {text!r}"
            )
        path, parsed = parse_assignment(f"{key}=[{values}]")
        found.setdefault(method, {})[path] = parsed
    return found
