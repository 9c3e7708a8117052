"""Going through a group more than once does not pay.

Source: Zaccone et al., ICPR 2022, figure 9

In short: a figure

Published: Figure 9: per unit of training, several loops through a group (E_S = 2, 4) are not better than one.

Holds if: With as many passes in all, one loop a round ends no more than 1 point below two, and no more than 1 point
below four.

Scale small: FedSeq of claim 1 (60 rounds), and the same with two loops in 30 and four loops in 15 rounds; averages over
the last sixth of each.

Scale medium: The same with the settings of claim 1: 300, 150 and 75 rounds, all with FedSeq's tuned learning rate;
averages over the last sixth of each, with four loops the last fifth.

Reading (medium, holds): After the same number of client updates one loop ends at 57.9 %, two at 58.1 and four at 58.3.
No difference is seen (two are 0.2 points [−1.1, 1.5] above one, four 0.4 [−0.5, 1.3]): several loops do not pay. That
they do not gain a point or more is decided by two standard errors, not by the intervals.

Shows: accuracy_last, client_updates, transfers, virtual_seconds
"""

from fedrelay_reproduce import Check, Claim, ClaimExperiment, Condition, Results
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0


def loops(folder: str, loops: int, last: int) -> ClaimExperiment:
    """As many client updates as claim 1, in fewer rounds."""
    return ALPHA_0.but(
        folder,
        {"methods": ["fedseq"], "route": {"loops": loops}, "rounds": 60 // loops, "eval": {"last": last}},
        smoke={"rounds": 12 // loops},
        medium={"rounds": 300 // loops},
        full={"rounds": 10000 // loops},
    )


def criterion(one: Results, two: Results, four: Results) -> list[Condition]:
    once, twice, four_times = (results["fedseq"].accuracy_last for results in (one, two, four))
    return [
        Check("one loop ends at most 1 point below two", once, ">=", twice - 0.01),
        Check("one loop ends at most 1 point below four", once, ">=", four_times - 0.01),
    ]


CLAIM = Claim(12, __doc__, criterion, {"one": ALPHA_0, "two": loops("12/two", 2, 5), "four": loops("12/four", 4, 3)})
