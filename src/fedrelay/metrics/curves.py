"""What a learning curve says: rounds to a target, its final level, and its spread over several seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SHARES = (0.7, 0.8, 0.9)
"""The usual targets, as shares of the accuracy of centralised training."""


def rounds_to_target(rounds: Sequence[int], accuracies: Sequence[float], target: float) -> int | None:
    """The first evaluated round with at least the target accuracy; None where it was never reached."""
    if len(rounds) != len(accuracies):
        raise ValueError(f"{len(rounds)} rounds and {len(accuracies)} accuracies do not match")
    reached = (number for number, accuracy in zip(rounds, accuracies, strict=True) if accuracy >= target)
    return next(reached, None)


def targets_of(reference: float, shares: Sequence[float] = SHARES) -> dict[float, float]:
    """Target accuracies by share of a reference accuracy."""
    # Rounded, because 0.8 * 0.9 is a hair above 0.72 and an accuracy of exactly 72 % must reach it.
    return {share: round(share * reference, 12) for share in shares}


def speed_up(baseline_rounds: float | None, method_rounds: float | None) -> float | None:
    """How many times fewer rounds a method needs than the baseline; None where either missed the target.

    None as well where the method was there at round 0, before any training: no ratio exists.
    """
    if baseline_rounds is None or method_rounds is None or method_rounds == 0:
        return None
    return baseline_rounds / method_rounds


def mean_of_last(values: Sequence[float], last: int) -> float:
    """The mean of the last so many values, or of all where the curve is shorter."""
    if last < 1:
        raise ValueError(f"a mean needs at least one value, got last={last}")
    if len(values) == 0:
        raise ValueError("an empty curve has no mean")
    return float(np.mean(values[-last:]))


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (ddof 1) over seeds; the deviation of a single value is 0."""
    if len(values) == 0:
        raise ValueError("no values have no mean")
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
