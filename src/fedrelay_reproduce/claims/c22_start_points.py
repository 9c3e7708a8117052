"""Where a ring begins matters, and SPFL is no worse than the mean of all beginnings.

Source: Liang et al., SPFL, NeurIPS 2025

In short: 48.0 … 55.6 %; SPFL 55.3 %

Published: Dirichlet 0.1: sequential learning ends between 48.0 % and 55.6 % depending on the client it starts from,
SPFL at 55.3 %.

Holds if: SPFL is at least as good as the mean of all starting points, which span more than 2 points.

Scale small: 5,000 images of Fashion-MNIST, five clients, Dirichlet 0.1, the small LeNet, 15 rounds; fixed rings from
each client. SPFL has five models and so does five times the work; there is no control for that here.

Shows: accuracy_last, accuracy_best, client_updates, virtual_seconds

Reading (small, holds): SPFL is 23 points above the mean of all rings and 11 to 19 above the best, more than in the
paper; but five models with five hops each are also five times the work of one ring. Starting points are 12 to 25
points apart.
"""

from fedrelay_reproduce import Check, Claim, Condition, Results, mean, spread
from fedrelay_reproduce.claims.c19_spfl import SCRATCH

CLIENTS = 5
RINGS = [
    {"method": "fedcyclic", "label": f"from {client}", "route": {"order": "fixed", "start": client}}
    for client in range(CLIENTS)
]

STARTS = SCRATCH.but(
    "22/starts",
    {"methods": ["spfl", *RINGS], "data": {"clients": CLIENTS, "alpha": 0.1}, "rounds": 15},
    smoke={"rounds": 5},
    full={"rounds": 100},
)


def criterion(starts: Results) -> list[Condition]:
    rings = [starts[f"from {client}"].accuracy_last for client in range(CLIENTS)]
    return [
        Check("SPFL ends at least as high as the mean of all rings", starts["spfl"].accuracy_last, ">=", mean(*rings)),
        Check("rings span more than 2 points", spread(*rings), ">", 0.02),
    ]


CLAIM = Claim(22, __doc__, criterion, {"starts": STARTS})
