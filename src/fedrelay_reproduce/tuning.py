"""Step sizes for claims: every method is tuned with the same rule, before the seeds that a claim is judged by.

1. The learning rates 0.003, 0.01, 0.03, 0.1 and 0.3 are tried. While the best is the smallest or the largest, one
   beyond it is tried too, at most twice.
2. A method with a hyperparameter of its own then tries other values of that one with the learning rate that was best.
3. Trials have one seed, which no claim uses, and are scored on validation samples: the mean accuracy of the last
   evaluations. Test samples have no say. A trial that diverges is the worst.
4. A trial is the beginning of a run of full length (a third by default), because growing groups depend on its end.
5. Where trials are shorter than the runs of claims, the best one and the next, if it is at most five points worse,
   are done again as whole runs, on validation samples too, and the better of the two is chosen.

Rule 5 is of 2026-11-18, after most claims of scale medium had been judged: FedSeq's learning rate on CIFAR-10, 0.1, the
best by one point after 167 rounds, ended five points below 0.03 on test samples after 300. The rule was then applied to
all methods of all tunings. Three choices changed, each from 0.1 to 0.03: those of FedSeq on CIFAR-10, FedDC on
Fashion-MNIST and FedGSP on FEMNIST. All runs with these were done again. Whole runs of FedAvg with 20 epochs have 14
rounds, the claim that uses it has 7.

`python -m fedrelay_reproduce.tuning NAME` runs a tuning, continues it after an interruption, and writes what was
chosen, with every trial, to a JSON file of this package. Claims read their settings from there. With `--results FOLDER`
the scores of finished trials are kept in that folder, so that a tuning can go on without its runs on another machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

import fedrelay as fr
from fedrelay.engines.local.simulation_engine import cores
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.spec import set_path, validate
from fedrelay.files import make_folder, write_atomically
from fedrelay.runtime.result import on_validation
from fedrelay.tuning.score import Rung
from fedrelay.tuning.trial_runs import NO_OWN_INPUTS, ComparedRun, TrialRun, executing
from fedrelay_reproduce.claim import ClaimExperiment, ClaimTuning, Scale, Spec, merged
from fedrelay_reproduce.records import plain

RATES = (0.003, 0.01, 0.03, 0.1, 0.3)
STEP = 10**0.5
"""The factor between a learning rate at the edge and the one beyond it."""

EXTENSIONS = 2
CLOSE = 0.05
"""By how much less accuracy a trial may have to be tried for the whole length."""

SEED = 101
VALIDATION = 0.2
TUNED = files(__package__).joinpath("tuned")
"""One file for each tuning."""

Settings = dict[str, Any]
"""Settings by their place in a spec, such as `train.lr`."""


@dataclass(frozen=True)
class Trial:
    """Settings that were tried, and their score; None if the run diverged."""

    settings: Settings
    score: float | None

    @property
    def rank(self) -> float:
        return -1.0 if self.score is None else self.score


Search = Generator[list[Settings], Sequence[float | None], list[Trial]]
"""Yields the settings to try next, is sent their scores in the same order, and returns all trials."""


def search(hyperparameter: Mapping[str, Sequence[Any] | Callable[[Settings], list[Any]]]) -> Search:
    """The trials of one method by rules 1 and 2; values may depend on the settings with the best learning rate."""
    trials: list[Trial] = []

    def wave(tried: list[Settings]) -> Generator[list[Settings], Sequence[float | None], None]:
        scores = yield tried
        trials.extend(Trial(*each) for each in zip(tried, scores, strict=True))

    yield from wave([{"train.lr": rate} for rate in RATES])
    for _ in range(EXTENSIONS):
        best, rates = best_of(trials).settings["train.lr"], [trial.settings["train.lr"] for trial in trials]
        if best not in (min(rates), max(rates)):
            break
        beyond = best * STEP if best == max(rates) else best / STEP
        yield from wave([{"train.lr": float(f"{beyond:.2g}")}])
    best_rate = best_of(trials).settings
    for key, values in hyperparameter.items():
        tried = values(best_rate) if callable(values) else values
        yield from wave([{**best_rate, key: value} for value in tried])
    return trials


def best_of(trials: Sequence[Trial]) -> Trial:
    """The best trial; of equal ones the first."""
    return max(trials, key=lambda trial: trial.rank)


@dataclass(frozen=True)
class Tuned:
    """All trials of a method, and the whole runs of the best two if they are close."""

    trials: Sequence[Trial]
    whole: Sequence[Trial] = ()

    @property
    def chosen(self) -> Trial:
        return best_of(self.whole or self.trials)


def close_trials(trials: Sequence[Trial]) -> list[Trial]:
    """The best two trials; none if they are not close, or if there is only one."""
    first, *others = sorted(trials, key=lambda trial: trial.rank, reverse=True)
    close = [each for each in others if each.score is not None and each.rank >= first.rank - CLOSE]
    return [first, close[0]] if close else []


def tune(tuning: ClaimTuning, out: Path, processes: int, results: Path | None = None) -> dict[str, Tuned]:
    """Tune every method; trials that are finished below `out` or in `results` are not done again."""
    spec = _on_validation_samples(tuning.experiment, tuning.scale)
    entries = {entry.name: _entry(given) for entry, given in _named(spec)}
    searches = {name: search(tuning.hyperparameters.get(name, {})) for name in entries}
    wanted = {name: next(each) for name, each in searches.items()}
    whole_spec = _on_validation_samples(tuning.whole, tuning.scale) if tuning.whole else None
    settings = {**spec, "share": tuning.share, "whole": whole_spec}
    scores = FinishedTrials.load(results and results / "tuning" / f"{tuning.name}.json", settings)
    found: dict[str, list[Trial]] = {}
    with executing(processes, NO_OWN_INPUTS, scores.take_up) as execute:
        while wanted:
            runs = {
                name: [_run(tuning.name, tuning.share, spec, entries[name], name, settings, out) for settings in tried]
                for name, tried in wanted.items()
            }
            scores.complete([run for each in runs.values() for run in each], execute)
            before, wanted = wanted, {}
            for name in before:
                try:
                    wanted[name] = searches[name].send([scores.by_title[run.title] for run in runs[name]])
                except StopIteration as end:
                    found[name] = end.value
        trials_are_whole = tuning.share == 1 and tuning.whole is None
        close = {name: [] if trials_are_whole else close_trials(trials) for name, trials in found.items()}
        whole_runs = _whole_runs(tuning, close, out)
        scores.complete([run for each in whole_runs.values() for run in each], execute)
    whole = {
        name: [Trial(trial.settings, scores.by_title[run.title]) for trial, run in zip(close[name], runs, strict=True)]
        for name, runs in whole_runs.items()
    }
    return {name: Tuned(found[name], whole[name]) for name in entries}


def _whole_runs(tuning: ClaimTuning, close: Mapping[str, Sequence[Trial]], out: Path) -> dict[str, list[TrialRun]]:
    """Rule 5: the runs of close trials at the length that claims have."""
    spec = _on_validation_samples(tuning.whole or tuning.experiment, tuning.scale)
    entries = {entry.name: _entry(given) for entry, given in _named(spec)}
    folder = f"{tuning.name}-whole"
    return {
        name: [_run(folder, 1, spec, entries[name], name, trial.settings, out, ", whole run") for trial in trials]
        for name, trials in close.items()
    }


def _on_validation_samples(experiment: ClaimExperiment, scale: Scale) -> dict[str, Any]:
    return merged(experiment.spec(scale), {"data": {"validation": VALIDATION}})


@dataclass(frozen=True)
class FinishedTrials:
    """The scores of finished trials by their titles, kept in a file if there is one."""

    path: Path | None
    settings: Any
    by_title: dict[str, float | None]

    @classmethod
    def load(cls, path: Path | None, spec: Spec) -> FinishedTrials:
        """What a file says; nothing if it was made with other settings."""
        known = json.loads(path.read_bytes()) if path is not None and path.is_file() else {}
        same = known.get("settings") == plain(spec)
        return cls(path, plain(spec), known["scores"] if same else {})

    def complete(self, runs: Sequence[TrialRun], execute: Callable[[list[TrialRun]], None]) -> None:
        """Do the runs whose scores are not known."""
        for run in runs:
            if run.title not in self.by_title and run.done:
                self.take_up(run)
        execute([run for run in runs if run.title not in self.by_title])

    def take_up(self, run: TrialRun | ComparedRun) -> None:
        """Add a trial that has finished."""
        assert isinstance(run, TrialRun)  # methods are compared by claims
        print(f"  {run.title}", flush=True)
        self.by_title[run.title] = score(run)
        if self.path is not None:
            text = json.dumps({"settings": self.settings, "scores": self.by_title}, indent=1, ensure_ascii=False)
            make_folder(self.path.parent)
            write_atomically(self.path, f"{text}\n".encode())


def score(run: TrialRun) -> float | None:
    """The mean validation accuracy of the last evaluations; None if the run failed."""
    rows, problem = run.rows()
    last = rows[-run.experiment.eval.last :]
    return None if problem else fmean(row[on_validation("accuracy")] for row in last)


def tuned_settings(name: str) -> dict[str, Any]:
    """What a tuning chose, as its file says.

    Raises:
        SpecError: if it was not run yet.
    """
    path = TUNED.joinpath(f"{name}.json")
    if not path.is_file():
        raise fr.SpecError(f"methods are not tuned yet: run 'python -m fedrelay_reproduce.tuning {name}' first")
    return dict(json.loads(path.read_text(encoding="utf-8")))


def with_tuned_settings(spec: Spec, name: str) -> dict[str, Any]:
    """A comparison whose methods have the settings that a tuning chose.

    A method that was not tuned under its label has the settings of its own name, or of the name that its own begins
    with: `spfl+fedprox` those of `spfl`. Others keep what the spec says.
    """
    chosen = tuned_settings(name)["methods"]
    tuned = []
    for entry, given in _named(spec):
        names = [entry.name, *_beginnings(entry.name), *_beginnings(entry.method)]
        found = next((chosen[each] for each in names if each in chosen), None)
        tuned.append(_with(_entry(given), found["settings"]) if found is not None else given)
    return {**spec, "methods": tuned}


def _beginnings(method: str) -> list[str]:
    """The name of a combination and of what it begins with, the longest first."""
    parts = method.split("+")
    return ["+".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _named(spec: Spec) -> list[tuple[Any, Any]]:
    """The methods of a comparison, checked, each with what the spec says."""
    comparison = validate(fr.Comparison, {**spec, "seeds": (SEED,)})
    return list(zip(comparison.methods, spec["methods"], strict=True))


def _entry(given: str | Mapping[str, Any]) -> dict[str, Any]:
    return {"method": given} if isinstance(given, str) else json.loads(json.dumps(given))


def _with(entry: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(entry))
    for path, value in settings.items():
        set_path(changed, path, value)
    return changed


def _run(
    tuning: str,
    share: float,
    spec: Spec,
    entry: Mapping[str, Any],
    name: str,
    settings: Settings,
    out: Path,
    remark: str = "",
) -> TrialRun:
    """The run of a trial in a folder of its own."""
    trial = _with({**entry, "label": "trial"}, settings)
    others = [each for each in spec["methods"] if _entry(each) != entry]  # all methods share public samples and classes
    tree = {**spec, "methods": [trial, *others], "seeds": (SEED,), "engine": {"workers": 1}}
    [(_, experiment), *_] = experiments(validate(fr.Comparison, tree))
    label = ", ".join(f"{path.rpartition('.')[2]} {value:g}" for path, value in settings.items())
    folder = out / "tuning" / tuning / name.replace("/", "-") / label.replace(", ", "-").replace(" ", "_")
    rung = Rung(share, experiment.rounds, experiment.stop)
    return TrialRun(f"{name}, {label}{remark}", experiment.model_copy(update={"out": folder}), rung)


def main() -> None:
    """Run the tunings of claims and write what they chose."""
    from fedrelay_reproduce.catalogue import load_claims

    known = {each.name: each for claim in load_claims().values() for each in claim.tunings}
    parser = argparse.ArgumentParser(description="Tune the methods of claims.")
    parser.add_argument("name", nargs="+", choices=[*known])
    parser.add_argument("--out", type=Path, default=Path("reproduction"), help="folder for all runs")
    parser.add_argument("--jobs", type=int, default=cores(), help="worker processes")
    parser.add_argument("--results", type=Path, help="folder in which scores of finished trials are kept")
    given = parser.parse_args()
    for name in given.name:
        tuning = known[name]
        found = tune(tuning, given.out, given.jobs, given.results)
        text = json.dumps(_facts(tuning, found), indent=1, ensure_ascii=False)
        make_folder(Path(str(TUNED)))
        write_atomically(Path(str(TUNED)) / f"{name}.json", f"{text}\n".encode())


def _facts(tuning: ClaimTuning, found: Mapping[str, Tuned]) -> dict[str, Any]:
    """A tuning as JSON: the rule, and for every method what was chosen and every trial."""

    def plain_trials(trials: Sequence[Trial]) -> list[Settings]:
        return [{**trial.settings, "score": trial.score} for trial in trials]

    spec = tuning.experiment.spec(tuning.scale)
    return {
        "rates": RATES,
        "seed": SEED,
        "validation": VALIDATION,
        "rounds": round(tuning.share * spec["rounds"]),
        "methods": {
            name: {
                "settings": tuned.chosen.settings,
                "score": tuned.chosen.score,
                "trials": plain_trials(tuned.trials),
                "whole": plain_trials(tuned.whole),
            }
            for name, tuned in found.items()
        },
    }


if __name__ == "__main__":
    main()
