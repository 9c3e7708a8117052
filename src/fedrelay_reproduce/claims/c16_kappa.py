"""The share of groups a round hardly changes FedGSP's accuracy, but its traffic.

Source: Zeng et al., FedGSP, DASFAA 2022, figure 5

In short: a figure

Published: Figure 5: κ between 0.1 and 1 hardly affects accuracy, traffic grows in proportion to it.

Holds if: With κ = 0.1, 0.3 and 1 accuracies are within 2 points, and transfers are exactly proportional.

Scale small: MNIST, 120 clients with two shards of 40 images, groups that grow logarithmically from 10, 60 rounds;
otherwise as claim 15.

Shows: accuracy_last, transfers, client_updates, virtual_seconds

Reading (small, does not hold): With a tenth, three tenths and all of the groups, accuracy is 85.7, 88.0 and 89.4 %, a
difference of more than 2 points: with a tenth there are 543 client updates in 60 rounds, too few to converge. The
rounds have exactly 3 and 10 times as many transfers; the whole run does not, because every client reports its class
counts once, with any share (120 of 1,206 transfers with a tenth). The criterion overlooks these reports and stays as
it was written.
"""

from fedrelay_reproduce import Check, Claim, Condition, Results, spread
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
    accuracies = spread(k01.accuracy_last, k03.accuracy_last, k1.accuracy_last)
    return [
        Check("accuracies are within 2 points of each other", accuracies, "<=", 0.02),
        Check("κ = 0.3 has 3 times the transfers of κ = 0.1", k03.transfers, "==", 3 * k01.transfers),
        Check("κ = 1 has 10 times the transfers of κ = 0.1", k1.transfers, "==", 10 * k01.transfers),
    ]


CLAIM = Claim(16, __doc__, criterion, {"shares": SHARES})
