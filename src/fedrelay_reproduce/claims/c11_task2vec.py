"""Task2Vec vectors tell clients of different classes apart.

Source: Silvi et al., IEEE Access 2024

In short: accuracy 82.3 … 82.9 against 82.2 %

Published: FedSeq on CIFAR-10 at α = 0, 0.2 and 0.5: grouped by Task2Vec 82.28 %, 82.48 % and 82.86 %, by confidence
82.21 %, 82.20 % and 82.22 %. The gain is small.

Holds if: With a probe network trained on another data set, clients with the same main class are closer to each other
than those with different ones.

Scale small: Profiles only: a small CNN trained on MNIST describes 50 clients with 100 images of one class of
Fashion-MNIST each.

Shows: same_class, other_class, balance_ratio, covered_classes

Reading (small, holds): Clients with the same class are half as far from each other as others. Greedy groups by these
vectors still cover only 63 % of the classes, about as many as random groups would: vectors that tell classes apart
are not enough for good groups. The paper's accuracies were not tested.
"""

from fedrelay_reproduce import Check, Claim, ClaimExperiment, Condition, Results

PROFILES = ClaimExperiment(
    "11/profiles",
    {
        "data": {"name": "fashion-mnist", "samples": 5000, "test_samples": 1000, "clients": 50, "alpha": 0},
        "groupings": {
            "t2v": {"assign": "greedy", "profile": "t2v", "probe": "mnist", "max_clients": 10, "min_samples": 1000}
        },
    },
    smoke={"data": {"samples": 1000, "clients": 20}, "groupings": {"t2v": {"probe": "digits", "min_samples": 500}}},
    full={
        "data": {"name": "cifar10", "samples": None, "test_samples": None, "clients": 500},
        "groupings": {"t2v": {"probe": "mnist", "max_clients": 11, "min_samples": 800}},
    },
    kind="groups",
)


def criterion(profiles: Results) -> list[Condition]:
    t2v = profiles["t2v"]
    return [Check("clients with the same main class are closer", t2v.same_class, "<", t2v.other_class)]


CLAIM = Claim(11, __doc__, criterion, {"profiles": PROFILES})
