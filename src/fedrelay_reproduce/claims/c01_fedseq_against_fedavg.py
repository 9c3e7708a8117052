"""FedSeq is far better than FedAvg where every client has one class.

Source: Silvi et al., IEEE Access 2024, table 2

In short: 81.9 against 71.3 %

Published: Accuracy at α = 0: FedSeq 81.89 % against FedAvg 71.27 % on CIFAR-10, 45.87 % against 42.68 % on CIFAR-100.

Holds if: FedSeq's mean accuracy over the last 10 rounds is at least 5 points above FedAvg's.

Scale small: Fashion-MNIST instead of CIFAR-10, 100 clients with 200 images of one class each, a small CNN, learning
rate 0.05, batches of 20, one epoch, a fifth of the clients a round, groups of 10 (greedy, KL of confidence vectors), 60
rounds.

Shows: accuracy_last, client_updates, longest_route, virtual_seconds

Reading (small, holds): The gap is wider than in the paper, where FedAvg had 10,000 rounds instead of 60. In both
methods the same number of clients train in a round, but in FedSeq one after the other: by the virtual clock its
rounds take about ten times as long as FedAvg's. Forming its groups also takes ten epochs of every client before round
1.
"""

from fedrelay_reproduce import Check, Claim, ClaimExperiment, Condition, Results

ALPHA_0 = ClaimExperiment(
    "01/alpha_0",
    {
        "methods": ["fedavg", "fedseq"],
        "data": {
            "name": "fashion-mnist",
            "samples": 20000,
            "test_samples": 5000,
            "clients": 100,
            "alpha": 0,
            "public": 10,
        },
        "model": {"name": "cnn-s"},
        "train": {"lr": 0.05, "batch_size": 20},
        "grouping": {"assign": "greedy", "distance": "kl", "profile": "conf", "max_clients": 10, "min_samples": 2000},
        "rounds": 60,
        "fraction": 0.2,
    },
    smoke={
        "data": {"name": "digits", "samples": None, "test_samples": None, "clients": 50},
        "model": {"name": "mlp"},
        "train": {"batch_size": 8},
        "grouping": {"min_samples": 270, "epochs": 3},
        "rounds": 12,
    },
    full={
        "data": {"name": "cifar10", "samples": None, "test_samples": None, "clients": 500},
        "model": {"name": "lenet"},
        "train": {"lr": 0.01, "batch_size": 64, "weight_decay": 0.0004},
        "grouping": {"max_clients": 11, "min_samples": 800},
        "rounds": 10000,
        "eval": {"every": 10},
    },
)


def criterion(alpha_0: Results) -> list[Condition]:
    gain = alpha_0["fedseq"].accuracy_last - alpha_0["fedavg"].accuracy_last
    return [Check("FedSeq gains at least 5 points over FedAvg", gain, ">=", 0.05)]


CLAIM = Claim(1, __doc__, criterion, {"alpha_0": ALPHA_0})
