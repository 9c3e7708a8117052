"""SPFL is better than FedAvg with as many rounds.

Source: Liang et al., SPFL, NeurIPS 2025

In short: FedAvg 75.0 → 78.9 %; others +1.2 … +5.4

Published: CIFAR-10, ten clients, Dirichlet 0.5: FedAvg 75.00 → 78.88, FedProx 76.04 → 77.25, SCAFFOLD 76.38 → 78.73,
FedDyn 77.91 → 80.90, FedDC 80.52 → 85.90, FedNova 76.02 → 79.31, MOON 78.70 → 79.98, FedDisco 76.32 → 78.58; after
100 rounds of FedAvg, 50 of SPFL.

Holds if: With as many rounds SPFL is better than FedAvg, after FedAvg and from scratch; SPFL with FedNova and with
FedDisco is within half a point of SPFL alone.

Scale small: 5,000 images of Fashion-MNIST, ten clients, Dirichlet 0.5, the small LeNet, learning rate 0.02, batches of
32; ten rounds from scratch, and ten rounds after 15 of FedAvg. SPFL does ten times the work of FedAvg in a round:
'fedavg, 10 epochs' does as much.

Shows: accuracy_last, client_updates, transfers, virtual_seconds

Reading (small, holds): With equally many rounds SPFL gains 19 to 35 points from scratch and 10 after FedAvg, more
than the 4 of the paper, where FedAvg had 100 rounds. All of the gain comes from ten times the work: FedAvg with ten
epochs ends as high (76.0 against 75.7 %), in half the virtual time. The criterion looks at FedAvg, FedNova and
FedDisco only. Of the others FedProx and FedDyn gain as well, and SPFL with FedDyn ends highest (79.1 %); SCAFFOLD and
FedDC, which gains most in the paper, collapse with SPFL (45 → 33 and 63 → 28 %). That was our rule, not the methods:
these runs were made when clients changed their control variates at every visit, while the server's stood still. With
one commit per merge, as it is now, both end as high as SPFL alone, within its noise, or higher (docs/combinations.md).
MOON was not run.
"""

from fedrelay_reproduce import Check, Claim, ClaimExperiment, Condition, Results

TERMS = ("fedprox", "scaffold", "feddyn", "feddc")

SCRATCH = ClaimExperiment(
    "19/scratch",
    {
        "methods": [
            "fedavg",
            {"method": "fedavg", "label": "fedavg, 10 epochs", "train": {"epochs": 10}},
            *TERMS,
            "spfl",
            *(f"spfl+{name}" for name in (*TERMS, "fednova", "feddisco")),
        ],
        "data": {
            "name": "fashion-mnist",
            "samples": 5000,
            "test_samples": 5000,
            "clients": 10,
            "partition": "dirichlet-class",
            "alpha": 0.5,
            "min_samples": 10,
        },
        "model": {"name": "simple-cnn"},
        "train": {"lr": 0.02, "batch_size": 32, "clip": 10},
        "rounds": 10,
        "fraction": 1,
        "eval": {"last": 3},
    },
    smoke={
        "data": {"name": "digits", "samples": None, "test_samples": None, "clients": 6},
        "model": {"name": "mlp"},
        "train": {"batch_size": 8},
        "rounds": 4,
    },
    full={
        "data": {"name": "cifar10", "samples": None, "test_samples": None},
        "model": {"name": "resnet18"},
        "train": {"batch_size": 128},
        "rounds": 150,
        "eval": {"last": 10},
    },
)

WARM = SCRATCH.but(
    "19/warm",
    {"methods": ["fedavg", {"method": "fedavg-first+spfl", "warmup": {"rounds": 15}}], "rounds": 25},
    smoke={"methods": ["fedavg", {"method": "fedavg-first+spfl", "warmup": {"rounds": 4}}], "rounds": 8},
    full={"methods": ["fedavg", {"method": "fedavg-first+spfl", "warmup": {"rounds": 100}}], "rounds": 150},
)


def criterion(scratch: Results, warm: Results) -> list[Condition]:
    spfl, fedavg = scratch["spfl"].accuracy_last, scratch["fedavg"].accuracy_last
    fednova, feddisco = (abs(scratch[f"spfl+{name}"].accuracy_last - spfl) for name in ("fednova", "feddisco"))
    after, before = warm["fedavg-first+spfl"].accuracy_last, warm["fedavg"].accuracy_last
    return [
        Check("SPFL after FedAvg ends above FedAvg", after, ">", before),
        Check("SPFL from scratch ends above FedAvg", spfl, ">", fedavg),
        Check("FedNova changes SPFL by at most .5 points", fednova, "<=", 0.005),
        Check("FedDisco changes SPFL by at most .5 points", feddisco, "<=", 0.005),
    ]


CLAIM = Claim(19, __doc__, criterion, {"scratch": SCRATCH, "warm": WARM})
