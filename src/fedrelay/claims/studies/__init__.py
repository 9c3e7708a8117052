"""Experiments of claims, one kind beside the other: what there is to run, where it lies, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedrelay.claims.claim import Resolved
from fedrelay.claims.studies.base import Piece, Study
from fedrelay.claims.studies.comparisons import CompareStudy
from fedrelay.claims.studies.costs import CostStudy
from fedrelay.claims.studies.groups import GroupStudy
from fedrelay.claims.studies.spies import SpyStudy
from fedrelay.errors import SpecError

__all__ = ["KINDS", "CompareStudy", "CostStudy", "GroupStudy", "Piece", "SpyStudy", "Study", "study"]

KINDS: dict[str, type[Study]] = {"compare": CompareStudy, "group": GroupStudy, "cost": CostStudy, "spy": SpyStudy}


def study(resolved: Resolved, seeds: Sequence[int], out: Path) -> Study:
    """The study of an experiment, in its folder below `out`."""
    title = f"{resolved.owner}/{resolved.name}"
    folder = out / f"{resolved.owner:02}" / resolved.name
    made = KINDS[resolved.kind](title, folder, resolved.settings, tuple(seeds))
    try:
        _ = made.subjects
    except SpecError as error:
        raise SpecError(f"claim {title}: {error}") from None
    return made
