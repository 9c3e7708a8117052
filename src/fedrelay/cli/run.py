"""`fedrelay run`, `compare` and `resume`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedrelay.cli.interrupts import resumable
from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import (
    ALL_FLAGS,
    Assignments,
    Json,
    Quiet,
    apply,
    examples,
    free_folder,
    many_methods,
    one_method,
    takes_settings,
)
from fedrelay.errors import DivergedError, FruitlessError, SpecError
from fedrelay.experiment.spec import CommonSettings, Comparison, Experiment, validate
from fedrelay.user_code import import_from_current_folder

if TYPE_CHECKING:  # these import torch, which would make --help slow
    from rich.console import RenderableType

    from fedrelay.report.loggers import TrackingLogger
    from fedrelay.runtime.observer import Observer
    from fedrelay.runtime.result import Result


TensorBoard = Annotated[
    bool,
    typer.Option(
        "--tensorboard", help="write TensorBoard event files into the run folder too", rich_help_panel="Running"
    ),
]
MLflow = Annotated[bool, typer.Option("--mlflow", help="log the run to MLflow too", rich_help_panel="Running")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog=examples(
            "fedrelay run fedseq --clients 100 --alpha 0 --rounds 60",
            "fedrelay run fedseq+fedprox --set terms.prox.mu=0.1 --out runs/mine",
            "fedrelay run examples/fedseq.yaml --rounds 10 --json",
        )
    )(run)
    app.command(
        epilog=examples(
            "fedrelay compare fedavg fedseq centralized --alpha 0 --seeds 1,2,3",
            "fedrelay compare examples/digits.yaml --rounds 20",
        )
    )(compare)
    app.command(
        epilog=examples("fedrelay resume runs/fedseq-digits-seed1", "fedrelay resume runs/compare-digits"),
    )(resume)


@takes_settings(*ALL_FLAGS)
def run(
    source: Annotated[str, typer.Argument(metavar="METHOD|FILE", help="a method such as fedseq, or a YAML file")],
    quiet: Quiet = False,
    json: Json = False,
    tensorboard: TensorBoard = False,
    mlflow: MLflow = False,
    *,
    settings: Assignments,
) -> None:
    """Run one method and keep everything in a run folder."""
    from fedrelay.report.loggers import tracking_loggers
    from fedrelay.runtime.loop import run_experiment

    loggers = tracking_loggers(tensorboard=tensorboard, mlflow=mlflow)
    experiment = validate(Experiment, one_method(source, settings))
    out = experiment.out or free_folder(f"{_joined(experiment.method)}-{_data_name(experiment)}-seed{experiment.seed}")
    screen = CommandOutput(quiet=quiet, json=json)
    with _watched(screen, out, [experiment.method], [experiment.seed], loggers=loggers) as observer:
        result = run_experiment(experiment.model_copy(update={"out": out}), observer=observer)
    _show_run(screen, result)


@takes_settings(*ALL_FLAGS)
def compare(
    sources: Annotated[list[str], typer.Argument(metavar="FILE|METHOD…", help="methods, or one YAML file")],
    seeds: Annotated[
        str | None,
        typer.Option("--seeds", metavar="1,2,…", help="one run of every method for each", rich_help_panel="Training"),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
    tensorboard: TensorBoard = False,
    mlflow: MLflow = False,
    *,
    settings: Assignments,
) -> None:
    """Run several methods over several seeds, everything else equal."""
    from fedrelay.report.loggers import tracking_loggers

    loggers = tracking_loggers(tensorboard=tensorboard, mlflow=mlflow)
    run_comparison_of(many_methods(sources, ()), settings, seeds, "compare", loggers, quiet=quiet, json=json)


def run_comparison_of(
    tree: dict[str, Any],
    settings: Assignments,
    seeds: str | None,
    name: str,
    loggers: Sequence[TrackingLogger] = (),
    *,
    quiet: bool,
    json: bool,
) -> None:
    """Run a comparison with these settings over it, in a folder of this name if none is given."""
    comparison = validate(Comparison, apply(tree, with_seeds(settings, seeds)))
    out = comparison.out or free_folder(f"{name}-{_data_name(comparison)}")
    _compare(CommandOutput(quiet=quiet, json=json), comparison.model_copy(update={"out": out}), out, loggers)


def resume(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="the folder of a run or of a comparison")],
    quiet: Quiet = False,
    json: Json = False,
    tensorboard: TensorBoard = False,
    mlflow: MLflow = False,
) -> None:
    """Continue a run or a comparison where it stopped; of a complete one, show the result."""
    from fedrelay.report.loggers import tracking_loggers
    from fedrelay.runtime.comparison import SPEC, load_comparison
    from fedrelay.runtime.loop import resume_run

    import_from_current_folder()
    loggers = tracking_loggers(tensorboard=tensorboard, mlflow=mlflow)
    screen = CommandOutput(quiet=quiet, json=json)
    if (folder / SPEC).is_file():
        _compare(screen, load_comparison(folder), folder, loggers)
        return
    complete = (folder / "result.json").is_file()
    with _watched(screen, folder, loggers=loggers) as observer:
        result = resume_run(folder, observer=observer)
    if complete:
        screen.show("This run was complete already; here is its result.\n")
    _show_run(screen, result)


def _compare(screen: CommandOutput, comparison: Comparison, out: Path, loggers: Sequence[TrackingLogger]) -> None:
    from fedrelay.experiment.comparison_runs import experiments
    from fedrelay.report.comparison_files import comparison_numbers, write_comparison_files
    from fedrelay.report.terminal.attacks import attack_damage_table, attack_damages
    from fedrelay.report.terminal.tables import comparison_advice, comparison_tables
    from fedrelay.runtime.comparison import run_comparison

    titles = [f"{entrant.name}, seed {experiment.seed}" for entrant, experiment in experiments(comparison)]
    names = [entrant.name for entrant in comparison.methods]
    with _watched(screen, out, names, comparison.seeds, titles, loggers) as observer:
        outcome = run_comparison(comparison, observer=observer)
    write_comparison_files(outcome, out)
    screen.show("", comparison_tables(outcome), "")
    if attack_damages(outcome):
        screen.show(attack_damage_table(outcome), "")
    screen.show(comparison_advice(outcome))
    screen.emit(comparison_numbers(outcome))
    if not any(contender.results for contender in outcome.contenders):
        if any(contender.diverged for contender in outcome.contenders):
            raise DivergedError(f"every run diverged or learnt nothing; what there is lies in {out}")
        raise FruitlessError(f"in no run anybody's work was accepted; what there is lies in {out}")


def _show_run(screen: CommandOutput, result: Result) -> None:
    from fedrelay.report.terminal.tables import result_table, run_advice

    page = [result_table(result), ""]
    if result.experiment.eval.forgetting and result.run is not None:
        page += _forgetting(result.run)
    screen.show(*page, run_advice(result))
    screen.emit(result.summary())


def _forgetting(run: Path) -> Sequence[RenderableType]:
    """What the last followed chain forgot, drawn and in numbers."""
    from fedrelay.report.drawing import save_figures
    from fedrelay.report.figures import forgetting
    from fedrelay.report.forgetting import forgetting_table, last_forgetting
    from fedrelay.runtime.store import Records

    chain = last_forgetting(Records.open(run))
    if chain is None:
        return []
    save_figures(run / "forgetting.png", [forgetting(chain)])
    return [forgetting_table(chain), ""]


@contextmanager
def _watched(
    screen: CommandOutput,
    folder: Path,
    names: Sequence[str] = (),
    seeds: Sequence[int] = (),
    titles: Sequence[str] = (),
    loggers: Sequence[TrackingLogger] = (),
) -> Iterator[Observer]:
    """An observer that shows runs go by under a heading and keeps journals; an interruption says how to continue."""
    from fedrelay.report.loggers import with_loggers
    from fedrelay.report.progress import watching
    from fedrelay.report.summary import plan_facts
    from fedrelay.report.terminal.tables import heading

    def announce(experiment: Experiment) -> None:
        plan = plan_facts(experiment.out or folder)
        screen.show(heading(names or [experiment.method], experiment, plan, seeds or [experiment.seed]), "")

    with (
        screen.listening(),
        resumable(folder),
        watching(screen.notes, titles, announce) as shown,
        with_loggers(shown, loggers) as observer,
    ):
        yield observer


def with_seeds(settings: Assignments, seeds: str | None) -> Assignments:
    """`--seed N` is a comparison with one seed; `--set seeds=…` still wins."""
    single = [value for path, value in settings if path == "seed"]
    if single and seeds is not None:
        raise SpecError("--seed and --seeds: give one of them")
    if seeds is not None:
        try:
            single = [int(number) for number in seeds.split(",")]
        except ValueError:
            raise SpecError(f"--seeds: must be whole numbers separated by commas, got {seeds!r}") from None
    others = [(path, value) for path, value in settings if path != "seed"]
    return [("seeds", single), *others] if single else others


def _joined(method: str) -> str:
    """The method in a folder's name, without the spaces that + may have."""
    return "".join(method.split())


def _data_name(settings: CommonSettings) -> str:
    """The data in a folder's name; a file goes by its stem."""
    return Path(settings.data.name).stem or "data"
