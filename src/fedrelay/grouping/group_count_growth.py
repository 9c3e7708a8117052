"""Growth: the number of groups in each round, when training moves from sequential to parallel.

Papers: S. Zeng et al., FedGSP, DASFAA 2022; A. Silvi et al., FedSeq2Par, IEEE Access 2024.

Rule: in round t there are

    constant  β
    linear    β·⌊α(t − 1) + 1⌋
    log       β·⌊α ln t + 1⌋
    exp       β·⌊(1 + α)^(t − 1)⌋

groups, and never more groups than clients.

Deviations: the second paper has no floor; its code and the first paper do. The linear rule is guarded against rounding
such as 0.29·100 = 28.999…
"""

from __future__ import annotations

import math
from typing import Literal

Growth = Literal["constant", "linear", "log", "exp"]


def group_count_in_round(round: int, clients: int, *, growth: Growth, alpha: float, beta: int) -> int:
    """M_t, the number of groups in round 1, 2, …; at most the number of clients."""
    return min(clients, beta * _factor(round, growth, alpha, limit=-(-clients // beta)))


def alpha_for_full_parallel(clients: int, rounds: int, *, beta: int) -> float:
    """The α with which `exp` growth from β groups reaches one group per client in the last round.

    Rounding may leave the final M short by one β.
    """
    if rounds < 2 or beta >= clients:
        return 0.0
    return math.expm1(math.log(clients / beta) / (rounds - 1))


def mean_parallelism(rounds: int, clients: int, *, growth: Growth, alpha: float, beta: int) -> float:
    """The mean number of groups over all rounds."""
    total = sum(
        group_count_in_round(round, clients, growth=growth, alpha=alpha, beta=beta) for round in range(1, rounds + 1)
    )
    return total / rounds


def _factor(round: int, growth: Growth, alpha: float, limit: int) -> int:
    """The factor of β; capped at `limit`, so that the power does not overflow."""
    if growth == "constant":
        return 1
    if growth == "linear":
        return math.floor(alpha * (round - 1) + 1 + 1e-9)
    if growth == "log":
        return math.floor(alpha * math.log(round) + 1)
    if (round - 1) * math.log1p(alpha) > math.log(limit) + 1:
        return limit
    return math.floor((1 + alpha) ** (round - 1))
