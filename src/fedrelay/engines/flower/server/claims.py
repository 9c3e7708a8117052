"""What nodes claim about themselves, beside what their owners have agreed to and what they claimed before.

Numbers of samples weigh models and evaluations, and numbers of classes and categories size the model of all nodes.
Nobody but the node can count them. So the server's folder has a roster, `roster.yaml`, with the largest numbers that
were agreed on. Without an agreement, a number far above those of all other nodes is refused, and an unusual one is
remarked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from fedrelay.engines.flower.node_facts import NodeFacts
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Section, validate
from fedrelay.experiment.yaml_files import read_file

ROSTER = "roster.yaml"
"""The file with what was agreed on, in the server's folder."""

UNUSUAL_FACTOR = 2
"""A number that is more than this many times that of the others, or of the node's last claim, is remarked."""

LARGEST_SAMPLE_FACTOR = 10
"""How many times the samples of all others together a node may claim without an agreement."""

LARGEST_SIZE_FACTOR = 100
"""How many times the classes or categories of any other node a node may claim without an agreement."""

AgreedNumber = Annotated[int, Field(ge=0)]


class AgreedNumbers(Section):
    """The largest numbers that the owner of a node has agreed to."""

    samples: AgreedNumber | None = None
    tests: AgreedNumber | None = None
    validations: AgreedNumber | None = None


class Roster(Section):
    """What was agreed on before the federation started. The keys of nodes are in the folder `nodes`."""

    classes: AgreedNumber | None = None
    """Classes that any node may have."""

    categories: AgreedNumber | None = None
    """Categories that all columns of a node's table may have together."""

    nodes: dict[str, AgreedNumbers] = Field(default_factory=dict)


NO_AGREEMENT = AgreedNumbers()

COUNTED = {"samples": "samples", "tests": "held-out samples", "validations": "validation samples"}
"""Numbers that weigh a node against all others, and what they count."""


@dataclass(frozen=True)
class Remark:
    """An unusual claim of a node."""

    node: str
    text: str

    def __str__(self) -> str:
        return f"node {self.node!r} {self.text}"


def read_roster_file(folder: Path, names: Sequence[str]) -> Roster:
    """The roster in the server's folder; an empty one where there is no file.

    Raises:
        SpecError: It cannot be read, or names a node without a key.
    """
    path = folder / ROSTER
    if not path.exists():
        return Roster()
    roster = validate(Roster, read_file(path, "a roster"), f"{path}: ")
    for name in roster.nodes:
        if name not in names:
            raise SpecError(f"{path}: nodes.{name}: there is no key of this node ({', '.join(names) or 'no nodes'})")
    return roster


def refused_claims(facts: Mapping[str, NodeFacts], roster: Roster) -> Iterator[Remark]:
    """A line for each claim that is above what was agreed, or without an agreement far above all others."""
    for name, each in facts.items():
        agreed = roster.nodes.get(name, NO_AGREEMENT)
        for field, what in COUNTED.items():
            claimed, most, others = getattr(each, field), getattr(agreed, field), _others_together(facts, name, field)
            if most is not None and claimed > most:
                yield Remark(name, f"claims {claimed:,} {what}, at most {most:,} are agreed ({ROSTER})")
            elif most is None and others and claimed > LARGEST_SAMPLE_FACTOR * others:
                advice = f"nodes: {{{name}: {{{field}: NUMBER}}}}"
                yield Remark(name, f"claims {claimed:,} {what}, all others together {others:,}; {_agree(advice)}")
        for what in ("classes", "categories"):
            size, most, largest = _size(each, what), getattr(roster, what), _largest_other(facts, name, what)
            if most is not None and size > most:
                yield Remark(name, f"has {size:,} {what}, at most {most:,} are agreed ({ROSTER})")
            elif most is None and largest and size > LARGEST_SIZE_FACTOR * largest:
                yield Remark(name, f"has {size:,} {what}, all others at most {largest:,}; {_agree(f'{what}: NUMBER')}")


def unusual_claims(facts: Mapping[str, NodeFacts], known: Mapping[str, NodeFacts], roster: Roster) -> Iterator[Remark]:
    """A line for each claim that is worth a look.

    Args:
        facts: Node → what it claims now.
        known: Node → what it claimed when it registered last.
        roster: What was agreed on.
    """
    for name, each in facts.items():
        agreed = roster.nodes.get(name, NO_AGREEMENT)
        for field, what in COUNTED.items():
            claimed, others = getattr(each, field), _others_together(facts, name, field)
            before = getattr(known[name], field) if name in known else claimed
            low, high = sorted((claimed, before))
            if high > UNUSUAL_FACTOR * low:
                yield Remark(name, f"claims {claimed:,} {what}; it claimed {before:,} when it registered last")
            if getattr(agreed, field) is None and others and claimed > UNUSUAL_FACTOR * others:
                share = 100 * claimed / (claimed + others)
                yield Remark(name, f"claims {share:.0f} % of all {what}, and no number is agreed in {ROSTER}")
        for what, hint in (("classes", "Is its highest label right?"), ("categories", "Are these columns text?")):
            size, largest = _size(each, what), _largest_other(facts, name, what)
            if getattr(roster, what) is None and largest and size > UNUSUAL_FACTOR * largest:
                effect = f"the model gets {size:,} because of it. {hint}"
                yield Remark(name, f"has {size:,} {what}, all others at most {largest:,}: {effect}")


def _agree(line: str) -> str:
    return f"agree on the number with its owner, and write it into {ROSTER}: {line}"


def _others_together(facts: Mapping[str, NodeFacts], name: str, field: str) -> int:
    return sum(getattr(each, field) for other, each in facts.items() if other != name)


def _largest_other(facts: Mapping[str, NodeFacts], name: str, what: str) -> int:
    return max((_size(each, what) for other, each in facts.items() if other != name), default=0)


def _size(facts: NodeFacts, what: str) -> int:
    """How many classes or categories a node has, whichever way it says so."""
    if what == "classes":
        return max(facts.classes, len(facts.table.labels) if facts.table is not None else 0)
    return sum(map(len, facts.table.statistics.categories.values())) if facts.table is not None else 0
