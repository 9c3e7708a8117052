"""The share of groups a round hardly changes FedGSP's accuracy, but its traffic.

Source: Zeng et al., FedGSP, DASFAA 2022, figure 5

In short: a figure

Published: Figure 5: κ between 0.1 and 1 hardly affects accuracy, traffic grows in proportion to it.

Holds if: With κ = 0.1 and with κ = 0.3 accuracy is no more than 2 points below that with κ = 1. That the
models sent to clients are exactly proportional to κ is arithmetic; clients' one-off reports of class counts are not
among them.

Scale small: MNIST, 120 clients with two shards of 40 images, 10 groups at first, 20 from round 8 and 30 from round 55
on, 60 rounds; otherwise as claim 15.

Reading (small, inconclusive): With three tenths of the groups a round accuracy is .8 points below that with all, as
published. With a tenth, one to three groups a round, it is 2.4 points below in the mean; its three seeds are so far
apart (a deviation of 2.1 points) that they cannot tell whether the loss is above or below 2 points.

Shows: accuracy_last, transfers, client_updates, virtual_seconds
"""

from typing import Any

from fedrelay_reproduce import Check, Claim, Condition, Results
from fedrelay_reproduce.claims.c15_fedgsp import SHARDS


def methods(alpha: float) -> list[dict[str, Any]]:
    """FedGSP with three shares of groups; their number grows in tens, so that a tenth of them is a whole number."""
    route = {"growth": "log", "alpha": alpha, "beta": 10}
    shares = {"k01": 0.1, "k03": 0.3, "k1": 1}
    return [{"method": "fedgsp", "label": name, "fraction": share, "route": route} for name, share in shares.items()]


SHARES = SHARDS.but(
    "16/shares",
    {
        "methods": methods(alpha=0.5),
        "data": {"clients": 120, "shard_size": 40},
        "fraction": None,
        "rounds": 60,
    },
    smoke={"data": {"clients": 60, "shard_size": 11}, "rounds": 10},
    full={"methods": methods(alpha=2), "data": {"clients": None, "shard_size": None}, "rounds": 500},
)


def criterion(shares: Results) -> list[Condition]:
    k01, k03, k1 = shares["k01"], shares["k03"], shares["k1"]
    least_wanted = k1.accuracy_last - 0.02
    return [
        Check("κ = 0.1 ends at most 2 points below κ = 1", k01.accuracy_last, ">=", least_wanted),
        Check("κ = 0.3 ends at most 2 points below κ = 1", k03.accuracy_last, ">=", least_wanted),
        Check("κ = 0.3 sends 3 times as many models to clients", k03.s2c, "==", 3 * k01.s2c, arithmetic=True),
        Check("κ = 1 sends 10 times as many models to clients", k1.s2c, "==", 10 * k01.s2c, arithmetic=True),
    ]


CLAIM = Claim(16, __doc__, criterion, {"shares": SHARES})
