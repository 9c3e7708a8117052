"""FedSeqInter starts more slowly and ends at least as high.

Source: Zaccone et al., ICPR 2022; Silvi et al., IEEE Access 2024

In short: 82.7 against 82.2 %; 762 against 594 rounds

Published: At α = 0: FedSeqInter 82.65 % against FedSeq 82.21 % on CIFAR-10, 50.27 % against 46.00 % on CIFAR-100;
rounds to 70 % of centralised accuracy 762 against 594.

Holds if: FedSeqInter ends no more than half a point below FedSeq, and needs more rounds to 70 % of centralised
accuracy.

Scale small: As claim 1, with 150 rounds; slots are merged every 10 rounds, as many as there are groups.

Shows: accuracy_last, accuracy_best, client_updates, virtual_seconds

Reading (small, holds): FedSeqInter ends .7 to .9 points higher in every seed. It starts more slowly by the narrowest
margin, exactly as large as its standard error: two seeds reach the target in the same round, one two rounds later.
Groups that hold all classes lose little by merging rarely.
"""

from fedrelay_reproduce import Check, Claim, Condition, Results, rounds_to
from fedrelay_reproduce.claims.c01_fedseq_against_fedavg import ALPHA_0
from fedrelay_reproduce.claims.c02_speed_up import CENTRALISED

LONG = ALPHA_0.but(
    "07/long", {"methods": ["fedseq", "fedseqinter"], "rounds": 150}, smoke={"rounds": 20}, full={"rounds": 10000}
)


def criterion(long: Results, centralised: Results) -> list[Condition]:
    fedseq, fedseqinter = long["fedseq"], long["fedseqinter"]
    target = 0.7 * centralised["centralized"].accuracy_last
    least_wanted = fedseq.accuracy_last - 0.005
    return [
        Check("FedSeqInter ends at most half a point below FedSeq", fedseqinter.accuracy_last, ">=", least_wanted),
        Check("FedSeqInter needs more rounds", rounds_to(fedseqinter, target), ">", rounds_to(fedseq, target)),
    ]


CLAIM = Claim(7, __doc__, criterion, {"long": LONG, "centralised": CENTRALISED})
