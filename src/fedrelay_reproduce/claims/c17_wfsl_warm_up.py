"""WFSL's warm-up works with all, with chosen and with random clients, EWC does not.

Source: Arafeh et al., WFSL, 2025, table II

In short: 95.3, 89.2, 86 % against 17 and 9 %

Published: MNIST in shards, 50 cycles: all clients 95.3 %, genetic choice 89.2 %, random choice 86 %, EWC 17 % (all
clients) and 9 % (random choice). Table II: all .950, genetic .861 to .906, random .770 to .877, EWC .09 to .45.

Holds if: By the final model: all clients end above the genetic choice, that above the random choice; all clients end at
least 20 points above EWC on all clients, both as the authors ran it (one Adam whose memory passes from client to
client) and with SGD, as WFSL has it.

Scale small: MNIST, 60 clients with two shards of 400 images, a dense network with one hidden layer of 64, learning rate
0.01, batches of 50, 30 cycles, ten clients chosen; EWC with strength 0.5; the regulator keeps α = 0.1 of the model
received. The same on NSL-KDD with Dirichlet 0.1 is shown but not part of the criterion.

Scale medium: Near the paper's setting, with 30 cycles instead of 50: one shard of 400 images of MNIST a client (its
table has one shard, its text two), 140 clients as in the authors' program (56,000 images); the same network, five
epochs a hop, α = 1/7 and profiles at learning rate 0.1 as in the authors' program. Five seeds.

Reading (medium, does not hold): The three choices of clients end in the published order and near the published figures:
97.5, 91.1 and 85.2 % against 95.3, 89.2 and 86 %, the genetic choice above the random one with every seed. The genetic
choice also needs profiles of all clients, 440 updates against 300; at equal bytes it has 71 %, at equal time 82. Of
what was run here, all that the paper compares holds. The part that fails is our control: as the authors ran it, with
one Adam, EWC fails here too (30.3 % on all clients; table II has .447 at the strength used here), but with SGD, which
WFSL has, EWC on all clients ends at 96.8 %, .6 points below WFSL. The optimiser makes most of the difference: with that
Adam, WFSL on all clients falls to 43, 43 and 51 % (wfsl adam, added after the verdict), EWC with the same three seeds
to 21, 43 and 25. On rings of ten, EWC with SGD ends at 71.7 %, below both choices of ten clients.

Remark (medium, does not hold): only our control fails

Shows: accuracy, accuracy_best
"""

from typing import Any

from fedrelay_reproduce import Check, Claim, ClaimExperiment, Condition, Results

ONE_ADAM = {"optimizer": "adam", "optimizer_state": "payload"}
"""The authors' runs of EWC: one Adam whose memory passes from client to client."""


def ewc(ring: float) -> list[dict[str, Any]]:
    """EWC on rings of this share of the clients, with SGD and as the authors ran it."""
    common = {"method": "ewc", "terms": {"fisher": {"strength": 0.5}}, "fraction": ring}
    return [common, {**common, "label": "ewc, one adam", "train": ONE_ADAM}]


def methods(cycles: int, ring: float, keep: float = 0.1, **search: float) -> list[dict[str, Any]]:
    """WFSL with three choices of clients, and EWC on rings; the regulator keeps this share of the model received."""

    def wfsl(label: str, **chosen: Any) -> dict[str, Any]:
        warmup = {"cycles": cycles, "final": "mean", "alpha": keep, **chosen}
        return {"method": "wfsl", "label": label, "warmup": warmup}

    return [
        wfsl("everybody"),
        wfsl("genetic", select={"by": "genetic", "count": 10, **search}),
        wfsl("random", select={"by": "random", "count": 10}),
        *ewc(ring),
    ]


SHARDS = ClaimExperiment(
    "17/shards",
    {
        "methods": methods(30, 0.167),
        "data": {"name": "mnist", "partition": "shards", "clients": 60, "shard_size": 400, "test_samples": 5000},
        "model": {"name": "mlp"},
        "train": {"lr": 0.01, "batch_size": 50},
        "rounds": 30,
        "eval": {"last": 5},
    },
    smoke={
        "methods": methods(6, 0.34, population=40, iterations=10),
        "data": {"name": "digits", "clients": 30, "shard_size": 20, "test_samples": None},
        "train": {"lr": 0.05, "batch_size": 10},
        "rounds": 6,
    },
    medium={
        "methods": methods(30, 10 / 140, keep=1 / 7, profile_lr=0.1),
        "data": {"clients": 140, "shards_per_client": 1, "test_samples": None},
        "train": {"epochs": 5},
    },
    full={
        "methods": methods(50, 10 / 140, keep=1 / 7, profile_lr=0.1),
        "data": {"clients": 140, "shards_per_client": 1, "test_samples": None},
        "train": {"epochs": 5},
        "rounds": 50,
    },
)

WFSL_ADAM = SHARDS.but(
    "17/wfsl_adam",
    {},
    medium={
        "methods": [
            {**each, "label": "everybody, one adam", "train": ONE_ADAM}
            for each in methods(30, 10 / 140, keep=1 / 7)
            if each.get("label") == "everybody"
        ]
    },
    only="medium",
    seeds=3,
)
"""Tells the optimiser from the method."""

EWC_ALL = SHARDS.but(
    "17/ewc_all",
    {"methods": ewc(1.0)},
    smoke={"methods": ewc(1.0)},
    medium={"methods": ewc(1.0)},
    full={"methods": ewc(1.0)},
)
"""EWC on a ring through all clients; the paper reports both."""

NSL_KDD = {"name": "nsl-kdd", "partition": "dirichlet", "alpha": 0.1, "shard_size": None, "shards_per_client": None}
CONNECTIONS = SHARDS.but(
    "17/connections",
    {"data": {**NSL_KDD, "samples": 24000}},
    smoke={"data": {"samples": 1500, "test_samples": 1000}},
    full={"data": {"samples": None}, "model": {"name": "kdd-mlp"}},
)


def criterion(shards: Results, ewc_all: Results) -> list[Condition]:
    everybody, genetic, random = (shards[name].accuracy for name in ("everybody", "genetic", "random"))
    with_sgd, with_adam = (ewc_all[name].accuracy for name in ("ewc", "ewc, one adam"))
    return [
        Check("all clients end above the genetic choice", everybody, ">", genetic),
        Check("the genetic choice ends above the random choice", genetic, ">", random),
        Check("all clients end 20 points above EWC with one Adam", everybody - with_adam, ">=", 0.2),
        Check("all clients end 20 points above EWC with SGD", everybody - with_sgd, ">=", 0.2),
    ]


CLAIM = Claim(
    17,
    __doc__,
    criterion,
    {"shards": SHARDS, "ewc_all": EWC_ALL, "connections": CONNECTIONS},
    seeds={"medium": 5},
    supplements={"wfsl_adam": WFSL_ADAM},
)
