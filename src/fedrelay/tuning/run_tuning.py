"""Tune all methods, then compare the best of each with fresh seeds.

A tuning folder holds everything, and nothing else is remembered:

    tuning.yaml           the settings
    inputs.json           which inputs were the user's own, given from Python; they have to be given again
    trials/METHOD/trial-NN/seed-N    run folders; those of trials that were stopped can be resumed, too
    best/METHOD.yaml      the best settings of every method, for `fedrelay run`
    recommended.yaml      the best settings of the recommended method
    comparison/           the comparison with fresh seeds
    study.journal         all trials as Optuna studies, if Optuna is installed

Running it again reads the scores of trials from their folders, so it comes to the same choices.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fedrelay.errors import DivergedError, RunFolderError, SpecError
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.prepare import check_preparable, prepare_without_groups
from fedrelay.experiment.spec import Comparison, Experiment, load_file, validate
from fedrelay.experiment.yaml_files import to_yaml
from fedrelay.files import make_folder, read_regular_file, write_atomically
from fedrelay.runtime.best_and_stop import SelectionMetric, validation_metric
from fedrelay.runtime.comparison import open_folder, run_comparison
from fedrelay.runtime.spec_files import TUNING_SPEC
from fedrelay.tasks.task_facts import TaskFacts
from fedrelay.tuning.optuna_study import write_studies
from fedrelay.tuning.result import MethodTuning, TuningResult, spec_file
from fedrelay.tuning.score import Rung, TrialScore, mean_score, rungs, score_of_run
from fedrelay.tuning.settings import Tuning
from fedrelay.tuning.successive_halving import Choice, WantedScore, search
from fedrelay.tuning.trial_runs import (
    NO_OWN_INPUTS,
    ComparedRun,
    Execute,
    OwnInputs,
    Run,
    TrialRun,
    executing,
    process_count,
)
from fedrelay.tuning.tuned_methods import TunedMethod, TuningPlan, trial_folder

INPUTS = "inputs.json"
OnProgress = Callable[[int, int, str], None]
"""Is called with the runs that are done, the runs that are known so far, and the title of the last one."""


def run_tuning(
    tuning: Tuning, out: Path, *, own: OwnInputs = NO_OWN_INPUTS, on_progress: OnProgress | None = None
) -> TuningResult:
    """Tune and compare; what the folder holds already is not done again.

    Args:
        tuning: What to tune.
        out: The folder of the tuning; new, or one that holds the same tuning.
        own: Data, model and task of the user's own.
        on_progress: Called after each run.

    Raises:
        SpecError: A setting is not valid.
        RunFolderError: The folder holds something else.
        DivergedError: No trial of any method came to its end.
    """
    plan = TuningPlan.of(tuning)
    devices = {entry.train.get("device", tuning.train.device) for entry in tuning.methods}
    processes = process_count(tuning.engine, devices, own)
    task = _open_folder(out, plan, own)
    ladder = rungs(tuning.tune.rungs, tuning.rounds, tuning.stop)
    counter = _Counter(on_progress)
    with executing(processes, own, counter.ended) as execute:
        choices = _choose(plan, task, ladder, out, execute, counter)
        methods = tuple(_method_tuning(plan, method, choices[method.name]) for method in plan.methods)
        chosen = [each for each in methods if not each.failed]
        if not chosen:
            failed = methods[0].choice.best.score
            raise DivergedError(f"no trial of any method came to its end ({failed.problem}); {failed.advice}")
        write_studies(out / "study.journal", methods, ladder, task)
        make_folder(out / "best")
        for each in chosen:
            _write_spec(spec_file(out, each), each.experiment)
        final = _final_comparison(plan, chosen, out / "comparison")
        counter.expect(runs := _compared_runs(final, out / "comparison"))
        execute(runs)
    outcome = run_comparison(final, federation=own.federation, module=own.module, task=own.task)
    result = TuningResult(tuning, task, ladder, methods, outcome, out)
    if result.recommended is not None:
        _write_spec(out / "recommended.yaml", result[result.recommended.name].experiment)
    return result


class _Counter:
    """Counts the runs of a tuning; how many there will be is only known wave by wave."""

    def __init__(self, report: OnProgress | None) -> None:
        self.report, self.done, self.known = report, 0, 0

    def expect(self, runs: Sequence[Run]) -> None:
        self.known += len(runs)

    def ended(self, run: Run) -> None:
        self.done += 1
        if self.report is not None:
            self.report(self.done, self.known, run.title)


def load_tuning(folder: Path) -> Tuning:
    """Read the settings of a tuning folder."""
    try:
        return validate(Tuning, load_file(folder / TUNING_SPEC))
    except SpecError as error:
        raise RunFolderError(f"{folder}: {TUNING_SPEC} is damaged: {error}") from None


def _open_folder(out: Path, plan: TuningPlan, own: OwnInputs) -> TaskFacts:
    """Open a new folder, or one that holds the same tuning; errors show before anything is written."""
    tuning = plan.tuning.model_copy(update={"out": None})
    occupied = out.is_dir() and any(out.iterdir())
    if occupied and (not (out / TUNING_SPEC).is_file() or load_tuning(out) != tuning):
        raise RunFolderError(
            f"{out}: is not empty and holds something else; 'fedrelay resume {out}' continues a tuning, "
            "a new one needs another --out"
        )
    if occupied:
        _check_inputs(out, own)
    inputs = {"federation": own.federation, "module": own.module, "task": own.task}
    first = [plan.experiments(method, method.space.points()[:1])[0] for method in plan.methods]
    for experiment in () if occupied else first:
        check_preparable(experiment, **inputs)  # type: ignore[arg-type]
    task = prepare_without_groups(first[0], **inputs).task_facts  # type: ignore[arg-type]
    if not occupied:
        make_folder(out)
        write_atomically(out / INPUTS, json.dumps({"own": own.given}).encode())
        spec = tuning.model_dump(mode="json", exclude={"out"})
        write_atomically(out / TUNING_SPEC, to_yaml(spec).encode())
    return task


def _check_inputs(out: Path, own: OwnInputs) -> None:
    """Refuse to go on with other inputs than those that the tuning was started with."""
    try:
        before = tuple(json.loads(read_regular_file(out / INPUTS))["own"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{out / INPUTS}: is damaged ({error})") from None
    if before != own.given:
        what = " and ".join(before) or "nothing"
        again = "".join(f"{name}=…, " for name in before)
        how = f"fedrelay.tune(…, {again}out={str(out)!r})" if before else f"'fedrelay resume {out}'"
        raise RunFolderError(f"{out}: was started with {what} of your own; continue it with {how}")


def _choose(
    plan: TuningPlan, task: TaskFacts, ladder: Sequence[Rung], out: Path, execute: Execute, counter: _Counter
) -> Mapping[str, Choice]:
    """The choice for every method. All methods go from rung to rung together, which keeps all cores busy."""
    metric = validation_metric(task)
    tune, choices = plan.tuning.tune, dict[str, Choice]()
    searches = [
        (method, search(method.space, tune.rungs, tune.extensions, higher_is_better=metric.higher_is_better))
        for method in plan.methods
    ]
    wanted = [(method, each, next(each)) for method, each in searches]
    while wanted:
        runs = [_runs(plan, method, scores, ladder, out) for method, _, scores in wanted]
        wave = [run for trials in runs for seeds in trials for run in seeds]
        counter.expect(wave)
        execute(wave)
        before, wanted = wanted, []
        for (method, each, _), trials in zip(before, runs, strict=True):
            scores = [_score(seeds, metric, plan.tuning) for seeds in trials]
            try:
                wanted.append((method, each, each.send(scores)))
            except StopIteration as end:
                choices[method.name] = end.value
    return choices


def _runs(
    plan: TuningPlan, method: TunedMethod, wanted: Sequence[WantedScore], ladder: Sequence[Rung], out: Path
) -> list[list[TrialRun]]:
    """The runs for every score, one for each seed."""
    found = plan.experiments(method, [each.trial.point for each in wanted])
    return [
        [_trial_run(method, each, experiment, ladder, out, seed) for seed in plan.tuning.tuning_seeds]
        for each, experiment in zip(wanted, found, strict=True)
    ]


def _trial_run(
    method: TunedMethod, wanted: WantedScore, experiment: Experiment, ladder: Sequence[Rung], out: Path, seed: int
) -> TrialRun:
    number = wanted.trial.number
    folder = trial_folder(out, method, number, seed)
    title = f"{method.name}, trial {number}, rung {wanted.rung + 1}, seed {seed}"
    return TrialRun(title, experiment.model_copy(update={"seed": seed, "out": folder}), ladder[wanted.rung])


def _score(seeds: Sequence[TrialRun], metric: SelectionMetric, tuning: Tuning) -> TrialScore:
    """The score of a trial from the folders of its runs."""
    scores = []
    for run in seeds:
        rows, problem = run.rows()
        found = score_of_run(rows, metric, tuning.tune.objective, tuning.stop.target)
        scores.append(TrialScore(None, problem=problem) if problem else found)
    return mean_score(scores)


def _method_tuning(plan: TuningPlan, method: TunedMethod, choice: Choice) -> MethodTuning:
    """The method with the settings that were chosen, as a user would write them."""
    [experiment] = plan.experiments(method, [choice.best.point])
    seed = Experiment.model_fields["seed"].default
    return MethodTuning(method, choice, experiment.model_copy(update={"seed": seed}))


def _final_comparison(plan: TuningPlan, chosen: Sequence[MethodTuning], out: Path) -> Comparison:
    """The tuned methods with fresh seeds."""
    entries = tuple(each.method.at(each.choice.best.point) for each in chosen)
    baseline = plan.tuning.baseline if plan.tuning.baseline in [entry.name for entry in entries] else None
    changes = {"methods": entries, "seeds": plan.tuning.seeds, "baseline": baseline, "out": out}
    return plan.comparison.model_copy(update=changes)


def _compared_runs(final: Comparison, out: Path) -> list[Run]:
    """The runs of the comparison, whose folder is opened."""
    open_folder(out, final)
    return [
        ComparedRun(f"{entry.name}, seed {experiment.seed}", entry, experiment, out)
        for entry, experiment in experiments(final)
    ]


def _write_spec(path: Path, experiment: Experiment) -> None:
    """Write an experiment as a file for `fedrelay run`, without settings that have their default."""
    tree = experiment.model_dump(mode="json", exclude_defaults=True, exclude={"out"})
    ordered = {"method": experiment.method, **tree}
    text = f"# fedrelay run {path}\n{to_yaml(ordered)}"
    write_atomically(path, text.encode())
