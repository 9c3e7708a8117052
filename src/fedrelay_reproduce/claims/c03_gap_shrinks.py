"""The gap between FedSeq and FedAvg shrinks as clients become alike.

Source: Silvi et al., IEEE Access 2024

In short: gain 10.6 points at α = 0, 5.4 at α = 0.5

Published: CIFAR-10: 81.89 % against 71.27 % at α = 0, 82.77 % against 77.39 % at α = 0.5.

Holds if: FedSeq's gain over FedAvg is greater at α = 0 than at α = 0.5, and there not smaller than at α = 100.

Scale small: The runs of claim 1, and the same with α = 0.5 and 100.

Shows: accuracy_last, accuracy_best, client_updates, virtual_seconds

Reading (small, inconclusive): The gap is 18.9 points at α = 0, 5.6 at α = .5 and 6.1 at α = 100. It clearly shrinks
from α = 0 to .5; between .5 and 100 it changes less than seeds differ. It does not close, because after 60 rounds
FedAvg is still behind even if all clients are alike: the remaining gap comes from the ten times longer sequence of
steps, not from skew.
"""

from fedrelay_reproduce import Check, Claim, Condition, Number, Results
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0

ALPHA_05 = ALPHA_0.but("03/alpha_05", {"data": {"alpha": 0.5}})

ALPHA_100 = ALPHA_0.but("03/alpha_100", {"data": {"alpha": 100}})


def criterion(alpha_0: Results, alpha_05: Results, alpha_100: Results) -> list[Condition]:
    def gain(results: Results) -> Number:
        return results["fedseq"].accuracy_last - results["fedavg"].accuracy_last

    return [
        Check("the gain is larger at α = 0 than at α = 0.5", gain(alpha_0), ">", gain(alpha_05)),
        Check("the gain at α = 0.5 is at least that at α = 100", gain(alpha_05), ">=", gain(alpha_100)),
    ]


CLAIM = Claim(3, __doc__, criterion, {"alpha_0": ALPHA_0, "alpha_05": ALPHA_05, "alpha_100": ALPHA_100})
