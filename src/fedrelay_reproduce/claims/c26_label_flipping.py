"""Exchanging fixed pairs of labels harms more than random ones, and FedSeq stays ahead of FedAvg.

Source: Silvi et al., IEEE Access 2024, table 6

In short: 76.1 % drops ≤ 2.6; 48.7 % drops ≤ 2.3

Published: CIFAR-10, α = 100: FedSeq 76.1 % without attackers, at most 2.6 points less with them; FedAvg 48.7 %, at most
2.3 less. FedSeq is ahead of FedAvg both in accuracy and in drop. Fixed pairs harm more than random ones, four classes
more than two.

Holds if: In the mean over FedSeq and FedAvg, fixed pairs harm at least as much as random ones; in the mean over both
attacks, FedSeq is better than FedAvg. That four classes harm more than two is not tested.

Scale small: The setting of claim 1 with α = 100, and the same with half of the clients in half of the groups exchanging
T-shirts with shirts and dresses with sandals.

Reading (small, inconclusive): Fixed and random pairs cost 2.46 and 2.44 points; a difference of 1.8 could have been
detected. FedSeq is 4.1 points [0.0, 8.1] ahead of FedAvg under both attacks, but 6.1 without any: it loses more by them
than FedAvg, 3.5 against 1.4 points (2.0 [−2.5, 6.6] more, and more with every seed), where the paper says less. That is
no part of the criterion.

Shows: accuracy_last, accuracy_classes
"""

from fedrelay_reproduce import Check, Claim, ClaimExperiment, Condition, Number, Results, mean
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0

ALPHA_100 = ALPHA_0.but("26/alpha_100", {"data": {"alpha": 100}})


def attacked(pairing: str) -> ClaimExperiment:
    attack = {"name": "label-flip", "swap": [0, 6, 3, 5], "pairing": pairing, "group_share": 0.5, "client_share": 0.5}
    return ALPHA_100.but(f"26/{pairing}", {"attack": attack})


def criterion(clean: Results, fixed: Results, random: Results) -> list[Condition]:
    def harm(method: str, results: Results) -> Number:
        return clean[method].accuracy_last - results[method].accuracy_last

    by_fixed, by_random = (mean(*(harm(name, of) for name in ("fedseq", "fedavg"))) for of in (fixed, random))
    fedseq, fedavg = (mean(*(of[name].accuracy_last for of in (fixed, random))) for name in ("fedseq", "fedavg"))
    return [
        Check("fixed pairs harm at least as much, in the mean over methods", by_fixed, ">=", by_random),
        Check("FedSeq ends above FedAvg, in the mean over attacks", fedseq, ">", fedavg),
    ]


CLAIM = Claim(26, __doc__, criterion, {"clean": ALPHA_100, "fixed": attacked("fixed"), "random": attacked("random")})
