"""Fewer points where there are more than a page can show; what is left out is counted, never hidden."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

Item = TypeVar("Item")


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
