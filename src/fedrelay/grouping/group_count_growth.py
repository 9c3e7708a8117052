"""Growth: the number of groups in each round, when training moves from sequential to parallel.

Papers: S. Zeng et al., FedGSP, DASFAA 2022; A. Silvi et al., FedSeq2Par, IEEE Access 2024.

Rule: in round t there are

    constant  β
    linear    β·⌊α(t − 1) + 1⌋
    log       β·⌊α ln t + 1⌋
    exp       β·⌊(1 + α)^(t − 1)⌋

groups, and never more groups than clients.

FedGSP's α = 2, β = 10 belong to its K = 368 clients and R = 500 rounds. For K clients, β = max(1, round(10·K/368)), and
α is 2, or less where chains would shrink below two clients (M_t > K/2) within the first 80 % of the rounds:

    linear    α ≤ (K/2β − 1) / (0.8·R − 1)
    log       α ≤ (K/2β − 1) / ln(0.8·R)
    exp       α ≤ (K/2β)^(1/(0.8·R − 1)) − 1

Deviations: the second paper has no floor; its code and the first paper do. The linear rule is guarded against rounding
such as 0.29·100 = 28.999… FedGSP's paper has constants for one federation; that they scale with it is ours.
"""

from __future__ import annotations

import math
from typing import Literal

Growth = Literal["constant", "linear", "log", "exp"]

PAPER_ALPHA, PAPER_BETA, PAPER_CLIENTS = 2.0, 10, 368
"""FedGSP's constants, and the number of clients that they were found for."""

SEQUENTIAL_SHARE = 0.8
"""The share of the rounds in which chains have at least two clients."""


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


def scaled_beta(clients: int) -> int:
    """FedGSP's number of groups in the first round, in proportion to the number of clients.

    Example:
        >>> scaled_beta(368), scaled_beta(100), scaled_beta(5)
        (10, 3, 1)
    """
    return max(1, round(PAPER_BETA * clients / PAPER_CLIENTS))


def scaled_alpha(clients: int, rounds: int, *, growth: Growth, beta: int) -> float:
    """FedGSP's α, or the largest with which chains have at least two clients in the first 80 % of the rounds.

    Example:
        >>> scaled_alpha(368, 500, growth="log", beta=10)
        2.0
    """
    last, most = SEQUENTIAL_SHARE * rounds, clients / (2 * beta)
    if last <= 1 or growth == "constant":
        return PAPER_ALPHA
    if most <= 1:
        return 0.0
    match growth:
        case "linear":
            limit = (most - 1) / (last - 1)
        case "log":
            limit = (most - 1) / math.log(last)
        case "exp":
            limit = math.expm1(math.log(most) / (last - 1))
    return min(PAPER_ALPHA, limit)


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
