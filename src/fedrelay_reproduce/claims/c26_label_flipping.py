"""Exchanging fixed pairs of labels harms more than random ones, and FedSeq stays ahead of FedAvg.

Source: Silvi et al., IEEE Access 2024

In short: 76.1 % drops ≤ 2.6; 48.7 % drops ≤ 2.3

Published: CIFAR-10, α = 100: FedSeq 76.1 % without attackers, at most 2.6 points less with them; FedAvg 48.7 %, at
most 2.3 less. Fixed pairs harm more than random ones, four classes more than two.

Holds if: Fixed pairs harm both methods at least as much as random ones; FedSeq is better than FedAvg under either
attack.

Scale small: The runs of claim 3 with α = 100, and the same with half of the clients in half of the groups exchanging
T-shirts with shirts and dresses with sandals.

Shows: accuracy_last, accuracy_classes

Reading (small, does not hold): FedSeq stays ahead of FedAvg under attack (84.5 against 81.1 % with fixed pairs, 85.2
against 80.4 % with random ones), and loses more to fixed pairs than to random ones (3.8 against 3.1 points), as
published. FedAvg does not: random pairs cost it 1.8 points, fixed ones 1.1. Differences of this size also occur
between single rounds. Overall FedSeq loses more than FedAvg, but starts higher.
"""

from fedrelay_reproduce import Check, Claim, ClaimExperiment, Condition, Number, Results
from fedrelay_reproduce.claims.c03_gap_shrinks import ALPHA_100


def attacked(pairing: str) -> ClaimExperiment:
    attack = {"name": "label-flip", "swap": [0, 6, 3, 5], "pairing": pairing, "group_share": 0.5, "client_share": 0.5}
    return ALPHA_100.but(f"26/{pairing}", {"attack": attack})


def criterion(clean: Results, fixed: Results, random: Results) -> list[Condition]:
    def harm(method: str, results: Results) -> Number:
        return clean[method].accuracy_last - results[method].accuracy_last

    def ahead(text: str, results: Results) -> Check:
        return Check(text, results["fedseq"].accuracy_last, ">", results["fedavg"].accuracy_last)

    return [
        Check("fixed pairs harm FedSeq at least as much", harm("fedseq", fixed), ">=", harm("fedseq", random)),
        Check("fixed pairs harm FedAvg at least as much", harm("fedavg", fixed), ">=", harm("fedavg", random)),
        ahead("FedSeq ends above FedAvg with fixed pairs", fixed),
        ahead("FedSeq ends above FedAvg with random pairs", random),
    ]


CLAIM = Claim(26, __doc__, criterion, {"clean": ALPHA_100, "fixed": attacked("fixed"), "random": attacked("random")})
