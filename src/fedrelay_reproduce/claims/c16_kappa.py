"""The share of groups a round hardly changes FedGSP's accuracy, but its traffic.

Source: Zeng et al., FedGSP, DASFAA 2022, figure 5

In short: a figure

Published: Figure 5: κ between 0.1 and 1 hardly affects accuracy, traffic grows in proportion to it.

Holds if: With κ = 0.1 and with κ = 0.3 accuracy is no more than 2 points below that with κ = 1. That transfers without
the one-off reports of class counts are proportional to κ within a tenth is arithmetic: only whole groups can be
sampled.

Scale small: MNIST, 120 clients with two shards of 40 images, groups that grow logarithmically from 10, 60 rounds;
otherwise as claim 15.

Shows: accuracy_last, transfers, client_updates, virtual_seconds
"""

from fedrelay_reproduce import Check, Claim, Condition, Results
from fedrelay_reproduce.claims.c15_fedgsp import SHARDS

SHARES = SHARDS.but(
    "16/shares",
    {
        "methods": [
            {"method": "fedgsp", "label": "k01", "fraction": 0.1, "route": {"pace": "paper"}},
            {"method": "fedgsp", "label": "k03", "fraction": 0.3, "route": {"pace": "paper"}},
            {"method": "fedgsp", "label": "k1", "fraction": 1, "route": {"pace": "paper"}},
        ],
        "data": {"clients": 120, "shard_size": 40},
        "fraction": None,
        "rounds": 60,
    },
    smoke={"data": {"clients": 60, "shard_size": 11}, "rounds": 10},
    full={"data": {"clients": None, "shard_size": None}, "rounds": 500},
)


def criterion(shares: Results) -> list[Condition]:
    k01, k03, k1 = shares["k01"], shares["k03"], shares["k1"]
    least_wanted = k1.accuracy_last - 0.02
    three, ten = (of.s2c / k01.s2c for of in (k03, k1))  # reports of class counts go to the server
    return [
        Check("κ = 0.1 ends at most 2 points below κ = 1", k01.accuracy_last, ">=", least_wanted),
        Check("κ = 0.3 ends at most 2 points below κ = 1", k03.accuracy_last, ">=", least_wanted),
        Check("κ = 0.3 sends 3 times as many models, within a tenth", abs(three / 3 - 1), "<=", 0.1, arithmetic=True),
        Check("κ = 1 sends 10 times as many models, within a tenth", abs(ten / 10 - 1), "<=", 0.1, arithmetic=True),
    ]


CLAIM = Claim(16, __doc__, criterion, {"shares": SHARES})
