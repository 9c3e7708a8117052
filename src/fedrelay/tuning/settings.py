"""The settings of a tuning: those of a comparison, and the section `tune`."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, islice
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedrelay.experiment.spec import Comparison, ComparisonEntry, Section, Seed, full_path

Objective = Literal["score", "rounds", "updates", "bytes", "hours"]

DEFAULT_METHODS = ("fedavg", "fedprox", "scaffold", "fedcyclic", "fedseq", "fedseqinter", "relay")
"""The methods that are tuned if none are named: side by side, corrected, one ring, chains in groups, our own."""

VALIDATION = 0.2
"""The share of validation samples, if the settings do not say."""


class TuneSettings(Section):
    """How methods are tuned; the same for all of them."""

    trials: int = Field(12, ge=2, le=1000, description="configurations of each method that are tried")
    rungs: int = Field(
        3, ge=1, le=8, description="evaluations of a trial on its way; after each but the last, the better half goes on"
    )
    seeds: tuple[Seed, ...] | None = Field(
        None, min_length=1, description="seeds of the tuning runs; default: the first two that `seeds` does not have"
    )
    objective: Objective = Field(
        "score",
        description="score: the best value of the metric on validation samples within the budget; rounds, updates, "
        "bytes, hours: the cost until stop.target is reached",
    )
    span: float = Field(
        8.0, gt=1, le=1e6, description="learning rates from train.lr / span to train.lr · span are tried"
    )
    extensions: int = Field(
        3, ge=0, le=20, description="trials beyond these learning rates, while the best one is the smallest or largest"
    )
    hyperparameter: Mapping[str, Mapping[str, tuple[Any, ...]]] = Field(
        {}, description="method → {setting: values} to try beside the learning rate, at most one setting per method"
    )

    @field_validator("seeds")
    @classmethod
    def _no_duplicates(cls, seeds: tuple[int, ...] | None) -> tuple[int, ...] | None:
        if seeds is not None and len(set(seeds)) < len(seeds):
            raise ValueError("must be different seeds")
        return seeds

    @field_validator("hyperparameter")
    @classmethod
    def _one_setting_of_several_values(cls, chosen_by_method: Mapping[str, Any]) -> Mapping[str, Any]:
        for method, chosen in chosen_by_method.items():
            if len(chosen) > 1:
                raise ValueError(f"{method}: at most one setting beside the learning rate, so that budgets are equal")
            for key, values in chosen.items():
                if full_path(key) == "train.lr":
                    raise ValueError(f"{method}: {key} is always tuned; set train.lr and tune.span instead")
                if len(values) < 2 or any(values.count(each) > 1 for each in values):
                    raise ValueError(f"{method}: {key} needs at least two different values")
        return chosen_by_method


class Tuning(Comparison):
    """Several methods with a budget: each is tuned, then the best of each are compared with fresh seeds."""

    methods: tuple[ComparisonEntry, ...] = Field(
        tuple(ComparisonEntry(method=name) for name in DEFAULT_METHODS), min_length=1, description="methods to tune"
    )
    rounds: int = Field(30, ge=1, description="number of rounds")
    seeds: tuple[Seed, ...] = Field((11, 12, 13), min_length=1, description="fresh seeds of the comparison")
    tune: TuneSettings = TuneSettings()

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """The seeds of the tuning runs; the comparison has none of them."""
        return self.tune.seeds or tuple(islice((seed for seed in count(1) if seed not in self.seeds), 2))

    @model_validator(mode="before")
    @classmethod
    def _keep_validation_samples(cls, tree: Any) -> Any:
        if not isinstance(tree, Mapping):
            return tree
        data = tree.get("data", {})
        data = {"name": data} if isinstance(data, str) else data
        return {**tree, "data": {"validation": VALIDATION, **data}} if isinstance(data, Mapping) else tree

    @model_validator(mode="after")
    def _check_tuning(self) -> Self:
        tune, evaluations = self.tune, self.rounds // self.eval.every
        if self.sweep:
            raise ValueError("sweep: a tuning has no sweep; tune every value by itself")
        if not self.data.validation:
            raise ValueError("data.validation: must be above 0, because methods are tuned on validation samples")
        if used := sorted({*self.seeds} & {*self.tuning_seeds}):
            raise ValueError(f"seeds: {used[0]} is used for tuning (tune.seeds); the comparison needs fresh seeds")
        if evaluations < 2 ** (tune.rungs - 1):
            raise ValueError(
                f"tune.rungs: {tune.rungs} rungs need at least {2 ** (tune.rungs - 1)} evaluations, and there are "
                f"{evaluations}; use more rounds or fewer rungs"
            )
        if tune.objective != "score" and self.stop.target is None:
            raise ValueError(f"tune.objective: {tune.objective!r} is a cost until stop.target is reached; set --target")
        if tune.objective == "score" and self.stop.target is not None:
            raise ValueError("stop.target: a run stops there; choose a cost as tune.objective, such as updates")
        if self.stop.max_wall is not None:
            raise ValueError("stop.max_wall: the choice would depend on this machine; use max_hours (virtual time)")
        if self.engine.name == "flower":
            raise ValueError("engine.name: methods are tuned in simulation; use local or ray")
        names = [entry.name for entry in self.methods]
        if unknown := [name for name in tune.hyperparameter if name not in names]:
            raise ValueError(f"tune.hyperparameter: {unknown[0]!r} is none of the methods ({', '.join(names)})")
        return self
