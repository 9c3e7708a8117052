"""Claims as files: what was published, the experiment that could contradict it, and the criterion.

A claim is a YAML file. Its settings are those of the scale `small`; `scales` holds what other scales say differently.
An experiment may `use` another claim's experiment, `1/alpha_0`, whose runs are then shared, or be `like` it but for
what it says itself. A setting of null is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self, get_args

from pydantic import Field, model_validator

from fedrelay.claims import criteria
from fedrelay.claims.criteria import Criterion
from fedrelay.claims.verdicts import Verdict
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Section, unknown, validate
from fedrelay.experiment.yaml_files import read_file

Scale = Literal["smoke", "small", "full"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Tree = Mapping[str, Any]

USUAL_SEEDS: Mapping[Scale, int] = {"smoke": 1, "small": 3, "full": 3}
"""How many seeds there are, unless a claim or the command line says otherwise."""

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class Trial(Section):
    """One experiment of a claim, as its file has it."""

    use: str | None = Field(None, description="CLAIM/EXPERIMENT whose runs are used as they are")
    like: str | None = Field(None, description="CLAIM/EXPERIMENT whose settings are taken, but for those given here")
    kind: Literal["compare", "group", "cost", "spy"] | None = Field(
        None, description="what is done: compare methods, form groups, count transfers, spy on methods; default compare"
    )
    settings: Tree = Field({}, description="settings at the scale small")
    scales: Mapping[Scale, Tree] = Field({}, description="what other scales say differently")

    @model_validator(mode="before")
    @classmethod
    def _settings_apart(cls, tree: Any) -> Any:
        """Whatever has no meaning of its own here is a setting of the experiment."""
        if not isinstance(tree, Mapping) or "settings" in tree:
            return tree
        own = {name: value for name, value in tree.items() if name in cls.model_fields}
        return {**own, "settings": {name: value for name, value in tree.items() if name not in cls.model_fields}}

    @model_validator(mode="after")
    def _uses_or_is(self) -> Self:
        if self.use is not None and (self.like or self.kind or self.settings or self.scales):
            raise ValueError("use: an experiment that uses another's runs has no settings of its own; take 'like'")
        if "small" in self.scales:
            raise ValueError("scales.small: is what stands outside 'scales'")
        return self


class Claim(Section):
    """What somebody published, and how we see whether it is so."""

    claim: int = Field(ge=1, description="its number")
    title: str = Field(min_length=1, description="the claim in one line")
    sources: tuple[str, ...] = Field(min_length=1, description="where it was published")
    paper: str = Field(min_length=1, description="the figures there, in a few words")
    published: str = Field(min_length=1, description="the figures there")
    criterion: str = Field(min_length=1, description="when the claim holds, in words")
    holds_if: tuple[str, ...] = Field(min_length=1, description="the same as expressions")
    experiments: Mapping[str, Trial] = Field(min_length=1, description="what is run")
    seeds: Mapping[Scale, int] = Field({}, description="how many seeds, where not the usual number")
    divergence: Literal["inconclusive", "never reached"] = Field(
        "inconclusive", description="what a diverged run means: nothing, or that targets were never reached"
    )
    scaled: str = Field("", description="how the experiment differs from the published one")
    show: tuple[str, ...] = Field((), description="measures to show beside the criterion")
    reading: Mapping[Scale, Mapping[Verdict, str]] = Field(
        {},
        description="by scale and verdict: what to make of it, written after a run; shown where it ends like that",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_is_a_list(cls, tree: Any) -> Any:
        if not isinstance(tree, Mapping):
            return tree
        lists = {name: [tree[name]] for name in ("holds_if", "sources", "show") if isinstance(tree.get(name), str)}
        return {**tree, **lists}

    @model_validator(mode="after")
    def _names_and_criteria_can_be_read(self) -> Self:
        for name in self.experiments:
            if not _NAME.fullmatch(name):
                raise ValueError(f"experiments: a name has small letters, digits and _, got {name!r}")
        if any(count < 1 for count in self.seeds.values()):
            raise ValueError("seeds: must be at least 1")
        try:
            _ = self.criteria
        except SpecError as error:
            raise ValueError(f"holds_if: {error}") from None
        return self

    @cached_property
    def criteria(self) -> tuple[Criterion, ...]:
        """The expressions, read."""
        return tuple(criteria.parse(text) for text in self.holds_if)

    def seed_count(self, scale: Scale, wanted: int | None = None) -> int:
        """How many seeds there are."""
        return wanted or self.seeds.get(scale, USUAL_SEEDS[scale])


@dataclass(frozen=True)
class Resolved:
    """An experiment with all its settings at one scale; `owner` is the claim in whose folder its runs lie."""

    owner: int
    name: str
    kind: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Claims:
    """All claims of a folder, by number."""

    by_number: Mapping[int, Claim]

    def __iter__(self) -> Iterator[Claim]:
        """In order of their numbers."""
        return iter(self.by_number[number] for number in sorted(self.by_number))

    def chosen(self, numbers: Sequence[int]) -> list[Claim]:
        """Those with these numbers, all where there are none."""
        for number in numbers:
            if number not in self.by_number:
                known = sorted(self.by_number)
                raise SpecError(f"there is no claim {number}; there are {', '.join(map(str, known)) or 'none'}")
        return [claim for claim in self if not numbers or claim.claim in numbers]

    def experiments(self, claim: Claim, scale: Scale) -> dict[str, Resolved]:
        """The experiments of a claim at a scale, under the names it gives them."""
        return {name: self._resolved(claim.claim, name, scale) for name in claim.experiments}

    def _resolved(self, number: int, name: str, scale: Scale, seen: tuple[str, ...] = ()) -> Resolved:
        here = f"{number}/{name}"
        if here in seen:
            raise SpecError(f"claim {seen[0]}: refers to itself, by way of {', '.join(seen[1:]) or here}")
        trial = self._trial(here, seen)
        if trial.use is not None:
            return self._resolved(*_reference(trial.use, here), scale, (*seen, here))
        base = self._resolved(*_reference(trial.like, here), scale, (*seen, here)) if trial.like else None
        settings = merged(base.settings if base else {}, trial.settings)
        settings = merged(settings, trial.scales.get(scale, {}))
        return Resolved(number, name, trial.kind or (base.kind if base else "compare"), settings)

    def _trial(self, place: str, seen: tuple[str, ...]) -> Trial:
        number, name = _reference(place, place)
        claim = self.by_number.get(number)
        if claim is None or name not in claim.experiments:
            known = claim.experiments if claim else map(str, self.by_number)
            what = "experiment" if claim else "claim"
            raise SpecError(
                f"claim {seen[-1] if seen else place}: {unknown(what, name if claim else str(number), known)}"
            )
        return claim.experiments[name]


def load_claim(path: Path) -> Claim:
    """The claim of a file."""
    try:
        return validate(Claim, read_file(path, "a claim"))
    except SpecError as error:
        raise SpecError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None


def load_claims(folder: Path) -> Claims:
    """All claims of a folder, checked against each other."""
    if not folder.is_dir():
        raise SpecError(f"{folder}: there is no such folder; claims are YAML files such as examples/claims/01-….yaml")
    found: dict[int, Claim] = {}
    for path in sorted(folder.glob("*.yaml")):
        claim = load_claim(path)
        if claim.claim in found:
            raise SpecError(f"{path}: there are two claims with the number {claim.claim}")
        found[claim.claim] = claim
    if not found:
        raise SpecError(f"{folder}: has no claims; they are YAML files such as 01-….yaml")
    claims = Claims(found)
    for claim in claims:
        for scale in SCALES:
            claims.experiments(claim, scale)
    return claims


def merged(base: Tree, over: Tree) -> dict[str, Any]:
    """Settings over others: mappings are joined, all else is replaced, and null takes a setting away."""
    joined = dict(base)
    for name, value in over.items():
        below = joined.get(name)
        joined[name] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return {name: value for name, value in joined.items() if value is not None}


def _reference(text: str, here: str) -> tuple[int, str]:
    number, slash, name = text.partition("/")
    if not slash or not number.isdigit():
        raise SpecError(
            f"claim {here}: {text!r} names no experiment; it is said as CLAIM/EXPERIMENT, such as 1/alpha_0"
        )
    return int(number), name
