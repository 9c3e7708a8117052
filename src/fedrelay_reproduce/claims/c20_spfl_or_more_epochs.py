"""SPFL's gain is not only that of more training.

Source: Liang et al., SPFL, NeurIPS 2025, figure 5c

In short: .6 above 21 epochs

Published: FedAvg with 21 local epochs is still .6 points below SPFL.

Holds if: With as many passes over the data in all and strongly skewed clients, SPFL after FedAvg ends above FedAvg with
10 local epochs and above FedAvg with 20, as in the published comparison. FedAvg with one epoch in as many more rounds
is shown beside them.

Scale small: As claim 19 with Dirichlet 0.1; FedAvg with 1, 10 and 20 epochs in 115, 12 and 6 rounds.

Scale medium: As claim 19 with Dirichlet 0.1; FedAvg with 1, 10 and 20 epochs in 260, 26 and 13 rounds, with the
learning rate tuned for one epoch.

Shows: accuracy_last, client_updates, transfers, virtual_seconds
"""

from fedrelay_reproduce import Check, Claim, Condition, Results
from fedrelay_reproduce.claims.c21_spfl_and_skew import STRONG

ONE = STRONG.but(
    "20/one",
    {"methods": ["fedavg"], "rounds": 115},
    smoke={"rounds": 28},
    medium={"rounds": 260},
    full={"rounds": 600},
)

TEN = STRONG.but(
    "20/ten",
    {"methods": ["fedavg"], "train": {"epochs": 10}, "rounds": 12},
    smoke={"train": {"epochs": 6}, "rounds": 5},
    medium={"rounds": 26},
    full={"rounds": 60},
)

TWENTY = STRONG.but(
    "20/twenty",
    {"methods": ["fedavg"], "train": {"epochs": 20}, "rounds": 6},
    smoke={"train": {"epochs": 12}, "rounds": 3},
    medium={"rounds": 13},
    full={"rounds": 30},
)


def criterion(strong: Results, ten: Results, twenty: Results) -> list[Condition]:
    spfl = strong["spfl"].accuracy_last
    return [
        Check("SPFL ends above FedAvg with 10 epochs", spfl, ">", ten["fedavg"].accuracy_last),
        Check("SPFL ends above FedAvg with 20 epochs", spfl, ">", twenty["fedavg"].accuracy_last),
    ]


CLAIM = Claim(20, __doc__, criterion, {"strong": STRONG, "ten": TEN, "twenty": TWENTY, "one": ONE})
