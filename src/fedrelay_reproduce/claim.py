"""A claim: what was published, the experiments that could contradict it, and the criterion.

Every claim is a Python file that defines `CLAIM`. Its docstring holds the words, see `SECTIONS`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, Literal, get_args

import fedrelay as fr
from fedrelay.experiment.spec import unknown
from fedrelay_reproduce.criteria import MEASURES, Criterion
from fedrelay_reproduce.verdicts import Verdict

Scale = Literal["smoke", "small", "full"]
SCALES: tuple[Scale, ...] = get_args(Scale)
DEFAULT_SEEDS: Mapping[Scale, int] = {"smoke": 1, "small": 3, "full": 3}

Kind = Literal["comparison", "groups", "transfers", "image-recovery"]
Spec = Mapping[str, Any]
NO_CHANGES: Spec = MappingProxyType({})
COMPARED = ("methods", "grouping", "rounds", "fraction", "eval")
"""Settings of comparisons that an experiment about groups does not inherit."""

SECTIONS = {
    "Source": "where it was published",
    "In short": "the paper's figures in a few words, for the table",
    "Published": "the paper's figures",
    "Holds if": "the criterion in words",
    "Scale small": "how the experiment differs from the published one",
    "Shows": "measures to show beside the checks, with commas; default accuracy_last",
    "Reading": "as `Reading (small, holds)`: what to make of that verdict, written after the run",
}
"""Paragraphs of a claim's docstring, after the claim itself. The first four are required."""

_READING = re.compile(rf"Reading \(({'|'.join(SCALES)}), ({'|'.join(get_args(Verdict))})\)")


@dataclass(frozen=True)
class ClaimExperiment:
    """An experiment at each scale, as plain settings; claims that use the same experiment share its runs.

    Args:
        folder: where its runs are kept, below the folder of the scale.
        small: the settings at scale small.
        smoke: what is different at scale smoke. Mappings are merged, `None` removes a setting.
        full: what is different at scale full.
        kind: what is done: `comparison` trains methods, `groups` forms groups by several `groupings`, `transfers`
            counts what methods send in a round, `image-recovery` has a client reconstruct the images of others.
        base: an experiment whose settings are taken where these say nothing else.
    """

    folder: str
    small: Spec
    smoke: Spec = field(default_factory=dict)
    full: Spec = field(default_factory=dict)
    kind: Kind = "comparison"
    base: ClaimExperiment | None = None

    def __post_init__(self) -> None:
        path = PurePosixPath(self.folder)
        if not path.parts or path.is_absolute() or ".." in path.parts:
            raise fr.SpecError(f"folder: must be a relative path such as '01/skewed', got {self.folder!r}")
        if self.kind not in get_args(Kind):
            raise fr.SpecError(f"kind: {unknown('kind', self.kind, get_args(Kind))}")

    def but(
        self, folder: str, small: Spec, *, smoke: Spec = NO_CHANGES, full: Spec = NO_CHANGES, kind: Kind | None = None
    ) -> ClaimExperiment:
        """The same experiment with some settings changed."""
        return ClaimExperiment(folder, small, smoke, full, kind or self.kind, self)

    def spec(self, scale: Scale) -> dict[str, Any]:
        """All settings at a scale."""
        inherited = self.base.spec(scale) if self.base else {}
        if self.kind == "groups":
            inherited = {name: value for name, value in inherited.items() if name not in COMPARED}
        settings = merged(inherited, self.small)
        return settings if scale == "small" else merged(settings, self.smoke if scale == "smoke" else self.full)


@dataclass(frozen=True)
class Claim:
    """A published claim and how it is tested.

    Args:
        number: its number; every claim has its own.
        text: the docstring of its file.
        criterion: a function of the results, whose parameters are names of experiments.
        experiments: what is run, by name.
        seeds: how many seeds a scale has, where it differs from `DEFAULT_SEEDS`.
        diverged: what a diverged run means for targets: nothing is known, or they were never reached.
    """

    number: int
    text: str | None
    criterion: Criterion
    experiments: Mapping[str, ClaimExperiment]
    seeds: Mapping[Scale, int] = field(default_factory=dict)
    diverged: Literal["inconclusive", "never reached"] = "inconclusive"

    def __post_init__(self) -> None:
        for measure in self.shown:
            if measure not in MEASURES:
                raise fr.SpecError(f"docstring: Shows: {unknown('measure', measure, MEASURES)}")
        if not self.experiments:
            raise fr.SpecError("experiments: must not be empty")
        for name in inspect.signature(self.criterion).parameters:
            if name not in self.experiments:
                raise fr.SpecError(f"criterion: {unknown('experiment', name, self.experiments)}")
        for count in self.seeds.values():
            if count < 1:
                raise fr.SpecError(f"seeds: must be at least 1, got {count}")

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
            if label not in SECTIONS and not _READING.fullmatch(label):
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
