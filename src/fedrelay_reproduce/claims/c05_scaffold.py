"""SCAFFOLD helps where every client has one class.

Source: Silvi et al., IEEE Access 2024, table 2

In short: 78.8 against 71.3 %

Published: At α = 0: SCAFFOLD 78.82 % against FedAvg 71.27 % on CIFAR-10, but 42.17 % against 42.68 % on CIFAR-100.

Holds if: SCAFFOLD is better than FedAvg at α = 0, by plain SGD without momentum.

Scale small: FedAvg of claim 1, and SCAFFOLD (option II) with the same settings.

Scale medium: FedAvg of claim 1, and SCAFFOLD (option II); the learning rates of both were tuned.

Reading (medium, does not hold): The learning rate decides, and with it clipping (variants and clipped, added after the
verdict). At 0.03, the rate SCAFFOLD was tuned to, it ends 2.5 points [0.7, 4.3] above FedAvg. But FedAvg was tuned to
0.1, where SCAFFOLD diverged. With gradients clipped at 10, as FedDyn has them in claim 6, SCAFFOLD runs at 0.1 too and
ends at 45.4 % (47.2, 48.6 and 40.2), FedAvg at 42.5 (44.4, 41.1 and 42.1): 2.8 points [−8.8, 14.5] apart. At 0.3,
clipped, neither learns reliably. Had SCAFFOLD been tuned with clipping, as FedDyn was, the verdict would be
inconclusive: it would end 2.6 points [−8.6, 13.8] above FedAvg. Weight decay, which its authors do not have, explains
nothing: without it SCAFFOLD has 39.3 % and FedAvg 42.9. 300 rounds are few; the paper has 10,000.
"""

from fedrelay_reproduce import Check, Claim, Condition, Results
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0, at_rate

SCAFFOLD = ALPHA_0.but("05/scaffold", {"methods": ["scaffold"], "grouping": None}, medium={})
VARIANTS = SCAFFOLD.but(
    "05/variants",
    {
        "methods": [
            at_rate("fedavg", 0.03),
            {"method": "fedavg", "label": "fedavg, no decay", "train": {"lr": 0.1, "weight_decay": 0}},
            {"method": "scaffold", "label": "scaffold, no decay", "train": {"lr": 0.03, "weight_decay": 0}},
            at_rate("scaffold", 0.1, clip=10),
        ]
    },
    medium={},
    tuned={},
    only="medium",
)
"""Weight decay, the learning rate, and clipping for SCAFFOLD alone."""

CLIPPED = SCAFFOLD.but(
    "05/clipped",
    {"methods": [at_rate(name, lr, clip=10) for name, lr in (("scaffold", 0.3), ("fedavg", 0.1), ("fedavg", 0.3))]},
    medium={},
    tuned={},
    only="medium",
)
"""Clipping for both methods."""


def criterion(alpha_0: Results, scaffold: Results) -> list[Condition]:
    return [
        Check("SCAFFOLD ends above FedAvg", scaffold["scaffold"].accuracy_last, ">", alpha_0["fedavg"].accuracy_last)
    ]


CLAIM = Claim(
    5,
    __doc__,
    criterion,
    {"alpha_0": ALPHA_0, "scaffold": SCAFFOLD},
    supplements={"variants": VARIANTS, "clipped": CLIPPED},
)
