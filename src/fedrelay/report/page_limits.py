"""How much of a long run a page holds. Whatever is left out is counted, and the figure says so."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class PageLimits:
    """The most that is kept of everything; the defaults fit a page."""

    points: int = 600
    """Evaluations of a learning curve."""

    hops: int = 400_000
    """Hops of all runs together; above that, some rounds are left out."""

    cells: int = 200_000
    """Cells of all forgetting matrices together; above that, some chains are left out."""

    routes: int = 200
    """Routes of one round."""

    hops_of_a_route: int = 400
    clients_in_groups: int = 2000
    """Groups of larger federations are left out."""

    groups: int = 200
    """Groups with class counts."""

    class_counts: int = 1_000_000
    """Class counts of all clients and groups together; above that, neighbouring classes are merged."""

    faults: int = 2000
    """Fault events that are listed one by one; all are counted."""

    faults_of_a_round: int = 200
    """Fault events that the route map marks."""


PAGE = PageLimits()
EVERYTHING = PageLimits(**{field.name: sys.maxsize for field in fields(PageLimits)})


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Choose at most `most` items at even distances; the first and the last are among them."""
    if most < 1:
        return []
    if len(items) <= most:
        return list(items)
    if most == 1:
        return [items[-1]]
    return [items[round(each * (len(items) - 1) / (most - 1))] for each in range(most)]


def significant(number: float | None, digits: int = 6) -> float | None:
    """Round to significant digits; None where the number is missing or not finite."""
    if number is None or not math.isfinite(number):
        return None
    if isinstance(number, int):
        return number
    return float(f"{number:.{digits}g}")
