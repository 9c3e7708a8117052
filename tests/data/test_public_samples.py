from __future__ import annotations

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.data.dataset import Dataset
from fedrelay.data.federation import ArrayFederation
from fedrelay.data.partition import ClientIndices
from fedrelay.data.public_samples import FederationWithPublicSamples, with_public
from fedrelay.errors import DataError


def toy(test_labels, classes=4) -> ArrayFederation:
    """One client, and test samples that are their own numbers."""
    labels = np.asarray(test_labels)
    rows = np.arange(len(labels), dtype=np.float32)[:, None]
    dataset = Dataset("toy", "tabular", rows[:2], labels[:2], rows, labels, classes)
    return ArrayFederation(dataset, ClientIndices(np.arange(2), np.array([0, 2])), seed=0)


def test_public_samples_leave_the_test_set():
    whole = toy([0, 1, 2, 3] * 5)
    parted = FederationWithPublicSamples(whole, per_class=2, seed=1)
    assert parted.public.y.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert len(parted.test.y) == 12
    together = torch.cat([parted.public.x, parted.test.x]).flatten().sort().values
    assert torch.equal(together, whole.test.x.flatten())
    assert torch.equal(whole.test.y[parted.public.x.flatten().long()], parted.public.y)


def test_a_class_keeps_one_of_several_for_the_test():
    parted = FederationWithPublicSamples(toy([0] * 5 + [1] * 2 + [2]), per_class=3, seed=1)
    assert parted.public.y.bincount(minlength=4).tolist() == [3, 1, 1, 0]
    assert parted.test.y.bincount(minlength=4).tolist() == [2, 1, 0, 0]


def test_the_choice_depends_on_the_seed_alone():
    def choice(seed, per_class=2):
        return FederationWithPublicSamples(toy([0, 1] * 20), per_class, seed).public.x.flatten().tolist()

    assert choice(1) == choice(1)
    assert choice(1) != choice(2)


def test_everything_else_is_the_members():
    members = fr.load_data("digits", clients=7)
    parted = fr.load_data("digits", clients=7, public=10)
    assert isinstance(parted, FederationWithPublicSamples)
    for name in ("name", "kind", "client_count", "class_count", "sample_shape"):
        assert getattr(parted, name) == getattr(members, name)
    assert (parted.sample_counts() == members.sample_counts()).all()
    assert (parted.histogram(3) == members.histogram(3)).all()
    assert parted.sample_count(3) == members.sample_count(3)
    assert torch.equal(parted.train_samples(3).x, members.train_samples(3).x)
    assert (len(members.test.y), len(parted.test.y), len(parted.public.y)) == (359, 259, 100)
    assert parted.fingerprint() != members.fingerprint()
    assert parted.fingerprint() != fr.load_data("digits", clients=7, public=9).fingerprint()
    assert with_public(members, 0, 1) is members


def test_something_must_be_left():
    with pytest.raises(DataError, match=r"data.public: 'toy' has only 3 test samples; none would be left"):
        FederationWithPublicSamples(toy([0, 1, 2]), 10, 1)


def test_labels_at_every_position_have_no_exemplars():
    tokens = np.zeros((3, 5), dtype=np.int64)
    own = fr.federate(tokens, tokens, tokens, tokens, clients=1, kind="tokens", partition="iid")
    with pytest.raises(DataError, match="needs one label per sample; 'own data' has one label per position"):
        with_public(own, 10, 1)


def test_own_data_get_a_public_set_too():
    own = fr.load_data("digits", clients=6, alpha=0)
    conf = {"grouping.assign": "icg", "grouping.profile": "conf", "grouping.epochs": 1}
    result = fr.run("fedseq", data=own, rounds=1, **conf)
    assert result.experiment.data.public == 10
    assert fr.run("fedseq", data=own, rounds=1, public=3, **conf).experiment.data.public == 3
    ready = fr.load_data("digits", clients=6, alpha=0, public=10)
    again = fr.run("fedseq", data=ready, rounds=1, **conf)
    assert again.history == result.history
    with pytest.raises(fr.SpecError, match="these data already have a public set of 10 samples per class, got 3"):
        fr.run("fedseq", data=ready, rounds=1, public=3, **conf)
