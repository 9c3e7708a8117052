"""SPFL gains more from participants than FedAvg.

Source: Liang et al., SPFL, NeurIPS 2025, table 16

In short: 51.7 → 90.0; FedAvg to 54

Published: From 10 % to 100 % participation SPFL goes from 51.7 % to 90.0 %, FedAvg stays at 54 %.

Holds if: From 20 % to 100 % of the clients SPFL gains more than FedAvg with as much work: as many epochs as clients
take part.

Scale small: 5,000 images of Fashion-MNIST, 20 clients, Dirichlet 0.1, the small LeNet, learning rate 0.02, ten rounds;
20, 50 and 100 % of the clients. SPFL does as many times the work of FedAvg as clients take part; FedAvg with as many
epochs is the control.

Reading (small, inconclusive): From 20 to 100 % of the clients SPFL gains 33.2 points and FedAvg with as much work 32.2;
three seeds cannot tell them apart. After as many rounds, the published comparison, FedAvg gains 11.4: SPFL's gain is
21.8 points [−3.2, 46.7] larger, with up to twenty times the work.

Shows: accuracy_last, client_updates, transfers, virtual_seconds
"""

from typing import Any

from fedrelay_reproduce import Check, Claim, Condition, Number, Results
from fedrelay_reproduce.claims.c19_spfl import WARM


def work(clients: int) -> list[dict[str, Any]]:
    """FedAvg with as much work as SPFL: as many epochs as clients take part."""
    return [
        {
            "method": "fedavg",
            "label": f"more epochs {percent}",
            "fraction": percent / 100,
            "train": {"epochs": clients * percent // 100},
        }
        for percent in (20, 50, 100)
    ]


SHARES = WARM.but(
    "23/shares",
    {
        "methods": [
            {"method": method, "label": f"{method} {percent}", "fraction": percent / 100}
            for method in ("fedavg", "spfl")
            for percent in (20, 50, 100)
        ]
        + work(20),
        "data": {"clients": 20, "alpha": 0.1},
        "rounds": 10,
    },
    smoke={"data": {"clients": 10}, "rounds": 4},
    full={"rounds": 150},
)


def criterion(shares: Results) -> list[Condition]:
    def gain(method: str) -> Number:
        return shares[f"{method} 100"].accuracy_last - shares[f"{method} 20"].accuracy_last

    return [Check("SPFL gains more than FedAvg with as much work", gain("spfl"), ">", gain("more epochs"))]


CLAIM = Claim(23, __doc__, criterion, {"shares": SHARES})
