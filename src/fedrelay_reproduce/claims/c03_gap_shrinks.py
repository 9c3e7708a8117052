"""The gap between FedSeq and FedAvg shrinks as clients become alike.

Source: Silvi et al., IEEE Access 2024, table 2

In short: gain 10.6 points at α = 0, 5.4 at α = 0.5

Published: CIFAR-10: 81.89 % against 71.27 % at α = 0, 82.77 % against 77.39 % at α = 0.5.

Holds if: FedSeq's gain over FedAvg is greater at α = 0 than at α = 0.5, where FedSeq is still ahead.

Scale small: The runs of claim 1, and the same with α = 0.5.

Scale medium: The same; learning rates are those tuned at α = 0. α = 0.2 had been planned too; it was cut for want of
time before any run was judged.

Reading (medium, holds): The gain is 15.2 points at α = 0 and 7.2 [5.8, 8.7] at α = 0.5. By the best accuracy of each
run instead of the last ones it shrinks by 5.8 points [3.1, 8.5].

Shows: accuracy_last, accuracy_best, client_updates, virtual_seconds
"""

from fedrelay_reproduce import Check, Claim, Condition, Number, Results
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0

ALPHA_05 = ALPHA_0.but("03/alpha_05", {"data": {"alpha": 0.5}}, medium={})


def criterion(alpha_0: Results, alpha_05: Results) -> list[Condition]:
    def gain(results: Results) -> Number:
        return results["fedseq"].accuracy_last - results["fedavg"].accuracy_last

    return [
        Check("the gain is larger at α = 0 than at α = 0.5", gain(alpha_0), ">", gain(alpha_05)),
        Check("FedSeq is still ahead at α = 0.5", gain(alpha_05), ">", 0),
    ]


CLAIM = Claim(3, __doc__, criterion, {"alpha_0": ALPHA_0, "alpha_05": ALPHA_05})
