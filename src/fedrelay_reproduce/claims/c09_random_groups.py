"""Random groups do nearly as well as groups that are chosen.

Source: Silvi et al., IEEE Access 2024, table 4

In short: 81.9 against 80.0 to 82.3 %

Published: CIFAR-10 at α = 0: random 81.90 %, chosen 79.95 % to 82.30 %.

Holds if: Random groups end no more than 1 point below the mean of three chosen ones (greedy, k-means, ICG), although
chosen groups are better balanced: the balance ratio of k-means and ICG groups is higher by at least 0.2 in the mean.

Scale small: As claim 1, whose FedSeq has the greedy groups; k-means and ICG by confidence vectors.

Scale medium: The same with the settings of claim 1; all have FedSeq's tuned learning rate.

Reading (medium, does not hold): Random groups end 3.2 points [1.9, 4.6] below the mean of the chosen ones, which end
within a point of each other. They cover 65 % of the classes, chosen groups all. The paper sees no such gap after 10,000
rounds; in our 300 it grows, from 1.2 points [−4.5, 6.9] in rounds 30 to 50 to 3.2 in the last 50. With more rounds it
shrinks again (longer, added after the verdict): in 900 rounds with one seed, random groups are 3.2 points below those
by k-means in rounds 301 to 450 and 1.4 in the last 150. That is still more than the point that the criterion allows,
and it comes of k-means falling from 59.8 to 58.3 % while random groups stay at 57. So longer training makes the gap
smaller here and does not close it, as far as one seed can tell. Chosen groups cost ten epochs of every client
beforehand.

Shows: accuracy_last, balance_ratio, covered_classes, median_cpd
"""

from typing import Any

from fedrelay_reproduce import Check, Claim, Condition, Results, mean
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0

Settings = dict[str, Any]


def groupings(limits: Settings, groups: int, profile: Settings) -> dict[str, Settings]:
    """Groupings beside the greedy one of claim 1, with the limits of a group and how profiles are made."""
    return {
        "random": {"assign": "random", **limits},
        "kmeans": {"assign": "kmeans", **profile, **limits},
        "icg": {"assign": "icg", **profile, "groups": groups},
    }


def methods(groupings: dict[str, Settings]) -> list[Settings]:
    """FedSeq with each grouping."""
    return [{"method": "fedseq", "label": name, "grouping": options} for name, options in groupings.items()]


CONFIDENCE = {"profile": "conf"}
SMALL = groupings({"max_clients": 10, "min_samples": 2000}, 10, CONFIDENCE)
SMOKE = groupings({"max_clients": 10, "min_samples": 270}, 5, {**CONFIDENCE, "epochs": 3})
MEDIUM = groupings({"max_clients": 10, "min_samples": 1000}, 20, CONFIDENCE)
FULL = groupings({"max_clients": 11, "min_samples": 800}, 50, CONFIDENCE)

TRAINING = ALPHA_0.but(
    "09/training",
    {"grouping": None, "methods": methods(SMALL)},
    smoke={"methods": methods(SMOKE)},
    medium={"methods": methods(MEDIUM)},
    full={"methods": methods(FULL)},
)

GROUPS = ALPHA_0.but(
    "09/groups",
    {"groupings": SMALL},
    smoke={"groupings": SMOKE},
    medium={"groupings": MEDIUM},
    full={"groupings": FULL},
    kind="groups",
)

LONGER = TRAINING.but(
    "09/longer",
    {"methods": [each for each in methods(MEDIUM) if each["label"] in ("random", "kmeans")]},
    medium={"rounds": 900, "eval": {"every": 15, "last": 10}},
    only="medium",
    seeds=1,
)
"""Whether the gap closes with three times as many rounds."""


def criterion(alpha_0: Results, training: Results, groups: Results) -> list[Condition]:
    chosen = mean(alpha_0["fedseq"].accuracy_last, *(training[name].accuracy_last for name in ("kmeans", "icg")))
    balance = mean(groups["kmeans"].balance_ratio, groups["icg"].balance_ratio) - groups["random"].balance_ratio
    return [
        Check(
            "random groups end at most 1 point below the mean of chosen ones",
            training["random"].accuracy_last,
            ">=",
            chosen - 0.01,
        ),
        Check("chosen groups are better balanced by at least 0.2", balance, ">=", 0.2),
    ]


CLAIM = Claim(
    9,
    __doc__,
    criterion,
    {"alpha_0": ALPHA_0, "training": TRAINING, "groups": GROUPS},
    supplements={"longer": LONGER},
)
