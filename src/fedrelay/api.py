"""The functions behind `import fedrelay as fr`. Settings have the same names as in YAML and on the command line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

from rich.console import Console
from torch import nn

from fedrelay.data.federation import Federation
from fedrelay.data.open_federation import open_federation
from fedrelay.data.public_samples import PublicFederation
from fedrelay.errors import SpecError
from fedrelay.experiment.grammar import refuse_misplaced_options
from fedrelay.experiment.keyword_settings import DataOptions, EngineName, KeywordSettings, Options, Partition
from fedrelay.experiment.method_catalogue import METHODS, load_plugins, method_names
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import DataSettings, comparison, experiment, nested, shortcuts, validate
from fedrelay.report.progress import watching
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.callback import Callback, Callbacks, CombinedCallback, as_callback
from fedrelay.runtime.comparison import ComparisonResult, run_comparison
from fedrelay.runtime.export import ExportedRun, Format, export_run
from fedrelay.runtime.loop import resume_run, run_experiment
from fedrelay.runtime.result import Result
from fedrelay.tasks.base import Task

DataSource = str | Options | Federation
ModelSource = str | Options | nn.Module
TaskSource = str | Options | Task


def run(
    method: str,
    *,
    data: DataSource = "digits",
    model: ModelSource | None = None,
    task: TaskSource | None = None,
    clients: int | None = None,
    partition: Partition | None = None,
    alpha: float | None = None,
    rounds: int | None = None,
    fraction: float | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    engine: EngineName | Options | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    plugins: Sequence[str] | None = None,
    callbacks: Callbacks | None = None,
    progress: bool | None = None,
    **settings: Unpack[KeywordSettings],
) -> Result:
    """Run one method. An argument that is None takes the default of `docs/settings.md`.

    Args:
        method: A method, or several joined with `+`: `"fedseq+fedprox"`. `fr.methods()` lists them.
        data: A known data set, a mapping of `data` settings, or a federation made with `federate` or `load_data`.
        model: A model of the zoo, `"module:function"`, or your own `nn.Module`, whose weights are the initial ones.
        task: What is learned: `"regression"`, a mapping of `task` settings, or your own `Task`; by default the task of
            the data.
        clients: Number of clients.
        partition: How samples are distributed over the clients.
        alpha: Concentration of the Dirichlet partition; 0 gives every client one class.
        rounds: Number of rounds.
        fraction: Share of clients, or of groups, that take part in a round.
        epochs: Passes over a client's samples at every hop.
        batch_size: Samples per step.
        lr: Learning rate.
        seed: Seed of all random draws.
        engine: `"local"`, `"ray"`, `"flower"`, or a mapping of `engine` settings.
        workers: Number of worker processes; 0 uses all cores.
        out: Folder to keep the run in, so that it can be resumed and reported.
        plugins: Modules that register methods of your own.
        callbacks: Called during the run: a `Callback` or several, or any objects with some of its hooks.
        progress: Whether to show a progress bar; by default in terminals and notebooks.
        **settings: Any other setting: a section (`train={"clip": 1.0}`) or a short name (`clip=1.0`).

    Returns:
        The history of evaluations, the costs and the final model.

    Raises:
        SpecError: A setting is unknown or not valid.
        DataError: The data are missing or damaged.
        DivergedError: A model left the finite numbers.

    Example:
        >>> import fedrelay as fr
        >>> result = fr.run("fedseq", data="digits", clients=20, alpha=0, rounds=3)
        >>> result.rounds
        3
    """
    named = _given(
        clients=clients,
        partition=partition,
        alpha=alpha,
        rounds=rounds,
        fraction=fraction,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        engine=engine,
        workers=workers,
        out=out,
        plugins=plugins,
    )
    plain, federation, module, own_task = _separate_own(named, settings, data, model, task)
    _check([method], plain)
    with _watched(callbacks, progress) as watcher:
        return run_experiment(
            experiment(method, **plain), federation=federation, module=module, task=own_task, callbacks=watcher
        )


def compare(
    methods: Sequence[str | Options],
    *,
    data: DataSource = "digits",
    model: ModelSource | None = None,
    task: TaskSource | None = None,
    clients: int | None = None,
    partition: Partition | None = None,
    alpha: float | None = None,
    rounds: int | None = None,
    fraction: float | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    lr: float | None = None,
    seeds: Sequence[int] | None = None,
    engine: EngineName | Options | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    plugins: Sequence[str] | None = None,
    callbacks: Callbacks | None = None,
    progress: bool | None = None,
    **settings: Unpack[KeywordSettings],
) -> ComparisonResult:
    """Run several methods over several seeds, everything else equal.

    Args:
        methods: Methods, or mappings such as `{"method": "fedseq", "label": "two loops", "route": {"loops": 2}}`.
        seeds: One run of every method for each seed.
        out: Folder to keep all runs, the table and the curves in. Calling again continues unfinished runs.

    All other arguments are those of `run`.

    Returns:
        The results by method: `outcome["fedseq"].results`.

    Example:
        >>> import fedrelay as fr
        >>> outcome = fr.compare(["fedavg", "fedseq"], clients=20, alpha=0, rounds=2, seeds=[1, 2])
        >>> len(outcome["fedseq"].results)
        2
    """
    named = _given(
        clients=clients,
        partition=partition,
        alpha=alpha,
        rounds=rounds,
        fraction=fraction,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        seeds=seeds,
        engine=engine,
        workers=workers,
        out=out,
        plugins=plugins,
    )
    plain, federation, module, own_task = _separate_own(named, settings, data, model, task)
    _check([each for each in methods if isinstance(each, str)], plain)
    wanted = comparison(methods, **plain)
    titles = [f"{entry.name}, seed {seed}" for entry in wanted.methods for seed in wanted.seeds]
    with _watched(callbacks, progress, titles) as watcher:
        outcome = run_comparison(wanted, federation=federation, module=module, task=own_task, callbacks=watcher)
    if wanted.out is not None:
        from fedrelay.report.comparison_files import write_comparison_files  # matplotlib takes a second to import

        write_comparison_files(outcome, wanted.out)
    return outcome


def resume(
    run: str | Path,
    *,
    data: Federation | None = None,
    model: nn.Module | None = None,
    task: Task | None = None,
    callbacks: Callbacks | None = None,
    progress: bool | None = None,
) -> Result:
    """Continue a run from its folder.

    Args:
        run: The folder of the run.
        data: Your own federation, if the run was started with one.
        model: Your own module, if the run was started with one.
        task: Your own task, if the run was started with one.
        callbacks: Called during the run, as in `run`.
        progress: Whether to show a progress bar; by default in terminals and notebooks.

    Returns:
        The result, equal to that of an uninterrupted run. A complete run is only read.

    Raises:
        RunFolderError: The folder is damaged, in use, or was started with other data.
    """
    with _watched(callbacks, progress) as watcher:
        return resume_run(Path(run), federation=data, module=model, task=task, callbacks=watcher)


def export(
    run: str | Path,
    out: str | Path,
    *,
    format: Format = "safetensors",
    predictions: bool = False,
    data: Federation | None = None,
    model: nn.Module | None = None,
    task: Task | None = None,
) -> ExportedRun:
    """Export the final model of a complete run, with its preprocessing and a model card.

    Args:
        run: The folder of the run.
        out: A new or empty folder for the files.
        format: `"safetensors"` or `"state-dict"` hold the weights; `"torch-export"` and `"onnx"` hold the whole model,
            which takes raw values and scales them itself.
        predictions: Whether to write the outputs for every test sample, too.
        data: Your own federation, if the run was started with one.
        model: Your own module, if the run was started with one.
        task: Your own task, if the run was started with one.

    Returns:
        The paths of the files.

    Raises:
        RunFolderError: The run is not complete, or its model is damaged.
        SpecError: The format is unknown or cannot be written here.
    """
    return export_run(
        Path(run), Path(out), format=format, predictions=predictions, federation=data, module=model, task=task
    )


def plan(
    method: str,
    round: int = 1,
    *,
    data: DataSource = "digits",
    model: ModelSource | None = None,
    task: TaskSource | None = None,
    clients: int | None = None,
    partition: Partition | None = None,
    alpha: float | None = None,
    rounds: int | None = None,
    fraction: float | None = None,
    seed: int | None = None,
    plugins: Sequence[str] | None = None,
    **settings: Unpack[KeywordSettings],
) -> RoundPlan:
    """How models travel in a round. Nothing is trained, except for profiles of clients if groups need them.

    Args:
        method: As in `run`; so are all other arguments.
        round: The round, from 1.

    Example:
        >>> import fedrelay as fr
        >>> [len(route.clients) for route in fr.plan("fedcyclic", clients=10, fraction=0.5).routes]
        [5]
    """
    if not isinstance(round, int) or round < 1:
        raise SpecError(f"round: must be a whole number from 1, got {round!r}")
    named = _given(
        clients=clients, partition=partition, alpha=alpha, rounds=rounds, fraction=fraction, seed=seed, plugins=plugins
    )
    plain, federation, module, own_task = _separate_own(named, settings, data, model, task)
    _check([method], plain)
    return prepare(experiment(method, **plain), federation=federation, module=module, task=own_task).planner.plan(round)


def load_data(
    name: str = "digits",
    *,
    clients: int | None = None,
    partition: Partition | None = None,
    alpha: float | None = None,
    seed: int = 1,
    **settings: Unpack[DataOptions],
) -> Federation:
    """A known data set, distributed over clients.

    Args:
        name: The data set; `fedrelay data` lists them. A path to an `.npz` file works too.
        clients: Number of clients.
        partition: How samples are distributed.
        alpha: Concentration of the Dirichlet partition; 0 gives every client one class.
        seed: The root of the partition's randomness.
        **settings: Any other setting of `data`.

    Example:
        >>> import fedrelay as fr
        >>> fr.load_data("digits", clients=50, alpha=0).clients
        50
    """
    named = _given(clients=clients, partition=partition, alpha=alpha)
    tree = nested({"data": name, **named, **settings})
    if set(tree) != {"data"}:
        raise SpecError(f"load_data: takes settings of 'data' only, got {', '.join(sorted(set(tree) - {'data'}))}")
    chosen = tree["data"] if isinstance(tree["data"], Mapping) else {"name": tree["data"]}
    return open_federation(validate(DataSettings, chosen, "data."), seed)


def methods() -> dict[str, str]:
    """All method names with a one-line summary; names can be joined with `+`.

    Methods of installed plug-ins are listed without importing them, with an empty summary.
    """
    return {name: METHODS[name].summary if name in METHODS else "" for name in method_names()}


@contextmanager
def _watched(callbacks: Callbacks | None, progress: bool | None, titles: Sequence[str] = ()) -> Iterator[Callback]:
    """The caller's callbacks, and a progress bar on stderr where wanted."""
    console = Console(stderr=True, quiet=progress is False)
    if progress is None and not (console.is_terminal or console.is_jupyter):
        console.quiet = True
    with watching(console, titles, lambda _: None) as shown:
        yield CombinedCallback(shown, as_callback(callbacks))


def _given(**arguments: Any) -> dict[str, Any]:
    """The arguments that are not None."""
    return {name: value for name, value in arguments.items() if value is not None}


def _check(methods: Sequence[str], settings: Mapping[str, Any]) -> None:
    load_plugins(settings.get("plugins", ()))
    refuse_misplaced_options(methods, nested(settings))


def _separate_own(
    named: Mapping[str, Any],
    more: Mapping[str, Any],
    data: DataSource,
    model: ModelSource | None,
    task: TaskSource | None,
) -> tuple[dict[str, Any], Federation | None, nn.Module | None, Task | None]:
    """Split the arguments into plain settings and the user's own objects."""
    plain = {**named, **more}
    federation = module = None
    if isinstance(data, str | Mapping):
        plain = {"data": data, **plain}
    elif not hasattr(data, "client_samples"):
        raise SpecError(f"data: must be a name, a mapping of settings or a federation, got {type(data).__name__}")
    else:
        federation = data
        paths = {name: shortcuts().get(name, name) for name in plain}
        useless = [name for name, path in paths.items() if path.split(".")[0] == "data" and path != "data.public"]
        if useless:
            raise SpecError(
                f"{', '.join(useless)}: has no effect on data of your own; pass it to federate or load_data"
            )
        public = {"public": data.per_class} if isinstance(data, PublicFederation) else {}
        plain = {"data": {"name": data.name, "clients": data.clients, **public}, **plain}
    if isinstance(model, nn.Module):
        module = model
        useless = [name for name in plain if shortcuts().get(name, name).split(".")[0] == "model"]
        if useless:
            raise SpecError(f"{', '.join(useless)}: has no effect on a model of your own")
        plain = {"model": {"name": type(model).__name__}, **plain}
    elif model is None or isinstance(model, str | Mapping):
        plain = {**_given(model=model), **plain}
    else:
        got = f"the class {model.__name__}; call it" if isinstance(model, type) else type(model).__name__
        raise SpecError(
            f"model: must be a model of the zoo, 'module:function', a mapping of settings or an nn.Module, got {got}"
        )
    if task is None or isinstance(task, str | Mapping):
        return {**_given(task=task), **plain}, federation, module, None
    if not isinstance(task, Task):
        raise SpecError(f"task: must be a name, a mapping of settings or a fedrelay.Task, got {type(task).__name__}")
    return plain, federation, module, task
