"""Fewer points where there are more than a page can show; what is left out is counted, never hidden."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Limits:
    """How much of everything is kept; by default what a page can show."""

    points: int = 600
    """Evaluations of a curve."""

    stops: int = 400_000
    """Stops of all runs together; beyond, rounds are left out evenly."""

    cells: int = 200_000
    """The same for the accuracies of forgetting matrices."""

    routes: int = 200
    stops_of_a_route: int = 400
    """Of a round, so many routes and so many stops of each."""

    clients_in_groups: int = 2000
    """Groups of larger federations are left out, but for those that a model visits."""

    groups: int = 200
    """Groups whose mix of classes is kept."""

    faults: int = 2000
    """Faults of all runs together, one by one; all are counted."""

    faults_of_a_round: int = 200
    """Faults that are marked on the relay map of a round."""


PAGE = Limits()
EVERYTHING = Limits(**{field.name: sys.maxsize for field in fields(Limits)})


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many items, evenly chosen, the first and the last among them."""
    if most < 1:
        return []
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[-1]]
    return [items[round(each * (len(items) - 1) / (most - 1))] for each in range(most)]


def significant(number: float | None, digits: int = 6) -> float | None:
    """A number with so many digits, which is all that a picture shows; None where it is no number."""
    if number is None or not math.isfinite(number):
        return None
    if isinstance(number, int):
        return number
    return float(f"{number:.{digits}g}")
