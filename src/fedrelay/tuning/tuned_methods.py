"""From a tuning to experiments: the search space of every method, and the settings of every trial."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrelay.errors import SpecError
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.method_hyperparameters import Hyperparameter, hyperparameter_of
from fedrelay.experiment.spec import Comparison, ComparisonEntry, Experiment, full_path, has_path, set_path, validate
from fedrelay.tuning.search_space import Point, SearchSpace
from fedrelay.tuning.settings import Tuning


@dataclass(frozen=True)
class TunedMethod:
    """A method and the configurations that are tried."""

    entry: ComparisonEntry
    space: SearchSpace

    @property
    def name(self) -> str:
        """What tables call it."""
        return self.entry.name

    def at(self, point: Point) -> ComparisonEntry:
        """The method with the settings of a point."""
        tree: dict[str, Any] = self.entry.model_dump(exclude_defaults=True)
        for path, value in self.space.settings(point).items():
            set_path(tree, path, value)
        return validate(ComparisonEntry, tree)


@dataclass(frozen=True)
class TuningPlan:
    """A tuning with everything that is common to its trials resolved."""

    tuning: Tuning
    comparison: Comparison
    """All methods with their own settings, on the samples that all runs share."""

    methods: tuple[TunedMethod, ...]

    @classmethod
    def of(cls, tuning: Tuning) -> TuningPlan:
        """The plan of a tuning; every configuration is checked.

        Raises:
            SpecError: A method, a setting or one of the values to try is not valid.
        """
        tree = tuning.model_dump(exclude={"tune"})
        comparison = validate(Comparison, {**tree, "out": None})
        first = experiments(comparison)[0][1]  # with the public samples and classes that any method needs
        comparison = comparison.model_copy(update={"data": first.data, "eval": first.eval})
        methods = tuple(TunedMethod(entry, search_space(tuning, entry)) for entry in tuning.methods)
        plan = cls(tuning, comparison, methods)
        for method in methods:
            plan.experiments(method, method.space.points())
        return plan

    def experiments(self, method: TunedMethod, points: Sequence[Point]) -> list[Experiment]:
        """The experiment of each point, without a seed of its own."""
        others = self.comparison.methods
        entries = [
            method.at(point).model_copy(update={"label": f"trial {number}"}) for number, point in enumerate(points)
        ]
        wanted = self.comparison.model_copy(update={"methods": (*others, *entries), "seeds": (0,)})
        try:
            found = experiments(wanted)
        except SpecError as error:
            raise SpecError(f"{method.name}: {error}") from None
        return [experiment for _, experiment in found[len(others) :]]


def search_space(tuning: Tuning, entry: ComparisonEntry) -> SearchSpace:
    """The configurations of a method: the same number of learning rates for all, over the same range."""
    settings = tuning.tune
    lr = entry.train.get("lr", tuning.train.lr)
    return SearchSpace.around(lr, settings.span, settings.trials, _hyperparameter(tuning, entry))


def _hyperparameter(tuning: Tuning, entry: ComparisonEntry) -> Hyperparameter | None:
    """The setting that is tuned beside the learning rate: the one that the user names, else the usual one.

    A value that the user gave is kept, unless the user names the setting.
    """
    chosen = tuning.tune.hyperparameter.get(entry.name)
    if chosen is not None:
        return next((Hyperparameter(full_path(key), tuple(values)) for key, values in chosen.items()), None)
    usual = hyperparameter_of(entry.method)
    if usual is None or any(has_path(each.model_dump(exclude_defaults=True), usual.key) for each in (entry, tuning)):
        return None
    return usual


def trial_folder(out: Path, method: TunedMethod, number: int, seed: int) -> Path:
    """The folder of one run of a trial."""
    return out / "trials" / method.entry.folder / f"trial-{number:02}" / f"seed-{seed}"
