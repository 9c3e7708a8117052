"""Several methods, several seeds, one table.

A comparison folder holds `comparison.yaml` and one run folder for every method and seed: `METHOD/seed-N`. Running it
again continues whatever is not complete, so an interrupted comparison loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from torch import nn

from fedrelay.data.own_data_per_seed import OwnData
from fedrelay.errors import DivergedError, FedRelayError, NoUpdateAcceptedError, RunFolderError
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.data_and_model import OwnModel
from fedrelay.experiment.method import build_method
from fedrelay.experiment.prepare import check_preparable
from fedrelay.experiment.spec import Comparison, ComparisonEntry, Experiment
from fedrelay.experiment.yaml_files import to_yaml
from fedrelay.files import make_folder, write_atomically
from fedrelay.runtime.callback import Callbacks
from fedrelay.runtime.comparison_result import ComparisonResult, MethodResults, load_comparison, run_folder
from fedrelay.runtime.result import Result
from fedrelay.runtime.round_loop import resume_run, run_experiment
from fedrelay.runtime.spec_files import COMPARISON_SPEC
from fedrelay.tasks.base import Task


def run_comparison(
    comparison: Comparison,
    *,
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
    callbacks: Callbacks | None = None,
) -> ComparisonResult:
    """Run all runs of a comparison that are not complete yet."""
    runs = experiments(comparison)
    if comparison.out is not None:
        open_folder(comparison.out, comparison, lambda: check_runs([run for _, run in runs], federation, module, task))
    methods = {entry.name: MethodResults(entry.name, entry.method, ()) for entry in comparison.methods}
    for entry, experiment in runs:
        sofar = methods[entry.name]
        try:
            result = run_entry(entry, experiment, comparison.out, federation, module, task, callbacks)
            sofar = replace(sofar, results=(*sofar.results, result))
        except DivergedError as error:
            sofar = replace(sofar, diverged=(*sofar.diverged, f"seed {experiment.seed}: {error}"))
        except NoUpdateAcceptedError as error:
            sofar = replace(sofar, untrained=(*sofar.untrained, f"seed {experiment.seed}: {error}"))
        except FedRelayError as error:
            raise type(error)(f"{entry.name}, seed {experiment.seed}: {error}") from error.__cause__
        methods[entry.name] = sofar
    return ComparisonResult(comparison, tuple(methods.values()), isinstance(module, nn.Module))


def open_folder(folder: Path, comparison: Comparison, check_preparable: Callable[[], object] = lambda: None) -> None:
    """Open a new folder, or one that holds the same comparison.

    Args:
        folder: Where the comparison is.
        comparison: What it compares.
        check_preparable: Called for a new folder before anything is written, so that errors show.

    Raises:
        RunFolderError: The folder holds something else, or cannot be created.
    """
    if not folder.exists():
        check_preparable()
    try:
        make_folder(folder)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise RunFolderError(f"{folder}: cannot be created ({error.strerror})") from None
    if not occupied:
        spec = comparison.model_dump(mode="json", exclude={"out"})
        write_atomically(folder / COMPARISON_SPEC, to_yaml(spec).encode())
    elif not (folder / COMPARISON_SPEC).is_file() or load_comparison(folder) != comparison:
        raise RunFolderError(
            f"{folder}: is not empty and holds something else; 'fedrelay resume {folder}' continues a comparison, "
            "a new one needs another --out"
        )


def check_runs(
    runs: Sequence[Experiment],
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
) -> None:
    """Check the first run and, with its seed, all runs that profile clients and one attack of each method."""
    first, *others = runs
    alike = [other for other in others if other.seed == first.seed]
    attacked = {other.method: other for other in alike if other.attack.name != "none"}
    profiling = [other for other in alike if build_method(other).profiles_clients]
    for run in (first, *profiling, *(other for other in attacked.values() if other not in profiling)):
        check_preparable(run, federation=federation, module=module, task=task)


def run_entry(
    entry: ComparisonEntry,
    experiment: Experiment,
    out: Path | None,
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
    callbacks: Callbacks | None = None,
) -> Result:
    """Run or continue one run of a comparison in its folder."""
    run = partial(run_experiment, federation=federation, module=module, task=task, callbacks=callbacks)
    if out is None:
        return run(experiment)
    path = run_folder(out, entry, experiment.seed)
    if (path / "run.json").is_file():
        return resume_run(path, federation=federation, module=module, task=task, callbacks=callbacks)
    return run(experiment.model_copy(update={"out": path}))
