from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cost import closed_forms as cost
from tests.cost.closed_forms import FedGspCosts, RoundShape, equal_chains

from fedrelay.cost.ledger import transfer_totals
from fedrelay.grouping.group_count_growth import group_count_in_round
from fedrelay.models.zoo import build_model
from fedrelay.routes.plan import RoundPlan, Route

PAPER = FedGspCosts()


def test_one_round_at_the_papers_settings():
    assert PAPER.communicating_seconds(1) == pytest.approx(78.5067, abs=5e-5)
    assert PAPER.traffic_bytes(1) == pytest.approx(5.564e9, rel=1e-4)


def test_the_papers_megabytes_are_binary():
    weight = 4 * sum(each.numel() for each in build_model("leaf-cnn", (1, 28, 28), 62).parameters())
    assert weight == 26_414_840
    assert weight / 2**20 == pytest.approx(25.2, abs=0.01)
    binary = FedGspCosts(model_bytes=weight, bits_in=567 * 2**20, bits_out=567 * 2**20)
    assert binary.communicating_seconds(1) == pytest.approx(78.48, abs=0.01)
    assert binary.traffic_bytes(1) / 2**20 / 1000 == pytest.approx(5.56, abs=0.01)
    assert FedGspCosts(model_bytes=weight).communicating_seconds(1) == pytest.approx(82.29, abs=0.01)


def test_the_claim_of_93_percent_is_one_of_rounds():
    saved = 1 - PAPER.traffic_bytes(34) / PAPER.traffic_bytes(470)
    assert saved == pytest.approx(1 - 34 / 470)
    assert saved == pytest.approx(0.93, abs=0.003)


def test_computing_time_by_hand():
    # Ten groups of 36.8 clients with 226 samples each, then all alone.
    sequential, alone = equal_chains([10, 368], 368, 226)
    assert sequential == RoundShape(10, pytest.approx(8316.8))
    assert alone == RoundShape(368, 226)
    assert equal_chains([500], 368, 226) == [RoundShape(500, 226)]
    assert PAPER.computing_seconds([sequential]) == pytest.approx(96e6 / 567e9 * 8316.8 + 6.3e6 / 567e9 * 2)
    assert PAPER.computing_seconds([alone]) == pytest.approx(0.038265 + 0.0012156, rel=1e-4)
    assert PAPER.computing_seconds([sequential, alone]) == pytest.approx(
        PAPER.computing_seconds([sequential]) + PAPER.computing_seconds([alone])
    )
    assert FedGspCosts(epochs=2).computing_seconds([RoundShape(1, 100)]) == pytest.approx(200 * 96e6 / 567e9)


def test_500_rounds_of_fedgsp():
    groups = [group_count_in_round(number, 368, growth="log", alpha=2, beta=10) for number in range(1, 501)]
    seconds = PAPER.computing_seconds(equal_chains(groups, 368, 226))
    by_hand = sum(96e6 / 567e9 * 226 * 368 / each + 6.3e6 / 567e9 * (0.3 * each - 1) for each in groups)
    assert seconds == pytest.approx(by_hand)
    assert seconds < PAPER.communicating_seconds(500) / 100  # communication takes most of the time


def test_nothing_to_merge_costs_nothing():
    assert PAPER.computing_seconds([RoundShape(2, 0)]) == 0
    assert PAPER.computing_seconds([]) == 0


@given(st.integers(1, 12), st.integers(1, 6), st.data())
@settings(max_examples=60)
def test_traffic_is_what_the_ledger_says(groups, length, data):
    taking_part = data.draw(st.integers(1, groups))
    routes = tuple(Route(tuple(range(group * length, (group + 1) * length))) for group in range(taking_part))
    found = transfer_totals(RoundPlan(1, routes, handover="server"), {"model": 40})
    model = FedGspCosts(clients=groups * length, fraction=taking_part / groups, model_bytes=40)
    assert model.traffic_bytes(3) == pytest.approx(3 * found.bytes)
    assert cost.relayed_exchanges(taking_part * length) == tuple(found.counts().values())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (cost.parallel_exchanges(20), (20, 20, 0, 40)),
        (cost.parallel_exchanges(20, payloads=2), (40, 40, 0, 80)),
        (cost.ring_exchanges(20), (1, 1, 19, 21)),
        (cost.chain_exchanges([4, 4, 5]), (3, 3, 10, 16)),
        (cost.relayed_exchanges(30), (30, 30, 0, 60)),
        (cost.rotation_exchanges(10), (10, 10, 90, 110)),
        (cost.star_exchanges(5), (0, 0, 20, 20)),
        (cost.fisher_ring_exchanges(6), (2, 2, 10, 14)),
        (cost.fisher_ring_exchanges(6, first=True), (1, 2, 10, 13)),
    ],
)
def test_exchanges(found, expected):
    assert (*found, found.total) == expected


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
@settings(max_examples=30)
def test_closed_forms_are_the_ledgers(sizes):
    def counted(*lengths, handover="direct", payloads=1):
        routes = tuple(Route(tuple(range(length))) for length in lengths)
        names = {f"payload {number}": 1 for number in range(payloads)}
        return tuple(transfer_totals(RoundPlan(1, routes, handover), names).counts().values())

    clients = sizes[0]
    assert cost.chain_exchanges(sizes) == counted(*sizes)
    assert cost.ring_exchanges(clients) == counted(clients)
    assert cost.parallel_exchanges(clients) == counted(*[1] * clients)
    assert cost.parallel_exchanges(clients, payloads=2) == counted(*[1] * clients, payloads=2)
    assert cost.relayed_exchanges(sum(sizes)) == counted(*sizes, handover="server")
    assert cost.rotation_exchanges(clients) == counted(*[clients] * clients)
    assert cost.fisher_ring_exchanges(clients) == counted(clients, payloads=2)


def test_what_the_papers_tables_imply_for_spfl():
    assert [cost.paper_cost(clients) for clients in (1, 10, 100)] == [3, 120, 10_200]
    assert cost.paper_cost(10) * 11.69 == pytest.approx(30 * 46.76, rel=1e-3)
    assert cost.rotation_exchanges(10).total == 110
