"""Images of others are harder to recover against FedSeq.

Source: Silvi et al., IEEE Access 2024, figure 11a

In short: FID higher against FedSeq

Published: At equal accuracy of the model an attacker receives, the FID of what its generator makes is higher against
FedSeq than against FedAvg.

Holds if: By models received with 60, 70 and 80 % accuracy, each within 5 points, FID-cnn is not lower against FedSeq
than against FedAvg in at least two of the three.

Scale small: MNIST, 100 clients with 200 images, α = 100, half of them in each of 26 rounds, otherwise as claim 1.
Client 0 is the attacker, with 20 epochs a hop; images are compared by features of a small CNN trained here, not of
Inception. Learning rate 0.01 for FedAvg and 0.001 for FedSeq, whose chains are ten clients long: with these, both learn
about equally fast, and both attackers see models of every accuracy. A first version had the settings of claim 1: models
went from below 60 to above 80 % between two hops, and one hop counted for all three levels.

Reading (small, inconclusive): Only at 80 % every attacker received a model near the level: there the FID is 24 [−36,
84] higher against FedSeq, with two of three seeds. At 60 and 70 % some attackers never did, because models pass these
levels between two of their hops. The number of hops before (visits) is about equal with two seeds and twice as large
against FedSeq with the third, which favours the attacker there. Seeds differ by far more than methods do.

Shows: fid_60, model_60, visits_60, fid_70, model_70, visits_70, fid_80, model_80, visits_80, visits
"""

from fedrelay_reproduce import Check, Claim, Condition, Results, all_of, any_of
from fedrelay_reproduce.claims.c26_label_flipping import ALPHA_100

RECOVERY = ALPHA_100.but(
    "27/recovery",
    {
        "methods": [{"method": "fedavg", "train": {"lr": 0.01}}, {"method": "fedseq", "train": {"lr": 0.001}}],
        "data": {"name": "mnist"},
        "rounds": 26,
        "fraction": 0.5,
        "attacker": {"client": 0, "epochs": 20},
    },
    smoke={
        "methods": ["fedavg", "fedseq"],
        "data": {"name": "digits"},
        "rounds": 12,
        "fraction": 0.2,
        "attacker": {"epochs": 2},
    },
    full={
        "methods": ["fedavg", "fedseq"],
        "data": {"name": "cifar10"},
        "rounds": 10000,
        "fraction": 0.2,
        "attacker": {"epochs": 300},
    },
    kind="image-recovery",
)


def criterion(recovery: Results) -> list[Condition]:
    fedavg, fedseq = recovery["fedavg"], recovery["fedseq"]
    at_60 = Check("FID is not lower against FedSeq at 60 %", fedseq.fid_60, ">=", fedavg.fid_60)
    at_70 = Check("FID is not lower against FedSeq at 70 %", fedseq.fid_70, ">=", fedavg.fid_70)
    at_80 = Check("FID is not lower against FedSeq at 80 %", fedseq.fid_80, ">=", fedavg.fid_80)
    return [any_of(all_of(at_60, at_70), all_of(at_60, at_80), all_of(at_70, at_80))]


CLAIM = Claim(27, __doc__, criterion, {"recovery": RECOVERY})
