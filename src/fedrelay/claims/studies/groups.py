"""Ways to form groups, side by side; nothing is trained but what describes clients."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedrelay.claims.studies.base import Measures, Quick, identifier
from fedrelay.experiment.profile_inputs import profile_inputs
from fedrelay.experiment.spec import DataSettings, Experiment, ModelSettings, Options, Section, TrainSettings, validate
from fedrelay.grouping.base import Grouping
from fedrelay.grouping.distances import DISTANCES, Distance
from fedrelay.grouping.profiles import ProfilingResult
from fedrelay.metrics.skew import group_quality
from fedrelay.routes.base import Groups

CLIENTS = "clients"
"""The subject in which nobody travels with anybody."""


class Ways(Section):
    """The settings of such a study."""

    ways: Mapping[str, Options] = Field(min_length=1, description="name → options of a grouping")
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    train: TrainSettings = TrainSettings()


class GroupStudy(Quick):
    """Groups formed in several ways."""

    @cached_property
    def given(self) -> Ways:
        """The settings, checked."""
        return validate(Ways, self.settings)

    @cached_property
    def ways(self) -> dict[str, Grouping]:
        """The ways by their names in criteria."""
        named = self.given.ways.items()
        return {identifier(name): validate(Grouping, options, f"ways.{name}.") for name, options in named}

    @property
    def subjects(self) -> tuple[str, ...]:
        """All ways, and single clients."""
        return (CLIENTS, *self.ways)

    @property
    def data(self) -> DataSettings:
        """The clients' data."""
        return self.given.data

    def experiment(self, seed: int) -> Experiment:
        """How clients train where they have to be described."""
        common = self.given.model_dump(exclude={"ways"})
        return validate(Experiment, {**common, "method": "fedseq", "seed": seed, "engine": {"workers": 1}})

    def measured(self, seed: int) -> dict[str, Measures]:
        """The quality of all groups, and how well clients of a kind are recognised."""
        evidence = profile_inputs(self.experiment(seed), self.ways.values())
        federation = evidence.federation
        sizes = federation.sizes()
        holders = np.flatnonzero(sizes)
        histograms = np.stack([federation.histogram(client) for client in range(federation.clients)])
        found = {CLIENTS: _quality(tuple((client,) for client in holders.tolist()), histograms, sizes)}
        surveys: dict[str, ProfilingResult] = {}
        for name, grouping in self.ways.items():
            key = grouping.description
            survey = surveys[key] = surveys.get(key) or grouping.survey(evidence)
            found[name] = _quality(grouping.form(evidence, survey), histograms, sizes)
            if grouping.psi is not None:
                main = histograms[holders].argmax(axis=1)
                found[name] |= closeness(survey.vectors, main, DISTANCES[grouping.tau])
        return found


def closeness(vectors: NDArray[np.float64], classes: NDArray[np.int64], distance: Distance) -> Measures:
    """Mean distances of clients that have the same main class, and of those that have not."""
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


def _quality(groups: Groups, histograms: NDArray[np.int64], sizes: NDArray[np.int64]) -> Measures:
    quality = group_quality(groups, histograms, sizes)
    return {
        "median_cpd": quality.median_cpd,
        "balance_ratio": quality.balance_ratio,
        "covered_classes": quality.covered_classes,
        "groups": float(len(groups)),
    }
