"""Numbers from a learning curve: targets, final score, mean and spread over seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

SHARES = (0.7, 0.8, 0.9)
"""The default targets, as shares of the accuracy of centralised training."""


def rounds_to_target(
    rounds: Sequence[int], scores: Sequence[float | None], target: float, *, higher_is_better: bool = True
) -> int | None:
    """The first evaluated round that is at least as good as the target; None if no round reaches it.

    Errors reach a target from above. Scores that are not known reach nothing.
    """
    if len(rounds) != len(scores):
        raise ValueError(f"{len(rounds)} rounds and {len(scores)} scores do not match")
    for number, score in zip(rounds, scores, strict=True):
        if score is not None and (score >= target if higher_is_better else score <= target):
            return number
    return None


def target_scores(
    reference: float | None, shares: Sequence[float] = SHARES, *, higher_is_better: bool = True
) -> dict[float, float]:
    """Share → target, for shares of a reference score; empty without a reference.

    Of an error, the share is what the reference is of the target: 0.8 means an error of at most reference / 0.8.
    """
    if reference is None:
        return {}
    # Rounded, because 0.8 * 0.9 is slightly above 0.72 and an accuracy of exactly 72 % must reach it.
    return {share: round(share * reference if higher_is_better else reference / share, 12) for share in shares}


def speed_up(baseline_rounds: float | None, method_rounds: float | None) -> float | None:
    """The rounds of the baseline divided by those of the method.

    None if either missed the target, or if the method was there at round 0, before any training.
    """
    if baseline_rounds is None or method_rounds is None or method_rounds == 0:
        return None
    return baseline_rounds / method_rounds


def mean_of_last(values: Sequence[float], last: int) -> float:
    """The mean of the last `last` values, or of all if there are fewer."""
    if last < 1:
        raise ValueError(f"last must be at least 1, got {last}")
    if len(values) == 0:
        raise ValueError("cannot average an empty curve")
    return float(np.mean(values[-last:]))


def mean_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation (ddof=1) over seeds; the deviation of a single value is 0."""
    if len(values) == 0:
        raise ValueError("cannot average an empty list of values")
    return float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
