"""The functions behind `import fedrelay as fr`. Settings have the same names as in YAML and on the command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack, cast, overload

from rich.console import Console
from torch import nn

from fedrelay.data.federation import Federation
from fedrelay.data.federation import federate as federate
from fedrelay.data.open_federation import open_federation
from fedrelay.data.own_data_per_seed import OwnData, OwnDataPerSeed
from fedrelay.data.public_samples import FederationWithPublicSamples
from fedrelay.data.table_federation import federate_table as federate_table
from fedrelay.data.torch_dataset_federation import federate_datasets as federate_datasets
from fedrelay.errors import SpecError
from fedrelay.experiment.data_and_model import OwnModel, reserved_shares
from fedrelay.experiment.keyword_types import EngineName, KeywordDataSettings, KeywordSettings, Options, Partition
from fedrelay.experiment.method_catalogue import METHODS, load_plugins, method_names
from fedrelay.experiment.method_grammar import refuse_misplaced_options
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import Comparison, DataSettings, comparison, experiment, nested, shortcuts, validate
from fedrelay.experiment.sweep_cells import sweep_cells
from fedrelay.report import notebook as notebook  # shows results, plans and federations in notebooks
from fedrelay.report.progress import watching
from fedrelay.report.tuning_progress import tuning_progress
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.callback import Callback, Callbacks, CombinedCallback, as_callback
from fedrelay.runtime.comparison import run_comparison
from fedrelay.runtime.comparison_result import ComparisonResult
from fedrelay.runtime.export import ExportedRun, Format, export_run
from fedrelay.runtime.result import Result
from fedrelay.runtime.round_loop import resume_run, run_experiment
from fedrelay.runtime.sweep import run_sweep
from fedrelay.runtime.sweep_result import SweepResult
from fedrelay.runtime.tracking import loggers_of
from fedrelay.runtime.unsaved_inputs import SETTINGS_WITH_OWN_DATA
from fedrelay.tasks.base import Task
from fedrelay.tuning.result import TuningResult
from fedrelay.tuning.run_tuning import run_tuning
from fedrelay.tuning.settings import Objective, Tuning
from fedrelay.tuning.trial_runs import OwnInputs
from fedrelay.user_code import name_of

DataSource = str | Options | Federation | Callable[[int], Federation]
ModelSource = str | Options | nn.Module | Callable[..., nn.Module]
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
        data: A known data set, a mapping of `data` settings, a federation made with `federate` or `load_data`, or a
            function that takes the seed and returns a federation.
        model: A model of the zoo, `"module:function"`, your own `nn.Module`, whose weights are the initial ones, or a
            function that builds one. It is called under the seed of the run, with the shape of a sample and the number
            of outputs if it takes two arguments.
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


class ComparisonKeywords(KeywordSettings, total=False):
    """The arguments of `compare` by name, apart from `sweep`, for type checkers."""

    data: DataSource
    model: ModelSource | None
    task: TaskSource | None
    clients: int | None
    partition: Partition | None
    alpha: float | None
    rounds: int | None
    fraction: float | None
    epochs: int | None
    batch_size: int | None
    lr: float | None
    seeds: Sequence[int] | None
    baseline: str | None
    engine: EngineName | Options | None
    workers: int | None
    out: str | Path | None
    plugins: Sequence[str] | None
    callbacks: Callbacks | None
    progress: bool | None


@overload
def compare(
    methods: Sequence[str | Options], *, sweep: None = None, **settings: Unpack[ComparisonKeywords]
) -> ComparisonResult: ...


@overload
def compare(
    methods: Sequence[str | Options], *, sweep: Mapping[str, Sequence[object]], **settings: Unpack[ComparisonKeywords]
) -> SweepResult: ...


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
    baseline: str | None = None,
    sweep: Mapping[str, Sequence[object]] | None = None,
    engine: EngineName | Options | None = None,
    workers: int | None = None,
    out: str | Path | None = None,
    plugins: Sequence[str] | None = None,
    callbacks: Callbacks | None = None,
    progress: bool | None = None,
    **settings: Unpack[KeywordSettings],
) -> ComparisonResult | SweepResult:
    """Run several methods over several seeds, everything else equal.

    Args:
        methods: Methods, or mappings such as `{"method": "fedseq", "label": "two loops", "route": {"loops": 2}}`.
        seeds: One run of every method for each seed.
        baseline: The method that all others are compared with, by its label; by default the first.
        sweep: One or two settings and their values, such as `{"alpha": [0, 0.1, 1]}`: every method runs with each.
        out: Folder to keep all runs, the table and the curves in. Calling again continues unfinished runs.

    All other arguments are those of `run`. An `nn.Module` starts with the same weights for every seed, and a federation
    keeps its partition. For other weights and another partition with every seed, pass functions: `model=make_net`,
    `data=lambda seed: fr.federate(…, seed=seed)`.

    Returns:
        The results by method: `outcome["fedseq"].results`, and the differences to the baseline, seed by seed:
        `outcome.differences["fedseq"]`. With a sweep, one such result for each cell: `result.at({"alpha": 0.1})`.

    Example:
        >>> import fedrelay as fr
        >>> outcome = fr.compare(["fedavg", "fedseq"], clients=20, alpha=0, rounds=2, seeds=[1, 2])
        >>> len(outcome["fedseq"].results)
        2
        >>> low, high = outcome.differences["fedseq"].difference.interval  # 95 %, of fedseq minus fedavg
        >>> swept = fr.compare(["fedavg", "fedseq"], sweep={"alpha": [0, 1]}, clients=10, rounds=1, workers=1)
        >>> len(swept.at({"alpha": 1})["fedseq"].results)
        1
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
        baseline=baseline,
        sweep=sweep,
        engine=engine,
        workers=workers,
        out=out,
        plugins=plugins,
    )
    plain, federation, module, own_task = _separate_own(named, settings, data, model, task)
    _check([each for each in methods if isinstance(each, str)], plain)
    wanted = comparison(methods, **plain)
    if wanted.sweep:
        return _swept(wanted, OwnInputs(federation, module, own_task), callbacks, progress)
    titles = [f"{entry.name}, seed {seed}" for entry in wanted.methods for seed in wanted.seeds]
    with _watched(callbacks, progress, titles) as watcher:
        outcome = run_comparison(wanted, federation=federation, module=module, task=own_task, callbacks=watcher)
    if wanted.out is not None:
        from fedrelay.report.comparison_files import write_comparison_files  # matplotlib takes a second to import

        write_comparison_files(outcome, wanted.out)
    return outcome


def _swept(wanted: Comparison, own: OwnInputs, callbacks: Callbacks | None, progress: bool | None) -> SweepResult:
    """Run a sweep, and write its files if it has a folder."""
    for given, section in ((own.federation, "data"), (own.module, "model"), (own.task, "task")):
        of_own = [path for path in wanted.sweep if path.split(".")[0] == section and path not in SETTINGS_WITH_OWN_DATA]
        if given is not None and of_own:
            raise SpecError(f"sweep.{of_own[0]}: has no effect on a {section} of your own; compare once for each value")
    titles = [
        f"{cell.name}: {entry.name}, seed {seed}"
        for cell in sweep_cells(wanted)
        for entry in wanted.methods
        for seed in wanted.seeds
    ]
    with _watched(callbacks, progress, titles) as watcher:
        result = run_sweep(wanted, federation=own.federation, module=own.module, task=own.task, callbacks=watcher)
    if wanted.out is not None:
        from fedrelay.report.sweep_files import write_sweep_files  # matplotlib takes a second to import

        write_sweep_files(result, wanted.out)
    return result


def tune(
    methods: Sequence[str | Options] | None = None,
    *,
    out: str | Path,
    trials: int | None = None,
    objective: Objective | None = None,
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
    plugins: Sequence[str] | None = None,
    tune: Options | None = None,
    progress: bool | None = None,
    **settings: Unpack[KeywordSettings],
) -> TuningResult:
    """Tune methods with equal budgets, compare the best of each with fresh seeds, and recommend one.

    Learning rates, and at most one hyperparameter of each method, are chosen on validation samples by successive
    halving, and so is the method; test samples show what it is worth. The folder gets a page,
    `report.html`, that shows why.

    Args:
        methods: Methods, or mappings as in `compare`; by default seven common ones.
        out: Folder to keep everything in. Calling again with the same arguments continues an unfinished tuning.
        trials: Configurations of each method that are tried.
        objective: `"score"`: the best metric within the budget; `"rounds"`, `"updates"`, `"bytes"` or `"hours"`: the
            cost until `target` is reached. The budget is `rounds`, `max_updates`, `max_bytes` or `max_hours`.
        lr: The middle of the learning rates that are tried.
        seeds: Fresh seeds of the comparison.
        tune: Other settings of the section `tune`, such as `{"rungs": 2, "seeds": [1], "span": 4}`.
        workers: How many runs go side by side; 0 uses all cores. With data, model or task of your own, runs go one
            after another, each on all cores.

    All other arguments are those of `run`.

    Returns:
        The choice for every method, the comparison, and the recommended method.

    Raises:
        SpecError: A setting is unknown or not valid.
        RunFolderError: The folder holds something else.
        DivergedError: No trial of any method came to its end.

    Example:
        >>> import tempfile
        >>> import fedrelay as fr
        >>> options = {"seeds": [1], "rungs": 2, "extensions": 0}
        >>> result = fr.tune(["fedavg", "fedseq"], clients=10, rounds=4, trials=3, seeds=[2], workers=1, tune=options,
        ...                  out=tempfile.mkdtemp())
        >>> [len(method.choice.trials) for method in result.methods]
        [3, 3]
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
        plugins=plugins,
    )
    plain, federation, module, own_task = _separate_own(named, settings, data, model, task)
    _check([each for each in methods or () if isinstance(each, str)], plain)
    chosen = {**(tune or {}), **_given(trials=trials, objective=objective)}
    wanted = validate(Tuning, {**nested(plain), **_given(methods=methods), "tune": chosen})
    with tuning_progress(_console(progress)) as on_progress:
        result = run_tuning(wanted, Path(out), own=OwnInputs(federation, module, own_task), on_progress=on_progress)
    from fedrelay.report.tuning_page import write_tuning_files  # matplotlib takes a second to import

    write_tuning_files(result)
    return result


def resume(
    run: str | Path,
    *,
    rounds: int | None = None,
    without: str | int | Sequence[str | int] = (),
    data: Federation | Callable[[int], Federation] | None = None,
    model: nn.Module | Callable[..., nn.Module] | None = None,
    task: Task | None = None,
    callbacks: Callbacks | None = None,
    progress: bool | None = None,
) -> Result:
    """Continue a run from its folder.

    Args:
        run: The folder of the run.
        rounds: Go on to this number of rounds, also if the run is complete or was stopped.
        without: One or more clients that have left for good, as numbers or node names. What the model learned from
            them stays in it.
        data: Your own federation, or your function of the seed, if the run was started with one.
        model: Your own module, or your function that builds it, if the run was started with one.
        task: Your own task, if the run was started with one.
        callbacks: Called during the run, as in `run`.
        progress: Whether to show a progress bar; by default in terminals and notebooks.

    Returns:
        The result, equal to that of an uninterrupted run. A complete run without new `rounds` is only read.

    Raises:
        RunFolderError: The folder is damaged, in use, or was started with other data.
        SpecError: More rounds are asked for, but rounds that are done depend on their number, or the run has reached
            a limit. A client in `without` does not exist.

    Example:
        >>> import tempfile
        >>> import fedrelay as fr
        >>> out = tempfile.mkdtemp()
        >>> result = fr.run("fedseq", clients=20, rounds=2, out=out)
        >>> fr.resume(out, rounds=3).rounds
        3
    """
    federation = None if data is None else _own_data(data)
    module = None if model is None else _own_model(model)
    with _watched(callbacks, progress) as watcher:
        return resume_run(
            Path(run),
            rounds=rounds,
            without=[str(client) for client in ([without] if isinstance(without, (str, int)) else without)],
            federation=federation,
            module=module,
            task=task,
            callbacks=watcher,
        )


def export(
    run: str | Path,
    out: str | Path,
    *,
    format: Format = "safetensors",
    best: bool = False,
    predictions: bool = False,
    data: Federation | Callable[[int], Federation] | None = None,
    model: nn.Module | Callable[..., nn.Module] | None = None,
    task: Task | None = None,
) -> ExportedRun:
    """Export a model of a complete run, with its preprocessing and a model card.

    Args:
        run: The folder of the run.
        out: A new or empty folder for the files.
        format: `"safetensors"` or `"state-dict"` hold the weights; `"torch-export"` and `"onnx"` hold the whole model,
            which takes raw values and scales them itself.
        best: Whether to export the model that was best on validation samples, instead of that of the last round.
        predictions: Whether to write the predictions for every test sample, too.
        data: Your own federation, or your function of the seed, if the run was started with one.
        model: Your own module, or your function that builds it, if the run was started with one.
        task: Your own task, if the run was started with one.

    Returns:
        The paths of the files.

    Raises:
        RunFolderError: The run is not complete, or its model is damaged.
        SpecError: The format is unknown or cannot be written here, or the run kept no best model.

    Example:
        >>> import tempfile
        >>> import fedrelay as fr
        >>> folder = tempfile.mkdtemp()
        >>> result = fr.run("fedseq", clients=10, rounds=2, validation=0.2, out=f"{folder}/run")
        >>> fr.export(f"{folder}/run", f"{folder}/best", best=True).model.name
        'model.safetensors'
    """
    return export_run(
        Path(run),
        Path(out),
        format=format,
        best=best,
        predictions=predictions,
        federation=None if data is None else _own_data(data),
        module=None if model is None else _own_model(model),
        task=task,
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
    **settings: Unpack[KeywordDataSettings],
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
        >>> fr.load_data("digits", clients=50, alpha=0).client_count
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
    with watching(_console(progress), titles, lambda _: None) as shown:
        try:
            yield CombinedCallback(shown, as_callback(callbacks))
        finally:
            for logger in loggers_of(callbacks):
                logger.close()


def _console(progress: bool | None) -> Console:
    """Stderr; by default it is quiet unless someone is looking."""
    console = Console(stderr=True, quiet=progress is False)
    if progress is None and not (console.is_terminal or console.is_jupyter):
        console.quiet = True
    return console


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
) -> tuple[dict[str, Any], OwnData | None, OwnModel | None, Task | None]:
    """Split the arguments into plain settings and the user's own objects."""
    plain = {**named, **more}
    federation: OwnData | None = None
    module: OwnModel | None = None
    if isinstance(data, str | Mapping):
        plain = {"data": data, **plain}
    else:
        federation = _own_data(data)
        paths = {name: shortcuts().get(name, name) for name in plain}
        useless = [
            name for name, path in paths.items() if path.split(".")[0] == "data" and path not in SETTINGS_WITH_OWN_DATA
        ]
        if useless:
            raise SpecError(
                f"{', '.join(useless)}: has no effect on data of your own; pass it to federate or load_data"
            )
        plain = {"data": _data_settings(federation), **plain}
    if model is None or isinstance(model, str | Mapping):
        plain = {**_given(model=model), **plain}
    else:
        module = _own_model(model)
        useless = [name for name in plain if shortcuts().get(name, name).split(".")[0] == "model"]
        if useless:
            raise SpecError(f"{', '.join(useless)}: has no effect on a model of your own")
        plain = {"model": {"name": name_of(module)}, **plain}
    if task is None or isinstance(task, str | Mapping):
        return {**_given(task=task), **plain}, federation, module, None
    if not isinstance(task, Task):
        raise SpecError(f"task: must be a name, a mapping of settings or a fedrelay.Task, got {type(task).__name__}")
    return plain, federation, module, task


def _own_data(data: Federation | Callable[[int], Federation]) -> OwnData:
    """The user's own federation, or a function of the seed that returns one."""
    if hasattr(data, "train_samples"):
        return cast(Federation, data)
    if callable(data):
        return OwnDataPerSeed(data)
    raise SpecError(
        "data: must be a name, a mapping of settings, a federation or a function of the seed, "
        f"got {type(data).__name__}; fr.federate(x, y, x_test, y_test) makes a federation of arrays"
    )


def _own_model(model: nn.Module | Callable[..., nn.Module]) -> OwnModel:
    """The user's own module, or a function that builds one."""
    if not callable(model):  # modules are callable too
        raise SpecError(
            "model: must be a model of the zoo, 'module:function', a mapping of settings, an nn.Module or a function "
            f"that builds one, got {type(model).__name__}"
        )
    return model


def _data_settings(data: OwnData) -> dict[str, Any]:
    """The `data` section for data of the user's own. Those that depend on the seed complete it in every run."""
    if isinstance(data, OwnDataPerSeed):
        return {"name": "own data"}
    kept: dict[str, Any] = {"public": data.per_class} if isinstance(data, FederationWithPublicSamples) else {}
    return {"name": data.name, "clients": data.client_count, **kept, **reserved_shares(data)}
