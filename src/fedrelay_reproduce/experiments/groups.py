"""Groups are formed in several ways; only the profiles of clients are trained."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

import fedrelay as fr
from fedrelay.experiment.grouping_comparison_inputs import profile_inputs
from fedrelay.experiment.spec import DataSettings, ModelSettings, Options, Section, TrainSettings, validate
from fedrelay.grouping.distances import DISTANCES, Distance
from fedrelay.grouping.grouping import Grouping
from fedrelay.report.terminal.grouping_comparison import GroupingResult, grouping_report
from fedrelay_reproduce.experiments.base import ExperimentRuns, Values

CLIENTS = "clients"
"""The grouping in which every client is a group of its own."""


class GroupSettings(Section):
    """The settings of such an experiment."""

    groupings: Mapping[str, Options] = Field(min_length=1, description="name → options of a grouping")
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()


class GroupComparison(ExperimentRuns):
    """Groups formed by several groupings."""

    @cached_property
    def settings(self) -> GroupSettings:
        return validate(GroupSettings, self.spec)

    @cached_property
    def groupings(self) -> dict[str, Grouping]:
        named = self.settings.groupings.items()
        return {name: validate(Grouping, options, f"groupings.{name}.") for name, options in named}

    @property
    def names(self) -> tuple[str, ...]:
        return (CLIENTS, *self.groupings)

    @property
    def data(self) -> DataSettings:
        return self.settings.data

    def experiment(self, seed: int) -> fr.Experiment:
        """How clients train where their profiles need it."""
        common = self.settings.model_dump(exclude={"groupings"})
        return validate(fr.Experiment, {**common, "method": "fedseq", "seed": seed, "engine": {"workers": 1}})

    def measure(self, seed: int) -> dict[str, Values]:
        report = grouping_report(profile_inputs(self.experiment(seed), self.groupings.values()), self.groupings)
        singles, *formed = report.results
        main = singles.histograms.argmax(axis=1)
        found = {CLIENTS: _quality(singles)}
        for result in formed:
            found[result.name] = _quality(result)
            grouping = self.groupings[result.name]
            if grouping.active_profile is not None and result.profiles is not None:
                found[result.name] |= closeness(result.profiles.vectors, main, DISTANCES[grouping.greedy_distance])
        return found


def closeness(vectors: NDArray[np.float64], classes: NDArray[np.int64], distance: Distance) -> Values:
    """Mean distances between clients with the same main class, and between those with different ones."""
    same: list[float] = []
    other: list[float] = []
    for place in range(len(vectors) - 1):
        far = distance(vectors[place], vectors[place + 1 :])
        alike = classes[place + 1 :] == classes[place]
        same += far[alike].tolist()
        other += far[~alike].tolist()
    return {
        "same_class": float(np.mean(same)) if same else None,
        "other_class": float(np.mean(other)) if other else None,
    }


def _quality(result: GroupingResult) -> Values:
    quality = result.quality
    return {
        "median_cpd": quality.median_cpd,
        "balance_ratio": quality.balance_ratio,
        "covered_classes": quality.covered_classes,
        "groups": float(len(result.groups)),
    }
