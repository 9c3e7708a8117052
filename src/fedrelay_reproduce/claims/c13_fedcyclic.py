"""FedCyclic is strong, but takes as much longer as its chain is long.

Source: Silvi et al., IEEE Access 2024, table 2

In short: 82.5 against 71.3 %

Published: CIFAR-10 at α = 0: FedCyclic 82.45 %, FedAvg 71.27 %; nothing runs side by side.

Holds if: A ring through a fifth of the clients is at least as good as FedAvg. That it takes as many times longer by the
virtual clock as there are clients in it, within 10 %, follows from how the clock counts: arithmetic.

Scale small: FedAvg of claim 1, and FedCyclic with the same settings.

Scale medium: FedAvg of claim 1, and FedCyclic tuned alike.

Reading (medium, holds): FedCyclic ends 13.6 points [9.7, 17.4] above FedAvg after the same number of client updates,
and 1.6 [0.9, 2.2] below FedSeq; in the paper it is 0.6 above. It takes 37 times FedAvg's time by the virtual clock;
when FedAvg is done, it has 17 to 21 %.

Shows: accuracy_last, virtual_seconds, longest_route, transfers
"""

from fedrelay_reproduce import Check, Claim, Condition, Results
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0

RING = ALPHA_0.but("13/ring", {"methods": ["fedcyclic"], "grouping": None}, medium={})


def criterion(alpha_0: Results, ring: Results) -> list[Condition]:
    fedavg, fedcyclic = alpha_0["fedavg"], ring["fedcyclic"]
    slower = fedcyclic.virtual_seconds / fedavg.virtual_seconds / fedcyclic.longest_route
    return [
        Check("FedCyclic ends at least as high as FedAvg", fedcyclic.accuracy_last, ">=", fedavg.accuracy_last),
        Check("its time is that of FedAvg times its clients, within 10 %", abs(slower - 1), "<=", 0.1, arithmetic=True),
    ]


CLAIM = Claim(13, __doc__, criterion, {"alpha_0": ALPHA_0, "ring": RING})
