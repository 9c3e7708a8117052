"""What is worth a remark of what nodes say: another version of FedRelay, a label that is far from all others'."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version

from fedrelay.engines.flower.messages import one_line
from fedrelay.engines.flower.server.remote_federation import NodeFacts
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.dp import Dp

FAR = 2
"""A number of classes that is so many times the next one is odd."""


def node_warnings(facts: Mapping[str, NodeFacts]) -> Iterator[str]:
    """A line for everything that is odd about these nodes, by name."""
    own = version("fedrelay")
    for name, each in facts.items():
        if _minor(each.version) != _minor(own):
            theirs = one_line(each.version, 40) or "an unknown version"
            yield f"node {name!r} has FedRelay {theirs}, the server {own}: results may differ, or turns be refused"
    if len(facts) > 1:
        name, most, next_most = highest(facts)
        if most > FAR * next_most:
            yield (
                f"node {name!r} has {most:,} classes, all others at most {next_most:,}: the model gets {most:,} "
                "because of it. Is its highest label right?"
            )


def privacy_warnings(facts: Mapping[str, NodeFacts], terms: Sequence[Term]) -> Iterator[str]:
    """A line for every node that will decline its turns, because it asks for more privacy than a method has."""
    noise = max((term.noise for term in terms if isinstance(term, Dp)), default=0.0)
    for name, each in facts.items():
        if each.least_noise is not None and each.least_noise > noise:
            least = f"terms.dp.noise at least {each.least_noise:g}"
            yield f"node {name!r} takes part only with +dp and {least}; without, it will be passed over"


def highest(facts: Mapping[str, NodeFacts]) -> tuple[str, int, int]:
    """The node whose highest label sets the number of classes, that number, and the greatest of all others'."""
    first, *others = sorted(facts, key=lambda name: -facts[name].classes)
    return first, facts[first].classes, max((facts[name].classes for name in others), default=0)


def _minor(said: str) -> tuple[str, ...]:
    """The major and minor number."""
    found = re.match(r"(\d+)\.(\d+)", said)
    return found.groups() if found else ()
