"""FedProx does about as well as FedAvg.

Source: Silvi et al., IEEE Access 2024, table 2

In short: 71.5 against 71.3 %

Published: CIFAR-10 at α = 0: FedProx 71.52 %, FedAvg 71.27 %.

Holds if: With μ = 1 the two differ by at most 1.5 points. With μ = 0.01, the paper's value, FedProx changes ten local
steps so little that this cannot fail: it counts as arithmetic.

Scale small: FedAvg of claim 1, and FedProx with the same settings, μ = 0.01 and 1.

Reading (small, inconclusive): With the paper's μ = 0.01 the difference is 0.03 points, which says nothing: ten local
steps hardly feel it. With μ = 1, which the paper did not run, FedProx ends 2.1 points [0.1, 4.0] below FedAvg; whether
by more than 1.5, three seeds cannot tell. So this is no verdict on the published statement.

Remark (small, inconclusive): not the paper's μ
"""

from typing import Any

from fedrelay_reproduce import Check, Claim, Condition, Results
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0


def fedprox(mu: float) -> dict[str, Any]:
    return {"method": "fedprox", "label": f"fedprox {mu:g}", "terms": {"prox": {"mu": mu}}}


PROX = ALPHA_0.but("04/prox", {"methods": [fedprox(0.01), fedprox(1)], "grouping": None})


def criterion(alpha_0: Results, prox: Results) -> list[Condition]:
    fedavg = alpha_0["fedavg"].accuracy_last
    strong, weak = (abs(prox[f"fedprox {mu}"].accuracy_last - fedavg) for mu in ("1", "0.01"))
    return [
        Check("FedProx with μ = 1 and FedAvg differ by at most 1.5 points", strong, "<=", 0.015),
        Check("FedProx with μ = 0.01 and FedAvg differ by at most 1.5 points", weak, "<=", 0.015, arithmetic=True),
    ]


CLAIM = Claim(4, __doc__, criterion, {"alpha_0": ALPHA_0, "prox": PROX})
