from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrelay.cost import ledger
from fedrelay.cost.ledger import (
    KINDS,
    NOTHING,
    SERVER,
    ExtraPayloads,
    Kind,
    SetupCost,
    SetupTransfer,
    TransferTotals,
    histograms,
    ledger_line,
    transfer_totals,
)
from fedrelay.routes.plan import RoundPlan, Route

MODEL = {"model": 40}


@dataclass(frozen=True)
class Transfer:
    """One payload on its way from `source` to `target` (client numbers, or `SERVER`)."""

    kind: Kind
    source: int
    target: int
    payload: str
    bytes: int


def transfers(plan: RoundPlan, payloads: Mapping[str, int], extras: ExtraPayloads = NOTHING) -> Iterator[Transfer]:
    """Every transfer of a round, one for each payload and way."""
    for kind, source, target in ledger.transfers(plan):
        for payload, size in (*payloads.items(), *extras.get(kind, {}).items()):
            yield Transfer(kind, source, target, payload, size)


def chains(*lengths: int, handover="direct") -> RoundPlan:
    start = [sum(lengths[:i]) for i in range(len(lengths))]
    routes = tuple(Route(tuple(range(s, s + n))) for s, n in zip(start, lengths, strict=True))
    return RoundPlan(1, routes, handover)


@pytest.mark.parametrize(
    ("plan", "s2c", "c2s", "c2c"),
    [
        (chains(4, 4, 5), 3, 3, 10),  # FedSeq: G + ΣK_S = 16
        (chains(20), 1, 1, 19),  # FedCyclic: m + 1 = 21
        (chains(*[1] * 20), 20, 20, 0),  # FedAvg: 2m
        (
            RoundPlan(1, tuple(Route(tuple((start + j) % 10 for j in range(10))) for start in range(10))),
            10,
            10,
            90,
        ),  # SPFL: M(M+1)
        (chains(10, 10, 10, handover="server"), 30, 30, 0),  # FedGSP relayed, K=100, κ=.3, M=10: 60
        (chains(7, handover="none"), 0, 0, 0),  # centralised
    ],
)
def test_closed_forms(plan, s2c, c2s, c2c):
    found = transfer_totals(plan, MODEL)
    assert (found.s2c, found.c2s, found.c2c) == (s2c, c2s, c2c)
    assert found.total == s2c + c2s + c2c
    assert found.bytes == 40 * found.total


def test_payloads_are_counted_beside_the_model():
    doubled = transfer_totals(chains(*[1] * 20), {"model": 40, "control": 40})
    assert (doubled.total, doubled.bytes) == (80, 3200)  # SCAFFOLD with m = 20
    assert doubled.bytes_by_payload == {"model": 1600, "control": 1600}


def test_transfers_name_their_ends():
    assert list(transfers(chains(2), MODEL)) == [
        Transfer("s2c", SERVER, 0, "model", 40),
        Transfer("c2c", 0, 1, "model", 40),
        Transfer("c2s", 1, SERVER, "model", 40),
    ]
    kinds = [(t.kind, t.source, t.target) for t in transfers(chains(2, handover="server"), MODEL)]
    assert kinds == [("s2c", SERVER, 0), ("c2s", 0, SERVER), ("s2c", SERVER, 1), ("c2s", 1, SERVER)]


@given(st.lists(st.integers(1, 9), max_size=8), st.sampled_from(["direct", "server", "none"]))
def test_the_total_is_the_sum_of_the_transfers(lengths, handover):
    plan = chains(*lengths, handover=handover)
    events = list(transfers(plan, {"model": 7, "payload": 3}))
    found = transfer_totals(plan, {"model": 7, "payload": 3})
    assert Counter(event.kind for event in events) == Counter(found.counts())
    assert sum(event.bytes for event in events) == found.bytes == sum(found.bytes_by_payload.values())
    for kind in KINDS:
        assert sum(event.bytes for event in events if event.kind == kind) == found.bytes_by_kind.get(kind, 0)


def test_tallies_add_up():
    one, two = transfer_totals(chains(3), MODEL), transfer_totals(chains(1, 1), MODEL)
    assert one + two == TransferTotals(3, 3, 2, 320, {"model": 320}, {"s2c": 120, "c2s": 120, "c2c": 80})


def test_setup_is_one_message_to_every_client_and_one_back():
    model, profile = SetupTransfer("model", 100), SetupTransfer("profile", 4)
    assert SetupCost(range(12), model, profile).totals() == TransferTotals(
        12, 12, 0, 1248, {"model": 1200, "profile": 48}, {"s2c": 1200, "c2s": 48}
    )
    assert SetupCost(range(2), model, SetupTransfer("model", 60)).totals() == TransferTotals(
        2, 2, 0, 320, {"model": 320}, {"s2c": 200, "c2s": 120}
    )
    assert SetupCost((3, 5), up=SetupTransfer("samples", (10, 30))).totals() == TransferTotals(
        0, 2, 0, 40, {"samples": 40}, {"c2s": 40}
    )


def test_histograms_are_one_integer_a_class():
    assert histograms((0, 2, 3), classes=10).totals() == TransferTotals(0, 3, 0, 240, {"histogram": 240}, {"c2s": 240})


def test_a_line_of_the_ledger():
    line = ledger_line(3, transfer_totals(chains(2), MODEL), updates=2, longest=2, routes=[(0, 1)])
    assert line == {
        "round": 3, "s2c": 1, "c2s": 1, "c2c": 1, "bytes": 120, "payloads": {"model": 120},
        "s2c_bytes": 40, "c2s_bytes": 40, "c2c_bytes": 40,
        "client_updates": 2, "longest_route": 2, "routes": [[0, 1]],
    }  # fmt: skip
