"""`fedrelay run`, `compare` and `resume`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from fedrelay.cli.interrupts import explain_interruption
from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import (
    ALL_FLAGS,
    Assignments,
    Baseline,
    Json,
    Quiet,
    Source,
    Tree,
    apply,
    examples,
    experiment_of,
    free_folder,
    methods_settings,
    takes_settings,
)
from fedrelay.errors import DivergedError, NoUpdateAcceptedError, SpecError
from fedrelay.experiment.spec import CommonSettings, Comparison, Experiment, full_path, parse_assignment, validate
from fedrelay.user_code import import_from_current_folder

if TYPE_CHECKING:  # these import torch, which would make --help slow
    from rich.console import RenderableType

    from fedrelay.runtime.callback import Callback
    from fedrelay.runtime.result import Result
    from fedrelay.runtime.tracking import TrackingLogger


Log = Annotated[
    list[str] | None,
    Option(
        "--log",
        metavar="NAME",
        help="also log the run: tensorboard, mlflow, wandb, csv; repeatable; metrics.jsonl is always written",
        rich_help_panel="Running",
    ),
]
TensorBoard = Annotated[bool, Option("--tensorboard", help="short for --log tensorboard", rich_help_panel="Running")]
MLflow = Annotated[bool, Option("--mlflow", help="short for --log mlflow", rich_help_panel="Running")]
Seeds = Annotated[
    str | None,
    Option("--seeds", metavar="1,2,…", help="run every method once for each seed", rich_help_panel="Training"),
]

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedrelay run fedseq --clients 100 --alpha 0 --rounds 60",
        "fedrelay run fedseq+fedprox --set terms.prox.mu=0.1 --out runs/mine",
        "fedrelay run examples/fedseq.yaml --rounds 10 --json",
        "fedrelay run fedseq --validation 0.1 --patience 10 --set stop.max_hours=2",
        "fedrelay run pairs+fedprox --plugin mylab.pairs",
    )
)
@takes_settings(*ALL_FLAGS)
def run(
    source: Source,
    quiet: Quiet = False,
    json: Json = False,
    log: Log = None,
    tensorboard: TensorBoard = False,
    mlflow: MLflow = False,
    *,
    settings: Assignments,
) -> None:
    """Run one method and save the run to a folder.

    Give a method such as fedseq, or a YAML file.
    """
    experiment = experiment_of(source, settings)
    from fedrelay.runtime.round_loop import run_experiment
    from fedrelay.runtime.tracking import tracking_loggers

    loggers = tracking_loggers(_logs(log, tensorboard=tensorboard, mlflow=mlflow))
    name = "".join(experiment.method.split())  # there may be spaces around +
    out = experiment.out or free_folder(f"{name}-{data_name(experiment)}-seed{experiment.seed}")
    output = CommandOutput(quiet=quiet, json=json)
    with _watched(output, out, loggers) as callback:
        result = run_experiment(experiment.model_copy(update={"out": out}), callbacks=callback)
    _print_result(output, result)


@app.command(
    epilog=examples(
        "fedrelay compare fedavg fedseq centralized --alpha 0 --seeds 1,2,3",
        "fedrelay compare fedseq fedavg fedprox --baseline fedavg --seeds 1,2,3,4,5",
        "fedrelay compare fedavg fedseq --sweep alpha=0,0.1,1 --seeds 1,2,3",
        "fedrelay compare fedavg fedseq --sweep alpha=0,1 --sweep clients=10,50 --dry-run",
        "fedrelay compare examples/digits.yaml --rounds 20",
    )
)
@takes_settings(*ALL_FLAGS)
def compare(
    sources: Annotated[list[str], Argument(metavar="METHOD…|FILE", help="methods, or one YAML file")],
    seeds: Seeds = None,
    baseline: Baseline = None,
    sweep: Annotated[
        list[str] | None,
        Option(
            "--sweep", metavar="KEY=A,B,…", help="run every method with each value of a setting; at most two settings"
        ),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="check everything and show how many runs there are")] = False,
    quiet: Quiet = False,
    json: Json = False,
    log: Log = None,
    tensorboard: TensorBoard = False,
    mlflow: MLflow = False,
    *,
    settings: Assignments,
) -> None:
    """Run several methods over several seeds, with the same settings for all.

    Give the methods, or one YAML file. With several seeds, every method is compared with the baseline, seed by seed:
    mean difference, 95 % interval, effect size, and whether it is more than chance.
    """
    from fedrelay.runtime.tracking import tracking_loggers

    loggers, output = (
        tracking_loggers(_logs(log, tensorboard=tensorboard, mlflow=mlflow)),
        CommandOutput(quiet=quiet, json=json),
    )
    chosen = with_seeds(settings, seeds)
    if sweep:
        chosen = [("sweep", _axes(sweep)), *chosen]
    if baseline is not None:
        chosen = [("baseline", baseline), *chosen]
    tree = methods_settings(sources)
    if dry_run:
        _show_runs(output, validate(Comparison, apply(tree, chosen)))
        return
    compare_methods(output, "compare", tree, chosen, loggers)


def _logs(names: Sequence[str] | None, *, tensorboard: bool, mlflow: bool) -> list[str]:
    """The loggers that were asked for, by name."""
    return [*(names or ()), *(["tensorboard"] if tensorboard else []), *(["mlflow"] if mlflow else [])]


def _axes(texts: Sequence[str]) -> dict[str, Any]:
    """`alpha=0,0.1` → `{"data.alpha": [0, 0.1]}`."""
    found: dict[str, Any] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not (key and equals and values):
            raise SpecError(f"--sweep: must be KEY=A,B,…, such as alpha=0,0.1,1, got {text!r}")
        path, parsed = parse_assignment(f"{key}=[{values}]")
        if full_path(path) in found:
            raise SpecError(f"--sweep: {key} is given twice; list all values together")
        found[full_path(path)] = parsed
    return found


def _show_runs(output: CommandOutput, comparison: Comparison) -> None:
    """Check all runs of a comparison or a sweep, and show how many there are."""
    from fedrelay.experiment.comparison_runs import experiments
    from fedrelay.experiment.sweep_cells import sweep_cells
    from fedrelay.report.terminal.sweep_tables import planned_runs, planned_runs_facts
    from fedrelay.runtime.comparison import check_runs
    from fedrelay.runtime.sweep import check_cell

    cells = sweep_cells(comparison) if comparison.sweep else []
    with output.showing_warnings():
        for cell in cells:
            check_cell(cell)
        if not cells:
            check_runs([run for _, run in experiments(comparison)])
    facts = planned_runs_facts(comparison, cells)
    output.print(planned_runs(facts))
    output.print_json(facts)


def compare_methods(
    output: CommandOutput, name: str, tree: Tree, settings: Assignments, loggers: Sequence[TrackingLogger] = ()
) -> None:
    """Run a comparison; `settings` win over `tree`. Without `out`, its folder is called `name`-DATA."""
    comparison = validate(Comparison, apply(tree, settings))
    out = comparison.out or free_folder(f"{name}-{data_name(comparison)}")
    _compare(output, comparison.model_copy(update={"out": out}), out, loggers)


def _sweep(output: CommandOutput, comparison: Comparison, out: Path, loggers: Sequence[TrackingLogger]) -> None:
    """Run or continue a sweep, and print its table."""
    from fedrelay.experiment.sweep_cells import sweep_cells
    from fedrelay.report.format import plural
    from fedrelay.report.sweep_files import write_sweep_files
    from fedrelay.report.sweep_summary import sweep_facts
    from fedrelay.report.terminal.sweep_tables import sweep_advice, sweep_tables
    from fedrelay.runtime.sweep import run_sweep

    names = [entry.name for entry in comparison.methods]
    titles = [
        f"{cell.name}: {name}, seed {seed}"
        for cell in sweep_cells(comparison)
        for name in names
        for seed in comparison.seeds
    ]
    swept = "; ".join(f"{path}: {', '.join(map(str, values))}" for path, values in comparison.sweep.items())
    output.note(f"Sweep of {swept}: {plural(len(titles), 'run')}. The first cell:")
    with _watched(output, out, loggers, names, comparison.seeds, titles) as callback:
        result = run_sweep(comparison, callbacks=callback)
    write_sweep_files(result, out)
    output.print("", sweep_tables(result), "", sweep_advice(result))
    output.print_json(sweep_facts(result))
    if not any(method.results for outcome in result.outcomes for method in outcome.methods):
        raise DivergedError(f"no run has a result: models diverged or no client update was accepted; see {out}")


@app.command(
    epilog=examples(
        "fedrelay resume runs/fedseq-digits-seed1",
        "fedrelay resume runs/fedseq-digits-seed1 --rounds 200",
        "fedrelay resume runs/hospitals --without berlin",
        "fedrelay resume runs/compare-digits",
    )
)
def resume(
    folder: Annotated[Path, Argument(metavar="RUN", help="the folder of a run, a comparison or a tuning")],
    rounds: Annotated[
        int | None,
        Option("--rounds", help="go on to this number of rounds, also if the run is complete or was stopped"),
    ] = None,
    without: Annotated[
        list[str] | None,
        Option("--without", metavar="NODE", help="a client that has left for good; may be given several times"),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
    log: Log = None,
    tensorboard: TensorBoard = False,
    mlflow: MLflow = False,
) -> None:
    """Continue a run, a comparison or a tuning from its folder.

    If it is complete, only the results are printed, unless --rounds asks for more rounds.
    """
    from fedrelay.runtime.comparison_result import load_comparison
    from fedrelay.runtime.round_loop import resume_run
    from fedrelay.runtime.spec_files import COMPARISON_SPEC, TUNING_SPEC
    from fedrelay.runtime.tracking import tracking_loggers
    from fedrelay.tuning.run_tuning import load_tuning

    import_from_current_folder()
    loggers = tracking_loggers(_logs(log, tensorboard=tensorboard, mlflow=mlflow))
    output = CommandOutput(quiet=quiet, json=json)
    if (folder / TUNING_SPEC).is_file():
        from fedrelay.cli.tune import tune_methods

        if rounds is not None or without or loggers:
            run, options = (
                f"{folder}/trials/METHOD/trial-01/seed-1",
                "--rounds, --without, --log, --tensorboard, --mlflow",
            )
            raise SpecError(f"{options}: {folder} is a tuning; give a run, such as {run}")
        tune_methods(output, load_tuning(folder), folder)
        return
    if (folder / COMPARISON_SPEC).is_file():
        if rounds is not None or without:
            run = f"{folder}/METHOD/seed-1"
            raise SpecError(f"--rounds, --without: {folder} is a comparison; give one of its runs, such as {run}")
        _compare(output, load_comparison(folder), folder, loggers)
        return
    complete = (folder / "result.json").is_file() and rounds is None
    with _watched(output, folder, loggers) as callback:
        result = resume_run(folder, rounds=rounds, without=without or (), callbacks=callback)
    if complete:
        output.print("This run is complete. Its result:\n")
    _print_result(output, result)


def _compare(output: CommandOutput, comparison: Comparison, out: Path, loggers: Sequence[TrackingLogger]) -> None:
    if comparison.sweep:
        _sweep(output, comparison, out, loggers)
        return
    from fedrelay.experiment.comparison_runs import experiments
    from fedrelay.report.comparison_files import write_comparison_files
    from fedrelay.report.comparison_summary import comparison_facts
    from fedrelay.report.differing_settings import differing_settings
    from fedrelay.report.terminal.attack_results import attack_damage_table
    from fedrelay.report.terminal.run_tables import comparison_advice, comparison_tables
    from fedrelay.runtime.comparison import run_comparison

    runs = experiments(comparison)
    titles = [f"{entry.name}, seed {experiment.seed}" for entry, experiment in runs]
    names = [entry.name for entry in comparison.methods]
    differing = differing_settings({entry.name: experiment for entry, experiment in runs})
    with _watched(output, out, loggers, names, comparison.seeds, titles, differing) as callback:
        outcome = run_comparison(comparison, callbacks=callback)
    write_comparison_files(outcome, out)
    output.print("", comparison_tables(outcome), "")
    if damage := attack_damage_table(outcome):
        output.print(damage, "")
    output.print(comparison_advice(outcome))
    output.print_json(comparison_facts(outcome))
    if not any(method.results for method in outcome.methods):
        if any(method.diverged for method in outcome.methods):
            raise DivergedError(f"no run has a result: models diverged or no client update was accepted; see {out}")
        raise NoUpdateAcceptedError(f"no client update was accepted in any run; see {out}")


def _print_result(output: CommandOutput, result: Result) -> None:
    from fedrelay.report.terminal.run_tables import result_table, run_advice

    page = [result_table(result), ""]
    if result.experiment.eval.forgetting and result.run is not None:
        page += _forgetting(result.run)
    output.print(*page, run_advice(result))
    output.print_json(result.summary())


def _forgetting(run: Path) -> Sequence[RenderableType]:
    """The forgetting table of the last chain that was followed; its figure goes to the run folder."""
    from fedrelay.report.figure_files import save_figures
    from fedrelay.report.figure_specs import forgetting
    from fedrelay.report.forgetting import forgetting_table, last_forgetting
    from fedrelay.runtime.run_folder_reader import RunFolderReader

    chain = last_forgetting(RunFolderReader.open(run))
    if chain is None:
        return []
    save_figures(run / "forgetting.png", [forgetting(chain)])
    return [forgetting_table(chain), ""]


@contextmanager
def _watched(
    output: CommandOutput,
    folder: Path,
    loggers: Sequence[TrackingLogger],
    names: Sequence[str] = (),
    seeds: Sequence[int] = (),
    titles: Sequence[str] = (),
    differing: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Callback]:
    """Yield a callback that prints a heading and progress and feeds the loggers; explain an interruption."""
    from fedrelay.report.comparison_summary import plan_facts
    from fedrelay.report.progress import watching
    from fedrelay.report.terminal.run_tables import heading
    from fedrelay.runtime.tracking import with_loggers

    def print_heading(experiment: Experiment) -> None:
        plan = plan_facts(experiment.out or folder)
        output.print(heading(names or [experiment.method], experiment, plan, seeds or [experiment.seed], differing), "")

    with (
        output.showing_warnings(),
        explain_interruption(folder),
        watching(output.stderr, titles, print_heading) as shown,
        with_loggers(shown, loggers) as callback,
    ):
        yield callback


def with_seeds(settings: Assignments, seeds: str | None) -> Assignments:
    """Turn `--seeds 1,2` or `--seed N` into the setting `seeds`; `--set seeds=…` wins over it."""
    chosen = [value for path, value in settings if path == "seed"]
    if chosen and seeds is not None:
        raise SpecError("--seed and --seeds: give only one of them")
    if seeds is not None:
        try:
            chosen = [int(number) for number in seeds.split(",")]
        except ValueError:
            raise SpecError(f"--seeds: must be whole numbers separated by commas, got {seeds!r}") from None
    others = [(path, value) for path, value in settings if path != "seed"]
    return [("seeds", chosen), *others] if chosen else others


def data_name(settings: CommonSettings) -> str:
    """The data set in the name of a folder; the stem if it is a file."""
    return Path(settings.data.name).stem or "data"
