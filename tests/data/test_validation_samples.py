"""Validation samples: a share of every client's train samples, class by class, always the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.data.dataset import Dataset
from fedrelay.data.evaluation_samples import evaluation_samples
from fedrelay.data.federation import ArrayFederation
from fedrelay.data.federation_wrapper import find_wrapper
from fedrelay.data.partition import ClientIndices
from fedrelay.data.pooled_federation import PooledFederation
from fedrelay.data.public_samples import with_public
from fedrelay.data.validation_samples import FederationWithValidationSamples, with_validation
from fedrelay.errors import DataError

SIZES = [10, 1, 0, 40, 5, 2]


def rows_of(samples):
    return {tuple(row) for row in samples.x.tolist()}


@pytest.fixture
def plain():
    return make_federation(SIZES)


@pytest.fixture
def kept(plain):
    return FederationWithValidationSamples(plain, 0.3, seed=4)


def test_train_and_validation_samples_are_all_samples_and_share_none(plain, kept):
    for client, size in enumerate(SIZES):
        train, all_rows = rows_of(kept.train_samples(client)), rows_of(plain.train_samples(client))
        held_out = all_rows - train
        assert train <= all_rows
        assert len(train) == kept.sample_count(client) == kept.sample_counts()[client]
        assert len(held_out) == kept.reserved_counts[client] == size - len(train)
        assert held_out <= rows_of(kept.validation)
        assert kept.histogram(client).tolist() == np.bincount(kept.train_samples(client).y, minlength=3).tolist()
    assert len(kept.validation.y) == kept.reserved_counts.sum()


def test_counts_are_the_share_rounded_up_or_down(plain, kept):
    assert kept.reserved_counts[[0, 3]].tolist() == [3, 12]
    assert kept.reserved_counts[[1, 2]].tolist() == [0, 0]  # a single sample stays for training
    assert kept.reserved_counts[4] in (1, 2)
    assert kept.reserved_counts[5] in (0, 1)
    many = FederationWithValidationSamples(make_federation([3] * 400), 0.1, seed=1)
    assert set(many.reserved_counts) == {0, 1}
    assert many.reserved_counts.sum() == pytest.approx(120, abs=30)  # no client has 0.3 of a sample, all together have
    greedy = FederationWithValidationSamples(plain, 0.999, seed=1)
    assert greedy.sample_counts().tolist() == [1, 1, 0, 1, 1, 1]


def test_classes_keep_their_shares():
    labels = np.repeat([0, 1, 2], [30, 20, 10])
    data = Dataset("x", "tabular", np.arange(60.0, dtype=np.float32)[:, None], labels, np.zeros((1, 1)), labels[:1], 3)
    federation = FederationWithValidationSamples(
        ArrayFederation(data, ClientIndices(np.arange(60), np.array([0, 60])), 0), 0.5, 1
    )
    assert federation.histogram(0).tolist() == [15, 10, 5]
    assert np.bincount(federation.validation.y).tolist() == [15, 10, 5]


def test_the_split_depends_on_the_seed_alone(plain, kept):
    again, other = (
        FederationWithValidationSamples(plain, 0.3, seed=4),
        FederationWithValidationSamples(plain, 0.3, seed=5),
    )
    assert torch.equal(again.train_samples(3).x, kept.train_samples(3).x)  # in whatever order clients are asked
    assert torch.equal(again.validation.x, kept.validation.x)
    assert rows_of(other.validation) != rows_of(kept.validation)
    prints = {each.fingerprint() for each in (plain, kept, other, FederationWithValidationSamples(plain, 0.4, seed=4))}
    assert len(prints) == 4
    assert again.fingerprint() == kept.fingerprint()


@pytest.mark.parametrize("shape", [(6,), (6, 2)], ids=["numbers", "several numbers"])
def test_targets_that_are_no_classes_are_drawn_at_random(shape):
    y = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    federation = fr.federate(np.ones((6, 1)), y, np.ones((1, 1)), y[:1], client_ids=np.zeros(6), partition="natural")
    kept = FederationWithValidationSamples(federation, 0.5, seed=1)
    assert len(kept.validation.y) == 3
    assert kept.train_samples(0).y.shape == (3, *shape[1:])


def test_wrappers_around_it_find_it(plain, kept):
    pooled = with_public(PooledFederation(kept), 1, seed=1)
    assert find_wrapper(pooled, FederationWithValidationSamples) is kept
    assert evaluation_samples(pooled, "validation") is kept.validation
    assert evaluation_samples(pooled, "test") is pooled.test
    assert rows_of(pooled.train_samples(0)).isdisjoint(rows_of(kept.validation))
    assert find_wrapper(with_public(plain, 1, seed=1), FederationWithValidationSamples) is None
    assert with_validation(plain, 0.0, 1) is plain


def test_a_share_of_nothing_is_refused():
    message = r"data\.validation: no client of 'toy' can keep 0\.1 of its samples; raise the share, or use fewer"
    with pytest.raises(DataError, match=message):
        FederationWithValidationSamples(make_federation([1, 1, 1, 0]), 0.1, seed=1)


@pytest.mark.parametrize("workers", [1, 2])
def test_rows_have_all_metrics_of_the_validation_samples(toy, linear, workers):
    settings = {"data": toy, "model": linear, "rounds": 2, "batch_size": 2, "validation": 0.4}
    result = fr.run("fedavg", **settings, workers=workers)
    last = result.history[-1]
    measured = [name for name in last if f"validation_{name}" in last]
    assert measured == ["accuracy", "precision", "recall", "f1", "loss"]
    samples = FederationWithValidationSamples(toy, 0.4, seed=1).validation
    outputs = result.load_into(torch.nn.Linear(4, 3))(samples.x).detach()
    right = (outputs.argmax(1) == samples.y).double().mean()
    assert last["validation_accuracy"] == pytest.approx(float(right))
    loss = torch.nn.functional.cross_entropy(outputs, samples.y)
    assert last["validation_loss"] == pytest.approx(float(loss), rel=1e-5)
    assert result.history == fr.run("fedavg", **settings).history


def test_validation_samples_are_not_trained_on(toy, linear):
    settings = {"model": linear, "rounds": 2, "batch_size": 2, "fraction": 1.0, "workers": 1}
    kept = FederationWithValidationSamples(toy, 0.4, seed=1)
    parts = [kept.train_samples(client) for client in range(toy.client_count)]
    owners = np.repeat(np.arange(toy.client_count), [len(part.y) for part in parts])
    x, y = torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])
    rest = fr.federate(x, y, *toy.test, client_ids=owners)
    by_hand, found = fr.run("fedavg", data=rest, **settings), fr.run("fedavg", data=toy, **settings, validation=0.4)
    assert found.weights_sha256 == by_hand.weights_sha256


@pytest.mark.parametrize("method", ["fedavg", "centralized", "shared-raw", "fedstar"])
def test_methods_that_move_samples_leave_validation_samples_alone(toy, linear, method):
    more = {"warmup": {"pretrain": 1}} if method == "shared-raw" else {}
    result = fr.run(method, data=toy, model=linear, rounds=2, batch_size=2, validation=0.4, workers=1, **more)
    assert result.history[-1]["validation_accuracy"] is not None
    assert result.best.round in (1, 2)


def test_a_federation_may_bring_its_validation_samples():
    digits = fr.load_data("digits", clients=10, validation=0.25)
    assert isinstance(digits, FederationWithValidationSamples)
    result = fr.run("fedavg", data=digits, rounds=1, workers=1)
    assert result.experiment.data.validation == 0.25
    assert result.weights_sha256 == fr.run("fedavg", clients=10, rounds=1, workers=1, validation=0.25).weights_sha256
    by_seed = fr.run("fedavg", data=lambda seed: fr.load_data(clients=10, validation=0.25, seed=seed), rounds=1)
    assert by_seed.weights_sha256 == result.weights_sha256
    with pytest.raises(fr.SpecError, match=r"data\.validation: these data already keep 0\.25 .*, got 0\.5"):
        fr.run("fedavg", data=digits, rounds=1, validation=0.5)


@pytest.mark.parametrize("share", [1.0, -0.1, "much", True])
def test_impossible_shares_are_refused(share):
    with pytest.raises(fr.SpecError, match=r"^data\.validation: must"):
        fr.run("fedavg", clients=10, validation=share)


def test_datasets_that_are_read_batch_by_batch_stay_on_disk():
    digits = fr.load_data("digits", clients=4)
    parts = [torch.utils.data.TensorDataset(*digits.train_samples(client)) for client in range(4)]
    lazy = fr.federate_datasets(parts, torch.utils.data.TensorDataset(*digits.test))
    kept = FederationWithValidationSamples(lazy, 0.2, seed=1)
    assert not kept.in_memory
    assert kept.validation.size == kept.reserved_counts.sum()
    wanted = {"model": "mlp", "rounds": 2, "workers": 1, "validation": 0.2, "fraction": 1.0}
    settings = {"hidden": [8], "lanes": 1}
    here, there = (fr.run("fedavg", data=data, **wanted, **settings) for data in (digits, lazy))
    assert here.weights_sha256 == there.weights_sha256
    assert here.history[-1]["validation_accuracy"] == there.history[-1]["validation_accuracy"]
