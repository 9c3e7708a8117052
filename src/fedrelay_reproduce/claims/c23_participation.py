"""SPFL gains more from participants than FedAvg.

Source: Liang et al., SPFL, NeurIPS 2025, table 16

In short: 51.7 → 90.0; FedAvg to 54

Published: From 10 % to 100 % participation SPFL goes from 51.7 % to 90.0 %, FedAvg stays at 54 %.

Holds if: From 20 % to 100 % of the clients SPFL gains more than FedAvg.

Scale small: 5,000 images of Fashion-MNIST, 20 clients, Dirichlet 0.1, the small LeNet, ten rounds; 20, 50 and 100 %
of the clients. There is no control with the same amount of work: with all clients SPFL does 20 times the work of
FedAvg, with a fifth of them four times.

Shows: accuracy_last, client_updates, transfers, virtual_seconds

Reading (small, holds): SPFL goes from 36 to 58 and 69 % as more take part, FedAvg from 18 to 17 and 29 %. Both are
far from converged after ten rounds, and SPFL's work grows with the square of its participants (160, 1,000 and 4,000
hops). These runs do not show how much of the gain comes from that work.
"""

from fedrelay_reproduce import Check, Claim, Condition, Number, Results
from fedrelay_reproduce.claims.c19_spfl import SCRATCH

SHARES = SCRATCH.but(
    "23/shares",
    {
        "methods": [
            {"method": method, "label": f"{method} {percent}", "fraction": percent / 100}
            for method in ("fedavg", "spfl")
            for percent in (20, 50, 100)
        ],
        "data": {"clients": 20, "alpha": 0.1},
    },
    smoke={"data": {"clients": 10}},
)


def criterion(shares: Results) -> list[Condition]:
    def gain(method: str) -> Number:
        return shares[f"{method} 100"].accuracy_last - shares[f"{method} 20"].accuracy_last

    return [Check("SPFL gains more than FedAvg from 20 to 100 %", gain("spfl"), ">", gain("fedavg"))]


CLAIM = Claim(23, __doc__, criterion, {"shares": SHARES})
