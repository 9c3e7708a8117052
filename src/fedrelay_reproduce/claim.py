"""A claim: what was published, the experiments that could contradict it, and the criterion.

Every claim is a Python file that defines `CLAIM`. Its docstring holds the words, see `SECTIONS`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Literal, get_args

import fedrelay as fr
from fedrelay.experiment.spec import unknown
from fedrelay_reproduce.criteria import MEASURES, Criterion
from fedrelay_reproduce.verdicts import Verdict

Scale = Literal["smoke", "small", "medium", "full"]
SCALES: tuple[Scale, ...] = get_args(Scale)
"""From the smallest to the largest."""

DEFAULT_SEEDS: Mapping[Scale, int] = {"smoke": 1, "small": 3, "medium": 3, "full": 3}

Kind = Literal["comparison", "groups", "transfers", "image-recovery"]
Spec = Mapping[str, Any]
NO_CHANGES: Spec = MappingProxyType({})
COMPARED = ("methods", "grouping", "rounds", "fraction", "eval")
"""Settings of comparisons that an experiment about groups does not inherit."""

MOST_VALUES = 4
"""The most values of a method's own hyperparameter that are tried."""

SECTIONS = {
    "Source": "where it was published",
    "In short": "the paper's figures in a few words, for the table",
    "Published": "the paper's figures",
    "Holds if": "the criterion in words",
    "Scale small": "how the experiment differs from the published one",
    "Scale medium": "the same at scale medium",
    "Shows": "measures to show beside the checks, with commas; default accuracy_last",
    "Reading": "as `Reading (small, holds)`: what to make of that verdict, written after the run",
    "Remark": "as `Remark (small, holds)`: two or three words that follow this verdict wherever it is shown",
}
"""Paragraphs of a claim's docstring, after the claim itself. The first four are required."""

_ON_A_VERDICT = re.compile(rf"(Reading|Remark) \(({'|'.join(SCALES)}), ({'|'.join(get_args(Verdict))})\)")


@dataclass(frozen=True)
class ClaimExperiment:
    """An experiment at each scale, as plain settings; claims that use the same experiment share its runs.

    Args:
        folder: where its runs are kept, below the folder of the scale.
        small: the settings at scale small.
        smoke: what is different at scale smoke. Mappings are merged, `None` removes a setting.
        medium: what is different at scale medium, for a night on two cores; None if there is no such scale.
        full: what is different at scale full.
        kind: what is done: `comparison` trains methods, `groups` forms groups by several `groupings`, `transfers`
            counts what methods send in a round, `image-recovery` has a client reconstruct the images of others.
        base: an experiment whose settings are taken where these say nothing else.
        tuned: scale → the tuning that chose the settings of methods, see `fedrelay_reproduce.tuning`.
        only: the one scale at which it is run, for experiments that explain a verdict; None for all.
        seeds: how many seeds it has, for supplements that are too long for as many as the claim has.
    """

    folder: str
    small: Spec
    smoke: Spec = field(default_factory=dict)
    medium: Spec | None = None
    full: Spec = field(default_factory=dict)
    kind: Kind = "comparison"
    base: ClaimExperiment | None = None
    tuned: Mapping[Scale, str] = field(default_factory=dict)
    only: Scale | None = None
    seeds: int | None = None

    def __post_init__(self) -> None:
        path = PurePosixPath(self.folder)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise fr.SpecError(f"folder: must be a relative path such as '01/skewed', got {self.folder!r}")
        if self.kind not in get_args(Kind):
            raise fr.SpecError(f"kind: {unknown('kind', self.kind, get_args(Kind))}")

    def but(
        self,
        folder: str,
        small: Spec,
        *,
        smoke: Spec = NO_CHANGES,
        medium: Spec | None = None,
        full: Spec = NO_CHANGES,
        kind: Kind | None = None,
        tuned: Mapping[Scale, str] | None = None,
        only: Scale | None = None,
        seeds: int | None = None,
    ) -> ClaimExperiment:
        """The same experiment with some settings changed; it has a scale medium only if `medium` is given."""
        tunings = self.tuned if tuned is None else tuned
        return ClaimExperiment(folder, small, smoke, medium, full, kind or self.kind, self, tunings, only, seeds)

    @property
    def scales(self) -> tuple[Scale, ...]:
        """The scales at which it can be run."""
        there = (scale for scale in SCALES if scale != "medium" or self.medium is not None)
        return tuple(scale for scale in there if self.only in (None, scale))

    def tuning(self, scale: Scale) -> str | None:
        """The tuning that chose the settings of methods at a scale."""
        return self.tuned.get(scale) if self.kind == "comparison" else None

    def spec(self, scale: Scale) -> dict[str, Any]:
        """All settings at a scale, before tuning."""
        inherited = self.base.spec(scale) if self.base else {}
        if self.kind == "groups":
            inherited = {name: value for name, value in inherited.items() if name not in COMPARED}
        changes: dict[Scale, Spec | None] = {"smoke": self.smoke, "medium": self.medium, "full": self.full}
        return merged(merged(inherited, self.small), changes.get(scale) or NO_CHANGES)


@dataclass(frozen=True)
class ClaimTuning:
    """What is tuned for a claim.

    Args:
        name: the name of its file.
        experiment: the methods to tune, and everything else about their runs.
        hyperparameters: label of a method → the setting that is tuned beside the learning rate → its values.
        share: the share of its rounds that a trial runs.
        whole: the same methods in runs as long as those of claims, for the last choice; `experiment` if it is that.
        scale: the scale at which methods are tuned.
    """

    name: str
    experiment: ClaimExperiment
    hyperparameters: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    share: float = 1 / 3
    whole: ClaimExperiment | None = None
    scale: Scale = "medium"

    def __post_init__(self) -> None:
        for label, chosen in self.hyperparameters.items():
            if len(chosen) != 1 or any(len(values) > MOST_VALUES for values in chosen.values()):
                raise fr.SpecError(
                    f"{label}: tune one setting beside the learning rate, of at most {MOST_VALUES} values"
                )


@dataclass(frozen=True)
class Claim:
    """A published claim and how it is tested.

    Args:
        number: its number; every claim has its own.
        text: the docstring of its file.
        criterion: a function of the results, whose parameters are names of experiments.
        experiments: what is run, by name.
        supplements: what was added after the verdict to find out why, by name. The criterion cannot use them, and the
            verdict does not wait for them.
        seeds: how many seeds a scale has, where it differs from `DEFAULT_SEEDS`.
        diverged: what a diverged run means for targets: nothing is known, or they were never reached.
        tunings: how the settings of methods were chosen.
    """

    number: int
    text: str | None
    criterion: Criterion
    experiments: Mapping[str, ClaimExperiment]
    seeds: Mapping[Scale, int] = field(default_factory=dict)
    diverged: Literal["inconclusive", "never reached"] = "inconclusive"
    tunings: Sequence[ClaimTuning] = ()
    supplements: Mapping[str, ClaimExperiment] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for measure in self.shown:
            if measure not in MEASURES:
                raise fr.SpecError(f"docstring: Shows: {unknown('measure', measure, MEASURES)}")
        if not self.experiments:
            raise fr.SpecError("experiments: must not be empty")
        for name in self.supplements:
            if name in self.experiments:
                raise fr.SpecError(f"supplements: {name!r} is the name of an experiment")
        for name in inspect.signature(self.criterion).parameters:
            if name not in self.experiments:
                raise fr.SpecError(f"criterion: {unknown('experiment', name, self.experiments)}")
        for count in self.seeds.values():
            if count < 1:
                raise fr.SpecError(f"seeds: must be at least 1, got {count}")

    @property
    def scales(self) -> tuple[Scale, ...]:
        """The scales at which every experiment that the criterion uses can be run."""
        used = [self.experiments[name] for name in inspect.signature(self.criterion).parameters]
        return tuple(scale for scale in SCALES if all(scale in each.scales for each in used))

    def experiments_at(self, scale: Scale) -> dict[str, ClaimExperiment]:
        """What is run at a scale, by name; supplements come last.

        Raises:
            SpecError: if the claim has no such scale.
        """
        if scale not in self.scales:
            raise fr.SpecError(f"claim {self.number}: has no scale {scale}; it has {', '.join(self.scales)}")
        known = {**self.experiments, **self.supplements}
        return {name: each for name, each in known.items() if scale in each.scales}

    @property
    def title(self) -> str:
        """The claim in one line."""
        return self.sections["title"]

    @cached_property
    def sections(self) -> dict[str, str]:
        """The paragraphs of the docstring by label; `title` is the first."""
        title, *paragraphs = (" ".join(each.split()) for each in (inspect.cleandoc(self.text or "")).split("\n\n"))
        if not title:
            raise fr.SpecError("the docstring must begin with the claim in one line")
        found = {"title": title.removesuffix(".")}
        for paragraph in paragraphs:
            label, _, text = paragraph.partition(": ")
            if label not in SECTIONS and not _ON_A_VERDICT.fullmatch(label):
                raise fr.SpecError(f"docstring: {unknown('paragraph', label, SECTIONS)}")
            found[label] = text
        for label in list(SECTIONS)[:4]:
            if not found.get(label):
                raise fr.SpecError(f"docstring: the paragraph '{label}: …' is required ({SECTIONS[label]})")
        return found

    @cached_property
    def shown(self) -> list[str]:
        """Measures to show beside the checks."""
        return self.sections.get("Shows", "accuracy_last").split(", ")

    def reading(self, scale: Scale, verdict: Verdict) -> str | None:
        """What to make of a verdict at a scale."""
        return self.sections.get(f"Reading ({scale}, {verdict})")

    def remark(self, scale: Scale, verdict: Verdict) -> str | None:
        """What has to follow a verdict at a scale wherever it is shown."""
        return self.sections.get(f"Remark ({scale}, {verdict})")

    def seed_count(self, scale: Scale, wanted: int | None = None) -> int:
        """How many seeds there are."""
        return wanted or self.seeds.get(scale, DEFAULT_SEEDS[scale])

    def facts(self) -> dict[str, Any]:
        """The claim as JSON."""
        return {"claim": self.number, **self.sections}


def merged(base: Spec, over: Spec) -> dict[str, Any]:
    """Settings over others: mappings are merged, everything else is replaced, `None` removes a setting."""
    joined = dict(base)
    for name, value in over.items():
        below = joined.get(name)
        joined[name] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return {name: value for name, value in joined.items() if value is not None}
