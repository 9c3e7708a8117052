from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedrelay.data.pooled_federation import PooledFederation
from fedrelay.data.synthetic import LogNormalSizes, SyntheticFederation
from fedrelay.errors import SpecError

FIXED = LogNormalSizes(least=100, log_mean=-9, log_std=0)


def test_facts() -> None:
    federation = SyntheticFederation(30, 0.5, 1)
    assert (federation.name, federation.kind, federation.client_count, federation.class_count) == (
        "synthetic(0.5,1)",
        "tabular",
        30,
        10,
    )
    assert federation.sample_shape == (60,)
    x, y = federation.train_samples(3)
    assert x.shape == (federation.sample_count(3), 60)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert x.is_contiguous()
    assert y.shape == (federation.sample_count(3),)
    assert federation.histogram(3).tolist() == torch.bincount(y, minlength=10).tolist()


def test_sizes_are_fifty_and_a_log_normal_number() -> None:
    rule = LogNormalSizes()
    totals = rule.draw(20_000, np.random.default_rng(0))
    assert totals.min() >= 50
    assert np.log(totals - 49.5).mean() == pytest.approx(4, abs=0.1)
    assert LogNormalSizes(most=200).draw(1000, np.random.default_rng(0)).max() == 200
    assert set(FIXED.draw(10, np.random.default_rng(0))) == {100}
    federation = SyntheticFederation(5, size_rule=FIXED)
    assert federation.sample_counts().tolist() == [90] * 5 == [federation.sample_count(client) for client in range(5)]


def test_a_million_clients_and_the_same_first_ones() -> None:
    many, few = SyntheticFederation(1_000_000, seed=3), SyntheticFederation(20, seed=3)
    assert many.sample_counts().shape == (1_000_000,)
    assert many.sample_counts()[:20].tolist() == few.sample_counts().tolist()
    assert torch.equal(many.train_samples(11).x, few.train_samples(11).x)
    assert len(many.train_samples(999_999).y) == many.sample_count(999_999)


def test_every_hop_sees_the_same_samples_and_clients_differ() -> None:
    federation = SyntheticFederation(3, seed=3, size_rule=FIXED)
    assert torch.equal(federation.train_samples(1).x, federation.train_samples(1).x)
    assert not torch.equal(federation.train_samples(1).x, federation.train_samples(2).x)
    assert not torch.equal(
        federation.train_samples(1).x, SyntheticFederation(3, seed=4, size_rule=FIXED).train_samples(1).x
    )


def test_inputs_have_the_variances_of_the_paper() -> None:
    federation = SyntheticFederation(1, size_rule=LogNormalSizes(least=20_000, log_mean=-9, log_std=0))
    variances = federation.train_samples(0).x.var(dim=0)
    torch.testing.assert_close(variances, torch.arange(1, 61) ** -1.2, rtol=0.06, atol=0)


def spread_of_means(**settings: Any) -> float:
    federation = SyntheticFederation(300, size_rule=FIXED, **settings)
    return float(torch.stack([federation.train_samples(client).x.mean() for client in range(300)]).std())


def test_beta_moves_the_inputs() -> None:
    # The mean over 60 features is B_k plus the mean of 60 standard normals.
    assert spread_of_means(alpha=0, beta=0) == pytest.approx(60**-0.5, rel=0.15)
    assert spread_of_means(alpha=0, beta=2) == pytest.approx(2, rel=0.15)
    assert spread_of_means(alpha=0, beta=0, iid=True) < 0.05


def test_zero_zero_is_not_iid() -> None:
    def classes(**settings: Any) -> np.ndarray[Any, Any]:
        federation = SyntheticFederation(20, 0, 0, size_rule=FIXED, **settings)
        return np.array([federation.histogram(client) for client in range(20)]) / 90

    assert classes(iid=True).std(axis=0).mean() < 0.05 < 0.1 < classes().std(axis=0).mean()


def test_iid_clients_share_one_model() -> None:
    federation = SyntheticFederation(12, 0, 0, iid=True, features=5, class_count=2, size_rule=FIXED)
    assert federation.name == "synthetic-iid"
    pooled = PooledFederation(federation).train_samples(0)
    design = torch.cat([pooled.x, torch.ones(len(pooled.y), 1)], dim=1)
    fit = torch.linalg.lstsq(design, 2.0 * pooled.y[:, None] - 1).solution
    assert ((design @ fit > 0).flatten() == pooled.y.bool()).float().mean() > 0.95


def test_test_set_pools_held_out_samples() -> None:
    federation = SyntheticFederation(40, size_rule=FIXED)
    x, y = federation.test
    assert x.shape == (400, 60)
    assert y.shape == (400,)
    assert federation.test is federation.test
    train = {tuple(row) for client in range(40) for row in federation.train_samples(client).x[:, :3].tolist()}
    assert train.isdisjoint(tuple(row) for row in x[:, :3].tolist())
    assert len(SyntheticFederation(100_000, size_rule=FIXED, test_clients=7).test.y) == 70
    assert len(SyntheticFederation(3, size_rule=LogNormalSizes(2, -9, 0)).test.y) == 3


def test_fingerprint_tells_parameters_apart() -> None:
    federations = [
        SyntheticFederation(10),
        SyntheticFederation(11),
        SyntheticFederation(10, alpha=0.5),
        SyntheticFederation(10, beta=0.5),
        SyntheticFederation(10, seed=2),
        SyntheticFederation(10, size_rule=FIXED),
    ]
    assert len({federation.fingerprint() for federation in federations}) == 6
    assert SyntheticFederation(10).fingerprint() == federations[0].fingerprint()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"client_count": 0}, "client_count must be at least 1, got 0"),
        ({"client_count": 2, "alpha": -1.0}, "alpha must be a finite number ≥ 0, got -1"),
        ({"client_count": 2, "beta": float("nan")}, "beta must be a finite number ≥ 0, got nan"),
        ({"client_count": 2, "iid": True}, "iid needs alpha 0 and beta 0, got 1.0 and 1.0"),
    ],
)
def test_what_cannot_be(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        SyntheticFederation(**settings)


def test_sizes_and_clients_that_cannot_be() -> None:
    with pytest.raises(SpecError, match="2 ≤ least ≤ most"):
        LogNormalSizes(least=1)
    for client in (-1, 3):
        with pytest.raises(IndexError, match=f"client {client} does not exist; clients are 0 to 2"):
            SyntheticFederation(3).train_samples(client)
