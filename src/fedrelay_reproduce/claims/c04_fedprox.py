"""FedProx does about as well as FedAvg.

Source: Silvi et al., IEEE Access 2024

In short: 71.5 against 71.3 %

Published: CIFAR-10 at α = 0: FedProx 71.52 %, FedAvg 71.27 %.

Holds if: With μ = 0.01 the two differ by at most 1.5 points.

Scale small: FedAvg of claim 1, and FedProx with the same settings.
"""

from fedrelay_reproduce import Check, Claim, Condition, Results
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0

PROX = ALPHA_0.but("04/prox", {"methods": [{"method": "fedprox", "terms": {"prox": {"mu": 0.01}}}], "grouping": None})


def criterion(alpha_0: Results, prox: Results) -> list[Condition]:
    difference = abs(prox["fedprox"].accuracy_last - alpha_0["fedavg"].accuracy_last)
    return [Check("FedProx and FedAvg differ by at most 1.5 points", difference, "<=", 0.015)]


CLAIM = Claim(4, __doc__, criterion, {"alpha_0": ALPHA_0, "prox": PROX})
