"""FedSeq2Par ends at least as high as FedSeq, with ever more groups.

Source: Silvi et al., IEEE Access 2024, tables 2 and 5

In short: 83.7 against 81.9 %; 104 groups

Published: CIFAR-10: FedSeq2Par 83.68 %, 84.21 % and 84.26 % at α = 0, 0.2 and 0.5, above FedSeq everywhere; 104 groups
on average instead of 50.

Holds if: FedSeq2Par ends at least as high as FedSeq. Our mean number of groups for the paper's setting is 105.09: a sum
that no run can change, shown as arithmetic.

Scale small: As claim 1 with 100 rounds; FedSeq2Par grows exponentially from 2 groups to single clients.

Reading (small, holds): Not tuned; FedSeq2Par is ahead at every learning rate that was tried: with 0.02 FedSeq2Par is
7.2 points [4.7, 9.6] ahead, with 0.01 8.4 (lower rates, added after the verdict), and the one given, 0.05, is the best
of the three for both and the largest. FedSeq swings between 63 and 85 % in its last 12 rounds; by the best accuracy of
each run FedSeq2Par is 4.0 points [1.0, 7.1] ahead. It spends 21 % more client updates and 1.6 times the virtual time,
and its groups are formed by ICG, FedSeq's greedily. Both have groups by confidence, the published figures are with
Task2Vec.

Shows: accuracy_last, accuracy_best, client_updates, virtual_seconds
"""

from typing import Any

from fedrelay.grouping.group_count_growth import alpha_for_full_parallel, mean_parallelism
from fedrelay_reproduce import Check, Claim, Condition, Results
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0


def methods(beta: int, max_clients: int, min_samples: int, **profile: int) -> list[Any]:
    """FedSeq with groups of these limits, and FedSeq2Par that begins with β groups."""
    greedy = {"assign": "greedy", "distance": "kl", "max_clients": max_clients, "min_samples": min_samples}
    return [
        {"method": "fedseq", "grouping": {**greedy, "profile": "conf", **profile}},
        {
            "method": "fedseq2par",
            "route": {"growth": "exp", "beta": beta},
            "grouping": {"assign": "icg", "profile": "conf", **profile},
        },
    ]


GROWING = ALPHA_0.but(
    "08/growing",
    {"methods": methods(2, 10, 2000), "grouping": None, "rounds": 100},
    smoke={"methods": methods(2, 10, 270, epochs=3), "rounds": 16},
    full={"methods": methods(5, 11, 800), "rounds": 10000},
)

LOWER_RATES = GROWING.but(
    "08/lower_rates",
    {
        "methods": [
            {**method, "label": f"{method['method']}, lr {lr:g}", "train": {"lr": lr}}
            for method in methods(2, 10, 2000)
            for lr in (0.01, 0.02)
        ]
    },
    only="small",
)
"""Whether FedSeq, whose accuracy swings at the end, is better with a lower learning rate."""


def criterion(growing: Results) -> list[Condition]:
    alpha = alpha_for_full_parallel(500, 10_000, beta=5)
    groups = mean_parallelism(10_000, 500, growth="exp", alpha=alpha, beta=5)
    fedseq2par, fedseq = growing["fedseq2par"].accuracy_last, growing["fedseq"].accuracy_last
    return [
        Check("FedSeq2Par ends at least as high as FedSeq", fedseq2par, ">=", fedseq),
        Check("the paper's setting has 105.09 groups on average", abs(groups - 105.09), "<", 0.005, arithmetic=True),
    ]


CLAIM = Claim(8, __doc__, criterion, {"growing": GROWING}, supplements={"lower_rates": LOWER_RATES})
