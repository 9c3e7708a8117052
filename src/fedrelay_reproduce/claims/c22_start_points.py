"""Where a ring begins matters, and SPFL is no worse than the mean of all beginnings.

Source: Liang et al., SPFL, NeurIPS 2025

In short: 48.0 … 55.6 %; SPFL 55.3 %

Published: Dirichlet 0.1: sequential learning ends between 48.0 % and 55.6 % depending on the client it starts from,
SPFL at 55.3 %.

Holds if: SPFL is at least as good as the mean of all rings with as many client updates as SPFL has; after as many
rounds, rings from different clients span at least 2 points more than noise would. Five rings that differ by noise alone
would span something too: by 1.2 times the mean change of a ring from one round to the next, if that change is noise
(the expected range of five means of three normal numbers).

Scale small: 5,000 images of Fashion-MNIST, five clients, Dirichlet 0.1, the small LeNet, learning rate 0.02, 15 rounds;
fixed rings from each client. SPFL has five models and so does five times the work: the control has rings of 75 rounds.

Reading (small, inconclusive): After as many rounds, rings from different clients end 12 to 24 points apart, far beyond
noise, and SPFL (67.1 %) ends above every one of them. But it does five times their work: rings with as many client
updates have 66.7 % in the mean, and three seeds cannot tell the two apart (SPFL is 3.7 and 4.2 points below in two of
them, 8.9 above in the third). The paper has SPFL near the best beginning; with as many client updates, the best ring is
7.4 and 8.2 points above SPFL with two seeds and 0.8 below it with the third. Which beginning is best changes with the
seed. Nothing was tuned.

Shows: accuracy_last, accuracy_best, oscillation, client_updates, virtual_seconds
"""

from fedrelay_reproduce import Check, Claim, Condition, Results, mean, spread
from fedrelay_reproduce.claims.c19_spfl import WARM

CLIENTS = 5
NOISE_RANGE = 1.2
"""2.33 σ / √3 is the expected range of five means of three, 1.13 σ the expected change from one to the next."""

RINGS = [
    {"method": "fedcyclic", "label": f"from {client}", "route": {"order": "fixed", "start": client}}
    for client in range(CLIENTS)
]

STARTS = WARM.but(
    "22/starts",
    {"methods": ["spfl", *RINGS], "data": {"clients": CLIENTS, "alpha": 0.1}, "rounds": 15},
    smoke={"rounds": 5},
    full={"rounds": 100},
)


WORK = STARTS.but("22/work", {"methods": RINGS, "rounds": 75}, smoke={"rounds": 25}, full={"rounds": 500})
"""Rings with as many client updates as SPFL."""


def criterion(starts: Results, work: Results) -> list[Condition]:
    names = [f"from {client}" for client in range(CLIENTS)]
    rings, longer = ([of[name].accuracy_last for name in names] for of in (starts, work))
    noise = NOISE_RANGE * mean(*(starts[name].oscillation for name in names))
    return [
        Check(
            "SPFL ends at least as high as the mean of rings with as much work",
            starts["spfl"].accuracy_last,
            ">=",
            mean(*longer),
        ),
        Check("rings span 2 points more than noise would", spread(*rings) - noise, ">=", 0.02),
    ]


CLAIM = Claim(22, __doc__, criterion, {"starts": STARTS, "work": WORK})
