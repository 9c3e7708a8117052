from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.data.dataset import IGNORED_LABEL, Dataset, Scaling
from fedrelay.data.domain_shift import apply_shift
from fedrelay.data.federation import (
    ArrayFederation,
    build_federation,
    default_partition,
    federate,
)
from fedrelay.data.partition import ClientIndices
from fedrelay.data.pooled_federation import PooledFederation
from fedrelay.data.registry import load_dataset
from fedrelay.errors import DataError, SpecError
from fedrelay.rng import generator

rng = np.random.default_rng(0)


DATASET = torch.utils.data.TensorDataset(torch.zeros(4, 3), torch.zeros(4))


def frozen(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array that refuses to be written to, as shared data must never be."""
    array.setflags(write=False)
    return array


IMAGES = Dataset(
    name="dots",
    kind="image",
    x_train=frozen(rng.integers(0, 256, (12, 2, 4, 4), dtype=np.uint8)),
    y_train=frozen(np.arange(12) % 3),
    x_test=frozen(rng.integers(0, 256, (8, 2, 4, 4), dtype=np.uint8)),
    y_test=frozen(np.arange(8) % 3),
    classes=3,
    scaling=Scaling((10.0, 20.0), (0.5, 0.25)),
)
TOKENS = Dataset(
    name="words",
    kind="tokens",
    x_train=frozen(rng.integers(0, 9, (6, 5), dtype=np.uint8)),
    y_train=frozen(np.where(np.arange(30) % 4 == 0, IGNORED_LABEL, np.arange(30) % 9).reshape(6, 5)),
    x_test=frozen(rng.integers(0, 9, (3, 5), dtype=np.uint8)),
    y_test=frozen(rng.integers(0, 9, (3, 5))),
    classes=9,
    client_train=frozen(np.array([0, 1, 1, 2, 0, 2])),
)
THREE = ClientIndices(frozen(np.array([0, 5, 7, 1, 2, 3, 4, 6, 8, 9, 10, 11])), frozen(np.array([0, 3, 3, 12])))


class TestArrayFederation:
    federation = ArrayFederation(IMAGES, THREE, seed=1)

    def test_facts(self) -> None:
        federation = self.federation
        assert (federation.name, federation.kind, federation.client_count, federation.class_count) == (
            "dots",
            "image",
            3,
            3,
        )
        assert federation.sample_shape == (2, 4, 4)
        assert (
            federation.sample_counts().tolist() == [3, 0, 9] == [federation.sample_count(client) for client in range(3)]
        )
        assert [federation.histogram(client).tolist() for client in range(3)] == [
            [1, 1, 1],
            [0, 0, 0],
            [3, 3, 3],
        ]

    def test_samples_are_scaled_per_channel(self) -> None:
        x, y = self.federation.train_samples(0)
        raw = IMAGES.x_train[[0, 5, 7]].astype(np.float32)
        expected = np.stack([(raw[:, 0] - 10) * 0.5, (raw[:, 1] - 20) * 0.25], axis=1)
        assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
        assert x.is_contiguous()
        np.testing.assert_array_equal(x.numpy(), expected)
        assert y.tolist() == [0, 2, 1]

    def test_a_client_without_samples(self) -> None:
        x, y = self.federation.train_samples(1)
        assert x.shape == (0, 2, 4, 4)
        assert y.shape == (0,)

    def test_small_data_are_converted_once_and_large_data_at_every_hop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        once, again = self.federation.train_samples(2), self.federation.train_samples(2)
        assert once.x.data_ptr() == again.x.data_ptr()
        monkeypatch.setattr("fedrelay.data.federation._CONVERTED_BYTES", 0)
        large = replace(self.federation)
        afresh, anew = large.train_samples(2), large.train_samples(2)
        assert afresh.x.data_ptr() != anew.x.data_ptr()
        assert torch.equal(once.x, afresh.x)
        assert once.y.tolist() == afresh.y.tolist() == [1, 2, 0, 1, 0, 2, 0, 1, 2]

    def test_test_set_is_converted_once(self) -> None:
        assert self.federation.test is self.federation.test
        assert self.federation.test.x.shape == (8, 2, 4, 4)
        assert float(self.federation.test.x[0, 0, 0, 0]) == (float(IMAGES.x_test[0, 0, 0, 0]) - 10) * 0.5

    def test_float_data_are_copied_not_shared(self) -> None:
        data = replace(IMAGES, x_train=IMAGES.x_train.astype(np.float32), x_test=IMAGES.x_test.astype(np.float32))
        federation = ArrayFederation(data, THREE, seed=1)
        assert torch.equal(federation.train_samples(0).x, self.federation.train_samples(0).x)
        assert torch.equal(federation.test.x, self.federation.test.x)
        np.testing.assert_array_equal(data.x_test, IMAGES.x_test)

    def test_tokens(self) -> None:
        federation = build_federation(TOKENS)
        x, y = federation.train_samples(1)
        assert (x.dtype, y.dtype) == (torch.int64, torch.int64)
        assert x.tolist() == TOKENS.x_train[[1, 2]].tolist()
        counted = TOKENS.y_train[[1, 2]].ravel()
        assert federation.histogram(1).tolist() == np.bincount(counted[counted >= 0], minlength=9).tolist()
        assert federation.histogram(1).sum() == 8

    def test_no_such_client(self) -> None:
        with pytest.raises(IndexError, match="client 3 does not exist; clients are 0 to 2"):
            self.federation.train_samples(3)


class TestShifts:
    federation = ArrayFederation(IMAGES, THREE, seed=4, shifts=("inversion", "rotation", "noise"))
    values = (float(IMAGES.x_train.min()), float(IMAGES.x_train.max()))

    def expected(self, name: str, client: int) -> torch.Tensor:
        raw = torch.from_numpy(IMAGES.x_train[THREE.of(client)].astype(np.float32))
        shifted = apply_shift(name, raw, generator(4, "shift", client), values=self.values)
        return (shifted - torch.tensor([10.0, 20.0]).view(2, 1, 1)) * torch.tensor([0.5, 0.25]).view(2, 1, 1)

    def test_clients_take_turns(self) -> None:
        torch.testing.assert_close(self.federation.train_samples(0).x, self.expected("inversion", 0))
        assert self.federation.train_samples(1).x.shape == (0, 2, 4, 4)
        torch.testing.assert_close(self.federation.train_samples(2).x, self.expected("noise", 2))

    def test_every_hop_sees_the_same_noise(self) -> None:
        assert torch.equal(self.federation.train_samples(2).x, self.federation.train_samples(2).x)

    def test_test_set_is_plain_by_default(self) -> None:
        plain = ArrayFederation(IMAGES, THREE, seed=4).test.x
        assert torch.equal(self.federation.test.x, plain)
        mixed = replace(self.federation, test_shifts=("none", "inversion")).test.x
        untouched = (mixed == plain).flatten(1).all(dim=1)
        assert int(untouched.sum()) == 4

    def test_only_images(self) -> None:
        with pytest.raises(SpecError, match="these samples are tokens"):
            build_federation(TOKENS, shifts=["rotation"])
        assert build_federation(TOKENS, shifts=["none"]).train_samples(0).x.tolist() == TOKENS.x_train[[0, 4]].tolist()
        with pytest.raises(SpecError, match="unknown shift 'rotate'"):
            build_federation(IMAGES, clients=2, test_shifts=["rotate"])


class TestFingerprint:
    base = ArrayFederation(IMAGES, THREE, seed=1)

    def test_equal_data_are_equal(self) -> None:
        copy = replace(IMAGES, x_train=IMAGES.x_train.copy(), y_test=IMAGES.y_test.copy())
        assert ArrayFederation(copy, THREE, seed=1).fingerprint() == self.base.fingerprint()
        assert len(self.base.fingerprint()) == 64
        assert replace(self.base, seed=2).fingerprint() == self.base.fingerprint()

    @pytest.mark.parametrize("field", ["x_train", "y_train", "x_test", "y_test"])
    def test_any_array_counts(self, field: str) -> None:
        changed = getattr(IMAGES, field).copy()
        changed.flat[-1] += 1
        assert replace(self.base, dataset=replace(IMAGES, **{field: changed})).fingerprint() != self.base.fingerprint()

    def test_samples_scaling_and_shifts_count(self) -> None:
        others = [
            replace(self.base, client_indices=ClientIndices(THREE.indices, np.array([0, 2, 3, 12]))),
            replace(self.base, dataset=replace(IMAGES, scaling=None)),
            replace(self.base, shifts=("noise",)),
            replace(self.base, shifts=("noise",), seed=2),
            replace(self.base, test_shifts=("noise",)),
            PooledFederation(self.base),
        ]
        assert len({federation.fingerprint() for federation in [self.base, *others]}) == 7


def test_pooled() -> None:
    members = ArrayFederation(IMAGES, THREE, seed=4, shifts=("none", "none", "noise"))
    pooled = PooledFederation(members)
    assert (pooled.name, pooled.kind, pooled.client_count, pooled.class_count) == ("dots", "image", 1, 3)
    assert pooled.sample_shape == (2, 4, 4)
    assert pooled.sample_count(0) == 12
    assert pooled.sample_counts().tolist() == [12]
    assert pooled.histogram(0).tolist() == [4, 4, 4]
    assert pooled.test is members.test
    x, y = pooled.train_samples(0)
    assert torch.equal(x, torch.cat([members.train_samples(client).x for client in range(3)]))
    assert y.tolist() == IMAGES.y_train[THREE.indices].tolist()
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)


class TestBuildFederation:
    HELD = replace(IMAGES, client_train=np.array([5, 5, 5, 8, 8, 8, 8, 9, 9, 9, 9, 9]))

    def test_natural_unless_something_else_is_asked_for(self) -> None:
        assert default_partition(self.HELD, None, None) == "natural"
        assert default_partition(self.HELD, 2, None) == "natural"
        assert default_partition(self.HELD, 4, None) == "dirichlet"
        assert default_partition(self.HELD, None, 0.5) == "dirichlet"
        assert default_partition(IMAGES, None, None) == "dirichlet"

    def test_number_of_clients(self) -> None:
        assert build_federation(self.HELD).sample_counts().tolist() == [3, 4, 5]
        assert build_federation(self.HELD, clients=4).sample_counts().tolist() == [3, 3, 3, 3]
        with pytest.raises(DataError, match="12 samples are too few for 100 clients"):
            build_federation(IMAGES)
        with pytest.raises(DataError, match="3 natural clients are too few for 4 clients"):
            build_federation(self.HELD, clients=4, partition="natural")

    def test_settings_reach_their_rule(self) -> None:
        assert build_federation(
            IMAGES, clients=2, partition="shards", shards_per_client=1, shard_size=3
        ).sample_counts().tolist() == [3, 3]
        assert (
            build_federation(IMAGES, clients=4, partition="dirichlet-class", alpha=0.1, min_samples=3)
            .sample_counts()
            .min()
            == 3
        )
        assert sorted(build_federation(IMAGES, clients=3, partition="quantity", alpha=1e-9).sample_counts()) == [
            1,
            1,
            10,
        ]
        one_class = build_federation(IMAGES, clients=6, alpha=0)
        assert sorted(one_class.histogram(client).max() for client in range(6)) == [2] * 6

    def test_seed_decides(self) -> None:
        prints = [build_federation(IMAGES, clients=3, partition="iid", seed=seed).fingerprint() for seed in (1, 1, 2)]
        assert prints[0] == prints[1] != prints[2]

    def test_labels_at_every_position(self) -> None:
        assert build_federation(TOKENS, clients=2, partition="iid").sample_counts().tolist() == [3, 3]
        with pytest.raises(SpecError, match="use one of: iid, natural, quantity"):
            build_federation(TOKENS, clients=2, partition="dirichlet", alpha=0.5)

    @pytest.mark.parametrize("partition", [None, "iid", "shards"])
    def test_alpha_without_class_labels_is_refused(self, partition: str | None) -> None:
        numbers = replace(TOKENS, y_train=np.linspace(0, 1, 6, dtype=np.float32), classes=0, task="regression")
        problem = "^alpha: has no effect without one class label per sample; leave it out, or set partition='quantity'"
        with pytest.raises(SpecError, match=problem):
            build_federation(numbers, clients=2, partition=partition, alpha=0.5)
        assert build_federation(numbers, clients=2, partition="quantity", alpha=0.5).client_count == 2
        with pytest.raises(SpecError, match=r"'dirichlet' needs class labels, .* numbers; use one of: .*, shards"):
            build_federation(numbers, clients=2, partition="dirichlet", alpha=0.5)

    @pytest.mark.skipif("FEDRELAY_DATA" not in os.environ, reason="FEDRELAY_DATA is not set")
    def test_femnist_by_writer(self) -> None:
        try:
            federation = build_federation(load_dataset("femnist"))
        except DataError as error:
            pytest.skip(str(error))
        assert federation.client_count == 291
        assert federation.sample_counts().sum() == 41_124
        assert (federation.sample_counts().min(), federation.sample_counts().max()) == (23, 319)


class TestFederate:
    X = rng.normal(size=(20, 3))
    Y = np.arange(20) % 4
    X_TEST = rng.normal(size=(6, 3))
    Y_TEST = np.arange(6) % 4

    def arguments(self, **changed: Any) -> dict[str, Any]:
        arrays = {"x": self.X, "y": self.Y, "x_test": self.X_TEST, "y_test": self.Y_TEST}
        return {**arrays, "clients": 2, "partition": "iid", **changed}

    def test_arrays_and_tensors_are_the_same(self) -> None:
        arrays = federate(**self.arguments())
        tensors = federate(
            torch.from_numpy(self.X).double(),
            torch.from_numpy(self.Y).int(),
            torch.from_numpy(self.X_TEST),
            torch.from_numpy(self.Y_TEST),
            clients=2,
            partition="iid",
        )
        assert arrays.fingerprint() == tensors.fingerprint()
        assert (arrays.kind, arrays.client_count, arrays.class_count, arrays.sample_shape) == ("tabular", 2, 4, (3,))
        held = arrays.client_indices.of(1)
        np.testing.assert_array_equal(arrays.train_samples(1).x.numpy(), self.X[held].astype(np.float32))
        assert arrays.train_samples(1).y.tolist() == self.Y[held].tolist()

    def test_kinds(self) -> None:
        pixels = rng.integers(0, 256, (20, 1, 4, 4), dtype=np.uint8)
        images = federate(**self.arguments(x=pixels, x_test=pixels[:6]))
        assert images.kind == "image"
        np.testing.assert_allclose(images.test.x, pixels[:6] / np.float32(255), rtol=1e-6)
        floats = pixels.astype(np.float16)
        assert torch.equal(
            federate(**self.arguments(x=floats, x_test=floats) | {"y_test": self.Y}).test.x,
            torch.from_numpy(floats).float(),
        )
        whole = pixels.reshape(20, 16)
        assert federate(**self.arguments(x=whole, x_test=whole[:6])).kind == "tokens"
        table = federate(**self.arguments(x=whole, x_test=whole[:6], kind="tabular"))
        assert table.train_samples(0).x.dtype == torch.float32
        assert float(table.train_samples(0).x.max()) > 1

    def test_sequences(self) -> None:
        x, y = rng.integers(0, 5, (20, 7)), rng.integers(0, 5, (20, 7))
        y[0, 0] = IGNORED_LABEL
        federation = federate(x, y, x, y, clients=4, partition="iid")
        assert federation.train_samples(0).y.shape == (5, 7)
        assert sum(federation.histogram(client).sum() for client in range(4)) == 139

    def test_client_ids_of_any_type(self) -> None:
        names = np.array(["ann", "bob", "cleo", "ann", "bob"] * 4)
        federation = federate(self.X, self.Y, self.X_TEST, self.Y_TEST, client_ids=names)
        assert federation.sample_counts().tolist() == [8, 8, 4]
        assert federation.client_indices.of(2).tolist() == [2, 7, 12, 17]

    def test_more_classes_than_occur(self) -> None:
        assert federate(**self.arguments(classes=7, y_test=np.full(6, 6))).class_count == 7

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"y": Y[:-1]}, "^y: needs a target for each of 20 samples, got 19"),
            ({"y": np.eye(4)[Y].astype(int) * 2}, "^y: several labels per sample must be 0 or 1"),
            ({"y": Y.astype(float)}, "^y: are float64 but whole numbers: convert class labels to integers"),
            ({"y": Y - 1}, "^y: labels must be integers 0, 1, …, got -1"),
            ({"y_test": Y_TEST + 4}, "^y_test: the largest label is 7, but there are 4 classes"),
            ({"classes": 3}, "^y: the largest label is 3, but there are 3 classes"),
            ({"x": np.where(X > 1, np.nan, X)}, r"^x: \d+ of 60 values are not finite"),
            ({"x_test": X_TEST * 1e300}, "^x_test: 18 of 18 values are not finite float32"),
            (
                {"y": Y * 1e39, "task": "regression"},
                r"^y: .* are not finite float32 numbers; numbers beyond 3",
            ),
            ({"x_test": X_TEST[:, :2]}, r"^x and x_test: samples must have the same shape, got \(3,\) and \(2,\)"),
            ({"x": X[:, 0]}, "^x: must have at least one sample with at least one value"),
            ({"x_test": X_TEST[:0]}, "^x_test: must have at least one sample"),
            ({"x": X.astype(str)}, "^x: must be numbers, got <U"),
            ({"x": [[1.0, 2.0], [1.0]]}, "^x: must be an array; its rows differ in length"),
            (
                {"x": X[:, None, None, None, None], "x_test": X_TEST[:, None, None, None, None]},
                r"^x: must have shape \[n, values\] or \[n, channels, …\]",
            ),
            ({"x": np.zeros((20, 8, 3, 3)), "x_test": np.zeros((6, 8, 3, 3))}, "has its channels last"),
            ({"y_test": None}, "^y_test: is missing; fr.federate needs x, y, x_test and y_test"),
            *(
                ({"x": each, "y": None, "x_test": None, "y_test": None}, "for data sets of PyTorch use fr.federate_dat")
                for each in (DATASET, [DATASET], {"a": DATASET}, torch.utils.data.DataLoader(DATASET))
            ),
            ({"kind": "tokens"}, r"^x: float32 of shape \[20, 3\] can be tabular, not 'tokens'"),
            (
                {"x": X.astype(int) - 9, "x_test": X_TEST.astype(int)},
                "^x: tokens must be integers 0, 1, …, got -",
            ),
            ({"client_ids": [1, 2]}, r"^client_ids: must have one entry for each of 20 samples, got shape \[2\]"),
        ],
    )
    def test_bad_data_are_named(self, changed: dict[str, Any], message: str) -> None:
        with pytest.raises(DataError, match=message):
            federate(**self.arguments(**changed))

    def test_all_labels_ignored(self) -> None:
        tokens = np.zeros((20, 3), dtype=int)
        with pytest.raises(DataError, match=r"^y: the largest label is -100"):
            federate(tokens, np.full((20, 3), IGNORED_LABEL), tokens, tokens, clients=2)


@pytest.mark.parametrize("x", [{"a": np.zeros((6, 2))}, (np.zeros((6, 2)), np.zeros((6, 3)))])
def test_several_inputs_are_for_datasets(x):
    with pytest.raises(
        DataError, match=r"x: must be one array, got a \w+; for several inputs use fr\.federate_datasets"
    ):
        federate(x, np.zeros(6, int), x, np.zeros(6, int))


def test_a_tuple_may_hold_the_rows_of_one_array():
    rows = tuple(np.arange(12.0).reshape(6, 2))
    data = federate(rows, np.arange(6) % 2, rows, np.arange(6) % 2, clients=2, partition="iid")
    assert data.sample_shape == (2,)


@pytest.mark.parametrize(
    ("shape", "kind", "moved"),
    [
        ((8, 7, 3), np.float32, True),
        ((8, 8, 1), np.uint8, True),
        ((8, 8, 4), np.uint8, True),
        ((8, 8, 4), np.float32, False),
        ((3, 8, 8), np.float32, False),
        ((1, 8, 3), np.float32, False),
    ],
)
def test_channels_may_be_last(shape, kind, moved):
    x = np.random.default_rng(0).integers(0, 255, (6, *shape)).astype(kind)
    data = federate(x, np.arange(6) % 2, x, np.arange(6) % 2, clients=1, partition="iid")
    expected = x.transpose(0, 3, 1, 2) if moved else x
    assert np.array_equal(data.dataset.x_train, expected)
    assert data.sample_shape == expected.shape[1:]


def test_three_labels_are_not_binary() -> None:
    x, y = rng.normal(size=(9, 3)), np.arange(9) % 3
    problem = "the largest label is 2, but there are 2 classes of the task binary; for more use task='classification'"
    with pytest.raises(DataError, match=f"^y: {problem}"):
        federate(x, y, x, y, clients=2, partition="iid", task="binary")
    with pytest.raises(DataError, match=r"^classes: the task binary has 2, 0 and 1, got 3"):
        federate(x, y, x, y, clients=2, partition="iid", task="binary", classes=3)
    assert federate(x, y * 0, x, y % 2, clients=2, partition="iid", task="binary").class_count == 2


def test_masks_of_floating_point_numbers_are_refused_with_a_hint() -> None:
    x = rng.normal(size=(4, 1, 5, 5))
    masks = (x[:, 0] > 0).astype(np.float32)
    hint = "for segmentation convert the masks to whole numbers, such as y.astype"
    with pytest.raises(DataError, match=hint):
        federate(x, masks, x, masks, clients=2)
    with pytest.raises(DataError, match=r"got \[4, 5, 5\]$"):
        federate(x, masks / 2, x, masks / 2, clients=2)


def test_the_first_bad_sample_is_named() -> None:
    x, y = np.zeros((4, 2)), np.arange(4) % 2
    x[2, 1], x[3, 0] = np.nan, np.inf
    with pytest.raises(DataError, match=r"^x: 2 of 8 values are not finite float32 numbers, the first in sample 2$"):
        federate(x, y, x[:1], y[:1], clients=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.1}, "alpha: has no effect on clients that the data name"),
        ({"clients": 4}, "clients: the data name 3, got 4"),
    ],
)
def test_named_clients_are_not_ignored(settings, message):
    x, y, owners = np.zeros((12, 2), np.float32), np.arange(12) % 2, ["a", "b", "c"] * 4
    with pytest.raises(SpecError, match=message):
        fr.federate(x, y, x, y, client_ids=owners, **settings)
    with pytest.raises(SpecError, match=message):
        fr.federate_table({"x": x[:, 0], "y": y, "who": owners}, target="y", client="who", test=0.3, **settings)
    anew = fr.federate(x, y, x, y, client_ids=owners, partition="dirichlet", **{"clients": 4, **settings})
    assert anew.client_count == 4
