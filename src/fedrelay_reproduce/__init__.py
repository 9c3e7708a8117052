"""Published claims about federated learning, each with an experiment that could contradict it and a fixed criterion.

This package uses FedRelay as any other program would. The names below are all that a file with a claim needs.
"""

from __future__ import annotations

from fedrelay_reproduce.claim import Claim, ClaimExperiment, ClaimTuning
from fedrelay_reproduce.criteria import (
    Check,
    Condition,
    Measured,
    Number,
    Results,
    all_of,
    any_of,
    greatest,
    least,
    mean,
    negated,
    rounds_to,
    speed_up,
    spread,
    time_to,
    updates_to,
)

__all__ = [
    "Check",
    "Claim",
    "ClaimExperiment",
    "ClaimTuning",
    "Condition",
    "Measured",
    "Number",
    "Results",
    "all_of",
    "any_of",
    "greatest",
    "least",
    "mean",
    "negated",
    "rounds_to",
    "speed_up",
    "spread",
    "time_to",
    "updates_to",
]
