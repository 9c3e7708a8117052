"""What nodes claim about themselves, beside what their owners have agreed to and what they claimed before.

Numbers of samples weigh models and evaluations, and numbers of classes and categories size the model of all nodes.
Nobody but the node can count them. So the server's folder has a roster, `roster.yaml`, with the largest numbers that
were agreed on. Without an agreement, a number far above the median of all nodes is refused, and an unusual one is
remarked. The median holds as long as fewer than half of the nodes lie; of two nodes, none is refused for the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from statistics import median_low

from fedrelay.engines.flower.node_facts import NodeFacts
from fedrelay.engines.flower.roster import ROSTER, AgreedNumbers, Roster

UNUSUAL_FACTOR = 2
"""A number that is more than this many times that of the others, or of the node's last claim, is remarked."""

LARGEST_SAMPLE_FACTOR = 10
"""How many times the samples of as many median nodes a node may claim without an agreement.

Nodes above this many times the median that have more than half of all samples together are remarked.
"""

LARGEST_SIZE_FACTOR = 100
"""How many times the classes or categories of the median node a node may claim without an agreement."""

FEWEST_FOR_MEDIAN = 3
"""Of two nodes, nobody can say which one lies."""

NO_AGREEMENT = AgreedNumbers()


@dataclass(frozen=True)
class CountedClaim:
    """A number that weighs a node against all others."""

    what: str
    setting: str
    """What it is called in the roster."""

    claimed: Callable[[NodeFacts], int]
    agreed: Callable[[AgreedNumbers], int | None]


COUNTED = (
    CountedClaim("samples", "samples", attrgetter("samples"), attrgetter("samples")),
    CountedClaim("held-out samples", "test_samples", attrgetter("tests"), attrgetter("test_samples")),
    CountedClaim(
        "validation samples", "validation_samples", attrgetter("validations"), attrgetter("validation_samples")
    ),
)

SUMMED_ROWS = CountedClaim(
    "rows in the sums of its table",
    "samples",
    lambda facts: facts.table.statistics.rows if facts.table is not None else 0,
    attrgetter("table_rows"),
)
"""They weigh the scaling that all nodes share."""


@dataclass(frozen=True)
class Remark:
    """An unusual claim of a node."""

    node: str
    text: str

    def __str__(self) -> str:
        return f"node {self.node!r} {self.text}"


def refused_claims(facts: Mapping[str, NodeFacts], roster: Roster) -> Iterator[Remark]:
    """A line for each claim that is above what was agreed, or without an agreement far above the median."""
    for count in (*COUNTED, SUMMED_ROWS):
        claims = _claims(facts, count.claimed)
        bound = _bound(claims, LARGEST_SAMPLE_FACTOR * len(claims))
        for name, claimed in claims.items():
            most = count.agreed(roster.nodes.get(name, NO_AGREEMENT))
            if most is not None and claimed > most:
                yield Remark(name, f"claims {claimed:,} {count.what}, at most {most:,} are agreed ({ROSTER})")
            elif most is None and claimed > bound:
                advice = _agree(f"nodes: {{{name}: {{{count.setting}: NUMBER}}}}")
                yield Remark(
                    name, f"claims {claimed:,} {count.what}, the median of all nodes is {_median(claims):,}; {advice}"
                )
    for what in ("classes", "categories"):
        sizes, most = _claims(facts, partial(_size, what=what)), getattr(roster, what)
        bound = _bound(sizes, LARGEST_SIZE_FACTOR)
        for name, size in sizes.items():
            if most is not None and size > most:
                yield Remark(name, f"has {size:,} {what}, at most {most:,} are agreed ({ROSTER})")
            elif most is None and size > bound:
                advice = _agree(f"{what}: NUMBER")
                yield Remark(name, f"has {size:,} {what}, the median of all nodes is {_median(sizes):,}; {advice}")


def unusual_claims(facts: Mapping[str, NodeFacts], known: Mapping[str, NodeFacts], roster: Roster) -> Iterator[Remark]:
    """A line for each claim that is worth a look.

    Args:
        facts: Node → what it claims now.
        known: Node → what it claimed when it registered last.
        roster: What was agreed on.
    """
    for count in COUNTED:
        for name, each in facts.items():
            claimed = count.claimed(each)
            before = count.claimed(known[name]) if name in known else claimed
            low, high = sorted((claimed, before))
            if high > UNUSUAL_FACTOR * low:
                yield Remark(name, f"claims {claimed:,} {count.what}; it claimed {before:,} when it registered last")
        claims = _claims(facts, count.claimed)
        open_claims = {
            name: claimed
            for name, claimed in claims.items()
            if count.agreed(roster.nodes.get(name, NO_AGREEMENT)) is None
        }
        yield from _large_shares(claims, open_claims, count.what)
    for what, hint in (("classes", "Is its highest label right?"), ("categories", "Are these columns text?")):
        sizes = _claims(facts, partial(_size, what=what))
        for name, size in sizes.items():
            if getattr(roster, what) is None and size > UNUSUAL_FACTOR * _median(sizes):
                effect = f"the model gets {size:,} or more because of it. {hint}"
                yield Remark(name, f"has {size:,} {what}, {_compared_with(sizes, name)}: {effect}")


def _large_shares(claims: Mapping[str, int], open_claims: Mapping[str, int], what: str) -> Iterator[Remark]:
    """Remark a node that weighs far more than all others together, or several that do so together."""
    total = sum(claims.values())
    for name, claimed in open_claims.items():
        if len(claims) > 1 and claimed > UNUSUAL_FACTOR * (total - claimed):
            share = f"claims {100 * claimed / total:.0f} % of all {what}"
            yield Remark(name, f"{share} ({_compared_with(claims, name)}), and no number is agreed in {ROSTER}")
            return
    large = {name: each for name, each in open_claims.items() if each > LARGEST_SAMPLE_FACTOR * _median(claims)}
    together = sum(large.values())
    if len(large) > 1 and 2 * together > total:
        share = f"that claim {100 * together / total:.0f} % of all {what} together"
        how = f"each more than {LARGEST_SAMPLE_FACTOR} times the median, and no number is agreed in {ROSTER}"
        for name in large:
            yield Remark(name, f"is one of {len(large)} nodes ({', '.join(large)}) {share}, {how}")


def _agree(line: str) -> str:
    return f"agree on the number with its owner, and write it into {ROSTER}: {line}"


def _claims(facts: Mapping[str, NodeFacts], number: Callable[[NodeFacts], int]) -> dict[str, int]:
    """Node → what it claims, for nodes that claim anything."""
    return {name: claimed for name, each in facts.items() if (claimed := number(each))}


def _median(claims: Mapping[str, int]) -> int:
    """The lower one of two: half of the nodes cannot raise it together."""
    return median_low(claims.values()) if claims else 0


def _bound(claims: Mapping[str, int], factor: int) -> float:
    """What a node may claim without an agreement."""
    return factor * _median(claims) if len(claims) >= FEWEST_FOR_MEDIAN else math.inf


def _compared_with(claims: Mapping[str, int], name: str) -> str:
    """What the others claim; a single one is named, because it may be the one that is wrong."""
    others = [other for other in claims if other != name]
    if len(others) == 1:
        return f"node {others[0]!r} {claims[others[0]]:,}"
    return f"the median of all nodes is {_median(claims):,}"


def _size(facts: NodeFacts, what: str) -> int:
    """How many classes or categories a node has, whichever way it says so."""
    if what == "classes":
        return max(facts.classes, len(facts.table.labels) if facts.table is not None else 0)
    return sum(map(len, facts.table.statistics.categories.values())) if facts.table is not None else 0
