"""Every way of travelling with every term and every merge: two rounds on tiny data.

Each must run, and its transfers must be those of a list that is written down here one by one, from the plan and from
what each method is known to send beside the model. With two workers each must give the same bits; every twelfth, with
every route, is tried that way, and all are by `make test-all`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

import numpy as np
import pytest
import torch
from tests.damage import THOROUGH

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.experiment.prepare import prepare
from fedrelay.models.flat_layout import weights_sha256
from fedrelay.routes.plan import RoundPlan

ROUTES = [name for name, entry in METHODS.items() if entry.route is not None and not entry.terms]
WARMUPS = [name for name, entry in METHODS.items() if entry.warmup is not None]
ADDITIONS = [
    name
    for name, entry in METHODS.items()
    if (entry.route is None and (entry.terms or "server" in entry.defaults)) or entry.merge is not None
]

NEVER_MERGED = ("fedstar", "local")
WITHOUT_A_MERGE = ("fedprox", "moon", "glam", "fedmmd", "fedfusion", "dp")
NOT_GUARDED = {
    "centralized": "no clients for 'dp' to protect",
    "shared-raw": "cannot protect samples that clients share",
}

FOUR_MODELS = ("fedavg", "spfl", "fedseq2par", "daisy-chain", "wfsl", "fedavg-first", "shared-raw")
"""Those that bring enough models home for Krum's default, and for a mean without extremes."""

NEED_FOUR = {"krum": {}, "trimmed-mean": {"merge.share": 0.25}}

PAIRS = {"grouping.max_clients": 2, "grouping.min_samples": 1000}
SMALL = {
    **dict.fromkeys(("fedseq", "fedseqinter", "fedasyncseq", "naivegsp", "astraea"), PAIRS),
    **{name: {"route.beta": 2} for name in ("fedseq2par", "fedgsp")},
    "naivegsp-icg": {"grouping.groups": 3},
    "relay": {"grouping.groups": 3},
    "cycp": PAIRS,
    "wfsl": {"warmup.cycles": 1},
    "fedavg-first": {"warmup.rounds": 1},
    "fedtm": {"warmup.rounds": 1},
    "shared-raw": {"warmup.pretrain": 1},
}
SIZES = [5, 4, 6, 3, 5, 4]
GROUPED_BY_CLASSES = ("fedseq2par", "fedgsp", "naivegsp-icg", "astraea", "relay")


@pytest.fixture(scope="module")
def tiny():
    """Six clients with a handful of samples."""
    rng = np.random.default_rng(0)
    owners = [client for client, size in enumerate(SIZES) for _ in range(size)]
    y = rng.integers(0, 3, len(owners))
    x = rng.normal(size=(len(owners), 4)).astype(np.float32)
    return fr.federate(x, y, x, y, client_ids=owners, partition="natural")


def run(method, data, workers, **settings):
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
        **settings,
    )


def additions_of(route):
    return [None, *(name for name in ADDITIONS if route not in NEVER_MERGED or name in WITHOUT_A_MERGE)]


def tried_with_two_workers(number, count):
    """At least one of `count` numbers that follow each other."""
    return THOROUGH or number % min(12, count) == 0


@pytest.mark.parametrize("route", [*ROUTES, *WARMUPS])
def test_every_combination(tiny, route):
    additions = additions_of(route)
    for number, addition in enumerate(additions, start=[*ROUTES, *WARMUPS].index(route)):
        method = route if addition is None else f"{route}+{addition}"
        options = NEED_FOUR.get(addition, {})
        if addition in NEED_FOUR and route not in FOUR_MODELS:
            with pytest.raises(SpecError, match=r"among \d models|of \d models|needs at least 3"):
                run(method, tiny, workers=1, **options)
            continue
        if addition in ("lookahead", "fedacg") and route == "relay":
            with pytest.raises(SpecError, match=r"both set server\.lookahead"):
                run(method, tiny, workers=1)
            continue
        if addition == "dp" and route in NOT_GUARDED:
            with pytest.raises(SpecError, match=NOT_GUARDED[route]):
                run(method, tiny, workers=1)
            continue
        one = run(method, tiny, workers=1, **options)
        assert one.rounds == 2, method
        assert torch.isfinite(one.weights).all(), method
        assert_the_ledger_is_the_list_of_transfers(one, tiny, route, addition)
        if not tried_with_two_workers(number, len(additions)):
            continue
        two = run(method, tiny, workers=2, **options)
        assert weights_sha256(one.weights) == weights_sha256(two.weights), method
        assert one.history == two.history, method


@pytest.mark.parametrize("method", ["fedgsp+moon+fedyogi", "fedseq2par+glam+fedprox", "spfl+scaffold+moon+fedadam"])
def test_more_than_two_names(tiny, method):
    one, two = (run(method, tiny, workers) for workers in (1, 2))
    assert weights_sha256(one.weights) == weights_sha256(two.weights)
    assert one.history == two.history


def assert_the_ledger_is_the_list_of_transfers(result, data, route, addition):
    planner = prepare(result.experiment, federation=data).planner
    size = 4 * len(result.weights)
    warmed_up = int(route in WARMUPS)
    found = list(beforehand(route, addition))
    # No method merges slots after the first of two rounds, so in the second one models of the first wait there.
    first = {each.slot for each in planner.plan(1).routes if each.slot is not None and not planner.plan(1).merges}
    since = {1: set[int](), 2: first}
    for number in (1, 2):
        plan = planner.plan(number)
        with_method = number > warmed_up
        extras = beside_the_model(addition, plan, first=number == 1 + warmed_up) if with_method else {}
        found += [(kind, size) for kind in transfer_kinds(plan) for _ in ("model", *extras.get(kind, ()))]
        found += [(kind, size) for kind in round_models(plan, since[number]) if with_method and addition == "glam"]
    assert Counter(kind for kind, _ in found) == Counter(result.transfers), (route, addition)
    assert sum(weight for _, weight in found) == result.bytes, (route, addition)


def transfer_kinds(plan: RoundPlan) -> Iterator[str]:
    """The kind of every transfer of a round."""
    for route in plan.routes:
        if plan.handover == "none":
            continue
        if plan.handover == "peers":  # to every other model's client
            yield from ("c2c" for other in plan.routes if other is not route)
            continue
        yield "s2c"
        for _ in route.clients[1:]:
            yield from ("c2c",) if plan.handover == "direct" else ("c2s", "s2c")
        yield "c2s"


def beside_the_model(addition: str | None, plan: RoundPlan, *, first: bool) -> dict[str, tuple[str, ...]]:
    """What travels besides on each kind of transfer: none of it is smaller than the model."""
    if addition in ("scaffold", "feddc"):  # twice the bytes down and up
        return {"s2c": ("control",), "c2s": ("change",), "c2c": ("control", "change")}
    if addition == "ghbm":  # the movement, from the server and along the route
        return {"s2c": ("movement",), "c2c": ("movement",)}
    if addition == "ewc":  # nobody has a Fisher before the first turn
        return {"s2c": () if first else ("fisher",), "c2s": ("fisher",), "c2c": ("fisher",)}
    return {}


def round_models(plan: RoundPlan, waiting: Collection[int]) -> Iterator[str]:
    """Transfers of the round's model, to clients that do not get it as the model; slots where another model waits."""
    own = [route.slot in waiting for route in plan.routes]
    have_it = {route.clients[0] for route, other in zip(plan.routes, own, strict=True) if not other}
    for route, other in zip(plan.routes, own, strict=True):
        for index, client in enumerate(route.clients):
            if plan.handover == "server" and (index or other):
                yield "s2c"
            elif plan.handover == "direct" and client not in have_it:
                have_it.add(client)
                yield "c2c" if index else "s2c"


def beforehand(route: str, addition: str | None) -> Iterator[tuple[str, int]]:
    """What travels once: samples of Shared-Raw, of 4 floats and a label each, and counts of 3 classes, 8 bytes each."""
    if route == "shared-raw":
        given = [max(1, round(0.05 * size)) for size in SIZES]
        for share in given:
            yield "c2s", share * (4 * 4 + 8)
            yield "s2c", sum(given) * (4 * 4 + 8)
    if route != "centralized" and (route in GROUPED_BY_CLASSES or addition == "feddisco"):
        yield from (("c2s", 3 * 8) for _ in SIZES)


def test_scaffold_doubles_what_fedavg_sends(tiny):
    plain, doubled = run("fedavg", tiny, workers=1), run("scaffold", tiny, workers=1)
    assert {kind: 2 * count for kind, count in plain.transfers.items()} == dict(doubled.transfers)
    assert 2 * plain.bytes == doubled.bytes
