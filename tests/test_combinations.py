"""Every way of travelling with every term and every merge: two rounds on tiny data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.models.layout import weights_sha256
from fedrelay.recipes import CATALOGUE

ROUTES = [name for name, entry in CATALOGUE.items() if entry.route is not None and not entry.terms]
WARMUPS = [name for name, entry in CATALOGUE.items() if entry.warmup is not None]
ADDITIONS = [
    name for name, entry in CATALOGUE.items() if (entry.terms and entry.route is None) or entry.merge is not None
]

WITHOUT_A_MERGE = ("fedprox", "moon", "glam", "fedmmd", "fedfusion")

FOUR_MODELS = ("fedavg", "spfl", "fedseq2par", *WARMUPS)
"""Those that bring enough models home for Krum's default."""

PAIRS = {"grouping.max_clients": 2, "grouping.min_samples": 1000}
SMALL = {
    **dict.fromkeys(("fedseq", "fedseqinter", "fedasyncseq", "naivegsp", "astraea"), PAIRS),
    **{name: {"route.beta": 2} for name in ("fedseq2par", "fedgsp")},
    "naivegsp-icg": {"grouping.groups": 3},
    "wfsl": {"warmup.cycles": 1},
    "fedavg-first": {"warmup.rounds": 1},
    "shared-raw": {"warmup.pretrain": 1},
}


@pytest.fixture(scope="module")
def tiny():
    """Six clients with a handful of samples."""
    rng = np.random.default_rng(0)
    sizes = [5, 4, 6, 3, 5, 4]
    owners = [client for client, size in enumerate(sizes) for _ in range(size)]
    y = rng.integers(0, 3, len(owners))
    x = rng.normal(size=(len(owners), 4)).astype(np.float32)
    return fr.federate(x, y, x, y, client_ids=owners, partition="natural")


def run(method, data, workers):
    return fr.run(
        method,
        data=data,
        model={"name": "mlp", "hidden": (4,)},
        rounds=2,
        fraction=0.7,
        batch_size=3,
        lr=0.05,
        workers=workers,
        eval={"every": 2},
        **SMALL.get(method.split("+")[0], {}),
    )


@pytest.mark.parametrize("route", [*ROUTES, *WARMUPS])
def test_every_combination_runs(tiny, route):
    additions = [name for name in ADDITIONS if route != "fedstar" or name in WITHOUT_A_MERGE]
    for addition in [None, *additions]:
        method = route if addition is None else f"{route}+{addition}"
        if addition == "krum" and route not in FOUR_MODELS:
            with pytest.raises(SpecError, match=r"merge.attackers: 1 among \d models"):
                run(method, tiny, workers=1)
            continue
        result = run(method, tiny, workers=1)
        assert torch.isfinite(result.weights).all(), method
        assert result.rounds == 2, method


@pytest.mark.parametrize(
    "method",
    [
        "fedseq+scaffold",
        "spfl+feddc",
        "fedseqinter+feddyn",
        "fedasyncseq+scaffold",
        "fedgsp+moon+fedyogi",
        "fedseq2par+glam+fedprox",
        "fedstar+fedprox",
        "ewc",
        "wfsl+scaffold",
        "spfl+fedfusion",
    ],
)
def test_the_same_bits_for_any_number_of_workers(tiny, method):
    one, two = (run(method, tiny, workers) for workers in (1, 2))
    assert weights_sha256(one.weights) == weights_sha256(two.weights)
    assert one.history == two.history
