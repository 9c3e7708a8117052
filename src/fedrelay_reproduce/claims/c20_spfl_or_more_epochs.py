"""SPFL's gain is not only that of more training.

Source: Liang et al., SPFL, NeurIPS 2025, figure 5c

In short: .6 above 21 epochs

Published: FedAvg with 21 local epochs is still .6 points below SPFL.

Holds if: With as many passes over the data in all and strongly skewed clients, SPFL is at least as good as FedAvg
with 1, 10 and 20 local epochs.

Scale small: As claim 19 from scratch with Dirichlet 0.1: ten rounds of SPFL, and FedAvg with 1, 10 and 20 epochs in
100, 10 and 5 rounds; averages over the last rounds, about a third of each.

Shows: accuracy_last, client_updates, transfers, virtual_seconds

Reading (small, does not hold): With the same amount of work, 100 rounds of FedAvg with one epoch end 7 points above
SPFL's ten rounds (70.9 against 63.8 %). SPFL is a little better than ten rounds of ten epochs (61.6 %) and much
better than five of twenty (55.5 %): among ways to do much work in few rounds it is the best here, but many short
rounds are better still, with twice the transfers and a quarter more virtual time. The paper compares with many local
epochs only.
"""

from fedrelay_reproduce import Check, Claim, Condition, Results, greatest
from fedrelay_reproduce.claims.c21_spfl_and_skew import STRONG

ONE = STRONG.but(
    "20/one", {"methods": ["fedavg"], "rounds": 100, "eval": {"last": 30}}, smoke={"rounds": 24}, full={"rounds": 1500}
)

TEN = STRONG.but("20/ten", {"methods": ["fedavg"], "train": {"epochs": 10}}, smoke={"train": {"epochs": 6}})

TWENTY = STRONG.but(
    "20/twenty",
    {"methods": ["fedavg"], "train": {"epochs": 20}, "rounds": 5, "eval": {"last": 2}},
    smoke={"train": {"epochs": 12}, "rounds": 2},
    full={"rounds": 75},
)


def criterion(rotations: Results, one: Results, ten: Results, twenty: Results) -> list[Condition]:
    best = greatest(*(results["fedavg"].accuracy_last for results in (one, ten, twenty)))
    return [Check("SPFL ends at least as high as the best FedAvg", rotations["spfl"].accuracy_last, ">=", best)]


CLAIM = Claim(20, __doc__, criterion, {"rotations": STRONG, "one": ONE, "ten": TEN, "twenty": TWENTY})
