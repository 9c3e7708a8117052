from __future__ import annotations

import torch

from fedrelay.data.shared_samples import FederationWithSharedSamples


def test_everybody_holds_what_others_share(toy):
    shared = FederationWithSharedSamples(toy, 0.34, seed=1)
    given = [len(shared.shared_indices(client)) for client in range(6)]
    assert given == [1, 3, 1, 2, 1, 2]  # of 5, 9, 3, 8, 4, 7
    assert shared.sample_counts().tolist() == [
        size + 10 - own for size, own in zip(toy.sample_counts().tolist(), given, strict=True)
    ]
    x, y = shared.train_samples(1)
    assert torch.equal(x[:9], toy.train_samples(1).x)
    assert len(y) == 9 + 10 - 3
    assert shared.histogram(1).sum() == len(y)


def test_the_pool_comes_after_all_clients(toy):
    shared = FederationWithSharedSamples(toy, 0.34, seed=1)
    assert shared.client_count == 6
    assert shared.sample_count(6) == 10
    assert torch.equal(shared.train_samples(6).y[:1], toy.train_samples(0).y[shared.shared_indices(0)])


def test_sharing_everything_makes_all_alike(toy):
    shared = FederationWithSharedSamples(toy, 1.0, seed=1)
    assert {shared.sample_count(client) for client in range(7)} == {36}
    assert [shared.histogram(client).tolist() for client in range(6)] == [shared.histogram(0).tolist()] * 6


def test_the_choice_depends_on_the_seed(toy):
    one, two = (FederationWithSharedSamples(toy, 0.5, seed=seed) for seed in (1, 2))
    assert one.fingerprint() != two.fingerprint() != toy.fingerprint()
    assert any(one.shared_indices(client).tolist() != two.shared_indices(client).tolist() for client in range(6))
