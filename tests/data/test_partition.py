from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from fedrelay.data import partition as rules
from fedrelay.data.partition import PARTITIONS, ClientIndices, Ints
from fedrelay.errors import DataError, SpecError
from fedrelay.metrics.skew import pairwise_cpd

DIGITS: Ints = load_digits().target.astype(np.int64)
ALPHAS = [0.0, 1e-300, 1e-9, 0.1, 1.0, 1e6, 1e300, math.inf]
LABEL_RULES: dict[str, Callable[[Ints, int, np.random.Generator], ClientIndices]] = {
    "one-class": rules.one_class,
    "dirichlet": lambda labels, clients, rng: rules.dirichlet_per_client(labels, clients, 0.5, rng),
    "dirichlet-class": lambda labels, clients, rng: rules.dirichlet_per_class(labels, clients, 0.5, rng),
    "shards": lambda labels, clients, rng: rules.shards(labels, clients, 2, None, rng),
}
every_label_rule = pytest.mark.parametrize("rule", LABEL_RULES.values(), ids=LABEL_RULES.keys())
labels_and_clients = st.lists(st.integers(0, 6), min_size=1, max_size=60).flatmap(
    lambda labels: st.tuples(st.just(np.array(labels)), st.integers(1, len(labels)))
)
seeds = st.integers(0, 2**32)


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def assert_complete(client_indices: ClientIndices, samples: int, clients: int) -> None:
    assert client_indices.clients == clients == len(client_indices.sample_counts())
    assert sorted(client_indices.indices) == list(range(samples))
    assert client_indices.sample_counts().sum() == samples
    assert all((np.diff(client_indices.of(client)) > 0).all() for client in range(clients))


def histograms(client_indices: ClientIndices, labels: Ints) -> Ints:
    classes = labels.max() + 1
    rows = [
        np.bincount(labels[client_indices.of(client)], minlength=classes) for client in range(client_indices.clients)
    ]
    return np.array(rows)


def classes_of(client_indices: ClientIndices, labels: Ints) -> list[int]:
    return np.count_nonzero(histograms(client_indices, labels), axis=1).tolist()


def same(left: ClientIndices, right: ClientIndices) -> bool:
    return np.array_equal(left.indices, right.indices) and np.array_equal(left.offsets, right.offsets)


def test_class_counts_of_clients() -> None:
    client_indices = ClientIndices(np.array([2, 4, 0, 1, 3]), np.array([0, 2, 2, 5]))
    assert client_indices.clients == 3
    assert client_indices.sample_counts().tolist() == [2, 0, 3]
    assert [client_indices.of(client).tolist() for client in range(3)] == [[2, 4], [], [0, 1, 3]]
    for client in (-1, 3):
        with pytest.raises(IndexError, match=f"client {client} does not exist; clients are 0 to 2"):
            client_indices.of(client)


@pytest.mark.parametrize(("samples", "clients", "sizes"), [(10, 4, [3, 3, 2, 2]), (6, 3, [2, 2, 2]), (3, 3, [1, 1, 1])])
def test_iid_sizes(samples: int, clients: int, sizes: list[int]) -> None:
    client_indices = rules.iid(samples, clients, rng())
    assert_complete(client_indices, samples, clients)
    assert client_indices.sample_counts().tolist() == sizes


def test_iid_mixes_classes() -> None:
    shares = histograms(rules.iid(len(DIGITS), 10, rng()), DIGITS) / 180
    assert 0.03 < shares.min() < shares.max() < 0.2


class TestOneClass:
    def test_equal_classes_are_cut_into_equal_parts(self) -> None:
        labels = np.tile(np.arange(5), 40)
        client_indices = rules.one_class(labels, 20, rng())
        assert_complete(client_indices, 200, 20)
        assert set(client_indices.sample_counts()) == {10}
        counts = histograms(client_indices, labels)
        assert np.count_nonzero(counts, axis=0).tolist() == [4] * 5
        assert counts.max(axis=1).tolist() == [10] * 20

    def test_digits_over_a_hundred_clients(self) -> None:
        client_indices = rules.one_class(DIGITS, 100, rng())
        assert_complete(client_indices, 1797, 100)
        assert classes_of(client_indices, DIGITS) == [1] * 100
        assert set(client_indices.sample_counts()) <= {17, 18, 19}

    @pytest.mark.parametrize(
        ("sizes", "clients", "per_class"),
        [
            ((90, 10), 10, [9, 1]),
            ((50, 30, 20), 4, [2, 1, 1]),  # quotas 2, 1.2, 0.8
            ((97, 1, 2), 4, [2, 1, 1]),  # the rare classes get the one they need
            ((996, 1, 1, 2), 5, [2, 1, 1, 1]),
            ((3, 3), 6, [3, 3]),
            ((5, 5, 5), 4, [2, 1, 1]),  # a tie goes to the first class
        ],
    )
    def test_clients_by_largest_remainder(self, sizes: tuple[int, ...], clients: int, per_class: list[int]) -> None:
        labels = np.repeat(np.arange(len(sizes)), sizes)
        client_indices = rules.one_class(labels, clients, rng())
        assert np.count_nonzero(histograms(client_indices, labels), axis=0).tolist() == per_class
        assert classes_of(client_indices, labels) == [1] * clients

    def test_fewer_clients_than_classes(self) -> None:
        labels = np.repeat(np.arange(6), 4)
        client_indices = rules.one_class(labels, 3, rng())
        assert_complete(client_indices, 24, 3)
        assert client_indices.sample_counts().tolist() == [8, 8, 8]
        held = sorted(tuple(np.flatnonzero(row)) for row in histograms(client_indices, labels))
        assert held == [(0, 1), (2, 3), (4, 5)]

    @given(labels_and_clients, seeds)
    @settings(deadline=None, max_examples=60)
    def test_property(self, case: tuple[Ints, int], seed: int) -> None:
        labels, clients = case
        client_indices = rules.one_class(labels, clients, rng(seed))
        assert_complete(client_indices, len(labels), clients)
        assert client_indices.sample_counts().min() >= 1
        if clients >= len(set(labels.tolist())):
            assert classes_of(client_indices, labels) == [1] * clients

    def test_alpha_zero_means_one_class(self) -> None:
        expected = rules.one_class(DIGITS, 50, rng())
        assert same(rules.dirichlet_per_client(DIGITS, 50, 0, rng()), expected)
        assert same(rules.dirichlet_per_class(DIGITS, 50, 0, rng()), expected)


class TestDirichletPerClient:
    @given(labels_and_clients, st.sampled_from(ALPHAS), seeds)
    @settings(deadline=None, max_examples=60)
    def test_property(self, case: tuple[Ints, int], alpha: float, seed: int) -> None:
        labels, clients = case
        client_indices = rules.dirichlet_per_client(labels, clients, alpha, rng(seed))
        assert_complete(client_indices, len(labels), clients)
        assert client_indices.sample_counts().min() >= 1
        if alpha:
            assert np.ptp(client_indices.sample_counts()) <= 1

    def test_more_clients_than_a_block(self) -> None:
        labels = rng(3).integers(0, 20, 5000)
        client_indices = rules.dirichlet_per_client(labels, 2500, 0.1, rng())
        assert_complete(client_indices, 5000, 2500)
        assert set(client_indices.sample_counts()) == {2}

    def test_large_alpha_is_iid_for_unequal_classes_too(self) -> None:
        labels = np.repeat([0, 1, 2], [800, 150, 50])
        shares = histograms(rules.dirichlet_per_client(labels, 4, math.inf, rng()), labels) / 250
        np.testing.assert_allclose(shares, np.tile([0.8, 0.15, 0.05], (4, 1)), atol=0.06)

    def test_tiny_alpha_gives_one_class_while_it_lasts(self) -> None:
        labels = np.tile(np.arange(4), 100)
        held = classes_of(rules.dirichlet_per_client(labels, 40, 1e-12, rng()), labels)
        assert held.count(1) >= 36

    def test_draws_are_those_of_one_sample_at_a_time(self) -> None:
        # Three draws, shares .8 and .2, when two of the first class are left: none .008, one .096, two .896.
        draws = rng()
        counts = np.zeros(4)
        for _ in range(4000):
            stock = np.array([2, 4])
            mixes = np.log([[0.8, 0.2], [0.5, 0.5]])
            drawn = rules._draw_block(np.array([3, 3]), stock, mixes, draws)
            assert drawn.sum(axis=0).tolist() == [2, 4]
            assert drawn.sum(axis=1).tolist() == [3, 3]
            assert stock.tolist() == [0, 0]
            counts[drawn[0, 0]] += 1
        np.testing.assert_allclose(counts / 4000, [0.008, 0.096, 0.896, 0], atol=0.015)


class TestDirichletPerClass:
    @given(labels_and_clients, st.sampled_from(ALPHAS), seeds, st.booleans())
    @settings(deadline=None, max_examples=60)
    def test_property(self, case: tuple[Ints, int], alpha: float, seed: int, tight: bool) -> None:
        labels, clients = case
        least = len(labels) // clients if tight else 0
        client_indices = rules.dirichlet_per_class(labels, clients, alpha, rng(seed), least)
        assert_complete(client_indices, len(labels), clients)
        if alpha:
            assert client_indices.sample_counts().min() >= least

    def test_repair_reaches_everybody(self) -> None:
        client_indices = rules.dirichlet_per_class(DIGITS, 100, 0.01, rng(), min_samples=10)
        assert_complete(client_indices, 1797, 100)
        assert client_indices.sample_counts().min() == 10

    def test_redraws_come_before_repair(self, monkeypatch: pytest.MonkeyPatch) -> None:
        draw, smallest = rules._spread_classes, []

        def watched(*arguments: Any) -> tuple[Ints, int]:
            owners, least = draw(*arguments)
            smallest.append(least)
            return owners, least

        monkeypatch.setattr(rules, "_spread_classes", watched)
        client_indices = rules.dirichlet_per_class(DIGITS, 10, 0.5, rng(), min_samples=130)
        assert len(smallest) > 1
        assert max(smallest[:-1]) < 130 <= smallest[-1] == client_indices.sample_counts().min()
        smallest.clear()
        assert rules.dirichlet_per_class(DIGITS, 10, 0.5, rng(), min_samples=179).sample_counts().min() == 179
        assert len(smallest) == 101

    @given(st.lists(st.integers(0, 12), min_size=1, max_size=12), st.data())
    @settings(deadline=None, max_examples=60)
    def test_the_largest_gives(self, sizes: list[int], data: st.DataObject) -> None:
        total = data.draw(st.integers(0, sum(sizes)))
        left = np.array(sizes)
        for _ in range(total):
            left[len(left) - 1 - left[::-1].argmax()] -= 1
        assert rules._taken_from_largest(np.array(sizes), total).tolist() == (np.array(sizes) - left).tolist()

    def test_too_high_a_minimum(self) -> None:
        with pytest.raises(DataError, match="1797 samples are too few for 100 clients: each needs at least 18"):
            rules.dirichlet_per_class(DIGITS, 100, 0.5, rng(), min_samples=18)
        with pytest.raises(SpecError, match="min_samples must be at least 0, got -1"):
            rules.dirichlet_per_class(DIGITS, 100, 0.5, rng(), min_samples=-1)


@pytest.mark.parametrize("rule", [rules.dirichlet_per_client, rules.dirichlet_per_class])
def test_smaller_alpha_means_more_skew(rule: Callable[..., ClientIndices]) -> None:
    skew = [
        pairwise_cpd(histograms(rule(DIGITS, 60, alpha, rng()), DIGITS)).mean() for alpha in (0, 0.1, 0.5, 2, 10, 1000)
    ]
    assert skew == sorted(skew, reverse=True)
    assert skew[0] > 1
    assert skew[-1] < 0.1


class TestShards:
    def test_all_samples_are_used(self) -> None:
        client_indices = rules.shards(DIGITS, 30, 2, None, rng())
        assert_complete(client_indices, 1797, 30)
        assert max(classes_of(client_indices, DIGITS)) == 2
        assert set(client_indices.sample_counts()) <= set(range(56, 66))

    def test_one_shard_is_one_class(self) -> None:
        assert classes_of(rules.shards(DIGITS, 25, 1, None, rng()), DIGITS) == [1] * 25

    def test_fixed_size_leaves_the_rest_out(self) -> None:
        labels = np.repeat([0, 1, 2], [25, 9, 31])  # two, none and three shards of ten
        client_indices = rules.shards(labels, 2, 2, 10, rng())
        assert client_indices.sample_counts().tolist() == [20, 20]
        assert len(set(client_indices.indices.tolist())) == 40
        counts = histograms(client_indices, labels)
        assert counts[:, 1].tolist() == [0, 0]
        assert set(counts.ravel()) <= {0, 10, 20}

    def test_what_does_not_fit(self) -> None:
        labels = np.repeat([0, 1, 2], [25, 9, 31])
        with pytest.raises(DataError, match=r"3 clients × 2 need 6 shards of 10 samples, .* only 5 shards"):
            rules.shards(labels, 3, 2, 10, rng())
        with pytest.raises(DataError, match=r"cannot cut 65 samples of 3 classes into 2 shards"):
            rules.shards(labels, 1, 2, None, rng())
        with pytest.raises(DataError, match=r"cannot cut 65 samples of 3 classes into 80 shards"):
            rules.shards(labels, 40, 2, None, rng())
        with pytest.raises(SpecError, match="must be at least 1, got 0 and None"):
            rules.shards(labels, 3, 0, None, rng())

    @given(labels_and_clients, st.integers(1, 3), st.integers(1, 5), seeds)
    @settings(deadline=None, max_examples=60)
    def test_fixed_size_property(self, case: tuple[Ints, int], each: int, size: int, seed: int) -> None:
        labels, clients = case
        if (np.bincount(labels) // size).sum() < clients * each:
            with pytest.raises(DataError):
                rules.shards(labels, clients, each, size, rng(seed))
            return
        client_indices = rules.shards(labels, clients, each, size, rng(seed))
        assert client_indices.sample_counts().tolist() == [each * size] * clients
        assert len(set(client_indices.indices.tolist())) == len(client_indices.indices)
        assert (histograms(client_indices, labels) % size == 0).all()


class TestNatural:
    OWNER = np.array([7, 3, 7, 9, 3, 7])

    def test_all_holders_in_order(self) -> None:
        client_indices = rules.natural(self.OWNER, None, rng())
        assert [client_indices.of(client).tolist() for client in range(3)] == [[1, 4], [0, 2, 5], [3]]

    def test_some_holders_keep_their_samples(self) -> None:
        whole = {(1, 4), (0, 2, 5), (3,)}
        client_indices = rules.natural(self.OWNER, 2, rng())
        assert client_indices.clients == 2
        assert {tuple(client_indices.of(client).tolist()) for client in range(2)} < whole

    def test_too_many(self) -> None:
        with pytest.raises(DataError, match="3 natural clients are too few for 4 clients"):
            rules.natural(self.OWNER, 4, rng())


class TestQuantity:
    @given(st.integers(1, 200), st.data(), st.sampled_from(ALPHAS), seeds)
    @settings(deadline=None, max_examples=60)
    def test_property(self, samples: int, data: st.DataObject, alpha: float, seed: int) -> None:
        clients = data.draw(st.integers(1, samples))
        client_indices = rules.quantity(samples, clients, alpha, rng(seed))
        assert_complete(client_indices, samples, clients)
        assert client_indices.sample_counts().min() >= 1

    def test_alpha_rules_the_sizes(self) -> None:
        assert sorted(rules.quantity(100, 5, 1e-12, rng()).sample_counts()) == [1, 1, 1, 1, 96]
        assert np.ptp(rules.quantity(100, 5, math.inf, rng()).sample_counts()) <= 2
        spread = [rules.quantity(10_000, 50, alpha, rng()).sample_counts().std() for alpha in (0.1, 1, 10)]
        assert spread == sorted(spread, reverse=True)


@every_label_rule
def test_seed_decides(rule: Callable[[Ints, int, np.random.Generator], ClientIndices]) -> None:
    assert same(rule(DIGITS, 40, rng(4)), rule(DIGITS, 40, rng(4)))
    assert not same(rule(DIGITS, 40, rng(4)), rule(DIGITS, 40, rng(5)))


@every_label_rule
def test_too_many_clients(rule: Callable[[Ints, int, np.random.Generator], ClientIndices]) -> None:
    with pytest.raises(DataError, match="1797 samples are too few for 1798 clients"):
        rule(DIGITS, 1798, rng())
    with pytest.raises(SpecError, match="at least 1, got 0"):
        rule(DIGITS, 0, rng())


@every_label_rule
def test_labels_at_every_position(rule: Callable[[Ints, int, np.random.Generator], ClientIndices]) -> None:
    with pytest.raises(SpecError, match="one label per position; use one of: iid, natural, quantity"):
        rule(np.zeros((10, 5), dtype=np.int64), 2, rng())


@pytest.mark.parametrize("alpha", [-0.1, math.nan, -math.inf])
def test_impossible_alpha(alpha: float) -> None:
    for attempt in (
        lambda: rules.dirichlet_per_client(DIGITS, 10, alpha, rng()),
        lambda: rules.dirichlet_per_class(DIGITS, 10, alpha, rng()),
        lambda: rules.quantity(100, 10, alpha, rng()),
    ):
        with pytest.raises(SpecError, match="alpha must be a number ≥ 0"):
            attempt()


def deal(name: str, owner: Ints | None = None, clients: int | None = None) -> ClientIndices:
    return rules.partition_samples(
        name, DIGITS, owner, clients, rng(), alpha=0.5, shards_per_client=2, shard_size=None, min_samples=1
    )


@pytest.mark.parametrize("name", PARTITIONS)
def test_every_name_deals_everything_out(name: str) -> None:
    assert_complete(deal(name, np.arange(len(DIGITS)) % 100), 1797, 100)


def test_names_that_do_not_fit() -> None:
    with pytest.raises(SpecError, match=r"unknown partition 'dirichelt' .*'dirichlet'\?.* allowed: iid, "):
        deal("dirichelt")
    with pytest.raises(SpecError, match="no natural clients; use one of: iid, dirichlet, "):
        deal("natural")
