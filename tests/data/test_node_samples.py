"""An owner's samples: files, functions, and what is kept apart."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from fedrelay.data.node_samples import open_owner_data, open_test_samples, owner_federation
from fedrelay.errors import DataError, SpecError
from fedrelay.user_code import call_function


@pytest.fixture
def arrays():
    return {"x": np.arange(40, dtype=np.float32).reshape(20, 2), "y": np.arange(20) % 4}


def test_samples_keep_their_order_and_values(arrays):
    found = owner_federation(arrays)
    assert np.array_equal(found.train_samples(0).x.numpy(), arrays["x"])
    assert np.array_equal(found.train_samples(0).y.numpy(), arrays["y"])
    assert (found.client_count, found.class_count, len(found.test.y), found.kind) == (1, 4, 0, "tabular")
    assert owner_federation(arrays, classes=7).class_count == 7


def test_a_share_is_kept_apart(arrays):
    found = owner_federation(arrays, hold_out=0.25)
    assert (found.sample_count(0), len(found.test.y)) == (15, 5)
    both = np.concatenate([found.train_samples(0).x.numpy(), found.test.x.numpy()])
    assert np.array_equal(both[both[:, 0].argsort()], arrays["x"])


def test_a_share_of_every_class_is_kept_apart():
    labels = np.repeat([0, 1], [95, 5])
    found = owner_federation({"x": np.zeros((100, 1), np.float32), "y": labels}, hold_out=0.2)
    assert np.bincount(found.test.y.numpy()).tolist() == [19, 1]
    assert np.bincount(found.train_samples(0).y.numpy()).tolist() == [76, 4]


def test_an_archive(arrays, tmp_path):
    np.savez(tmp_path / "own.npz", **arrays, x_test=arrays["x"][:3], y_test=arrays["y"][:3])
    found = open_owner_data(str(tmp_path / "own.npz"))
    assert (found.sample_count(0), len(found.test.y)) == (20, 3)
    with pytest.raises(DataError, match="there are test samples already"):
        open_owner_data(str(tmp_path / "own.npz"), hold_out=0.1)
    assert open_test_samples(str(tmp_path / "own.npz"), None).size == 3
    np.savez(tmp_path / "all.npz", **arrays)
    assert open_test_samples(str(tmp_path / "all.npz"), None).size == 20


def test_a_function_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = "def load():\n    return [[1.0, 2.0]], [0]\n\ndef broken():\n    raise OSError('no disk')\n"
    code += "\ndef odd():\n    return 3\n"
    (tmp_path / "owner_of_this_test.py").write_text(code)
    assert open_owner_data("owner_of_this_test:load").sample_count(0) == 1
    with pytest.raises(DataError, match="owner_of_this_test:broken: OSError: no disk"):
        call_function("owner_of_this_test:broken", failure=DataError)
    with pytest.raises(DataError, match=r"must return \(x, y\)"):
        open_owner_data("owner_of_this_test:odd")
    with pytest.raises(DataError, match="ModuleNotFoundError"):
        open_owner_data("nobody_has_this:load")


@pytest.mark.parametrize(
    ("source", "error", "message"),
    [
        ("own.txt", SpecError, "must be a .npz file, a .csv or .parquet table, or MODULE:FUNCTION"),
        ("own.npz", DataError, "file not found"),
    ],
)
def test_sources_that_cannot_be(source, error, message, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(error, match=message):
        open_owner_data(source)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.array([[0.0, 1], [2, np.nan]])}, r"x\[1, 1\]: nan is not a finite number"),
        ({"x_test": np.array([[np.inf, 1]]), "y_test": np.array([0])}, r"x_test\[0, 0\]: inf is not a finite number"),
        ({"y": np.array([0, -1])}, r"y\[1\]: -1 is not a label; labels are 0, 1, … 99,999"),
        ({"y": np.array([0, 2**40])}, r"y\[1\]: 1099511627776 is not a label"),
        ({"y": np.array([2**63, 0], dtype=np.uint64)}, r"y\[0\]: 9223372036854775808 is not a label"),
        ({"y": np.array([0.0, 1.0])}, "y: are float64 but whole numbers"),
        ({"y": np.array(["ill", "well"])}, "y: must be labels .whole numbers. or numbers, got <U4"),
        ({"x": np.array([["a", "b"], ["c", "d"]])}, "must be numbers"),
        ({"y": np.array([0, 1, 0])}, "needs a target for each of 2 samples, got 3"),
    ],
)
def test_values_that_cannot_be_are_named_with_their_place(changes, message):
    with pytest.raises(DataError, match=message):
        owner_federation({"x": np.array([[0.0, 1], [2, 3]]), "y": np.array([0, 1]), **changes})


def test_labels_at_every_position_may_be_ignored():
    tokens = np.array([[1, 2], [3, 4]])
    assert owner_federation({"x": tokens, "y": np.array([[2, -100], [4, -100]])}).class_count == 5
    with pytest.raises(DataError, match=r"y\[0, 1\]: -1 is not a label"):
        owner_federation({"x": tokens, "y": np.array([[2, -1], [4, -100]])})


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan"), float("inf")])
def test_shares_that_are_none(share, arrays):
    with pytest.raises(SpecError, match="--holdout: must be at least 0 and less than 1"):
        owner_federation(arrays, hold_out=share)


def test_no_samples_at_all():
    with pytest.raises(DataError, match="at least one sample"):
        owner_federation({"x": np.zeros((0, 4), np.float32), "y": np.zeros(0, np.int64)})


SCANS = """
import torch
from torch.utils.data import StackDataset, TensorDataset

whole = TensorDataset(torch.arange(24.0).view(8, 3), torch.arange(8) % 2)
scans, pair, odd = lambda: whole, lambda: (whole, TensorDataset(*whole[:2])), lambda: TensorDataset(torch.zeros(2, 2))

def several():
    x, y = whole.tensors
    return StackDataset(StackDataset(x, x), y)
"""


@pytest.fixture
def own_scans(tmp_path, monkeypatch):
    (tmp_path / "own_scans.py").write_text(SCANS)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_dataset_is_read_as_it_is_trained(own_scans):
    found = open_owner_data("own_scans:scans")
    assert not found.in_memory
    assert (found.sample_count(0), found.test.size, found.class_count, found.sample_shape) == (8, 0, 2, (3,))
    assert open_owner_data("own_scans:pair", classes=5).test.size == 2
    half = open_owner_data("own_scans:scans", hold_out=0.5)
    x, y = (torch.cat(parts) for parts in zip(half.train_samples(0).load(), half.test.load(), strict=True))
    assert (half.sample_count(0), half.test.size, sorted(x[:, 0].tolist())) == (4, 4, [0, 3, 6, 9, 12, 15, 18, 21])
    assert (x[:, 0] / 3 % 2).tolist() == y.tolist()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("own_scans:odd", {}, r"a batch must be a pair \(inputs, targets\)"),
        ("own_scans:pair", {"hold_out": 0.5}, "--holdout: has no effect, because there are test samples"),
        ("own_scans:scans", {"classes": 1}, "labels must be 0, 1, … 0"),
    ],
)
def test_a_dataset_that_cannot_be_used(source, options, message, own_scans):
    with pytest.raises(DataError, match=message):
        open_owner_data(source, **options).train_samples(0).load()


def test_a_sample_may_have_several_inputs(own_scans):
    found = open_owner_data("own_scans:several", hold_out=0.25, classes=2)
    assert (found.kind, found.sample_shape, found.sample_count(0)) == ("multi-input", ((3,), (3,)), 6)


def test_the_servers_test_samples_may_be_a_dataset(own_scans):
    assert open_test_samples("own_scans:scans", 2).load().x.equal(torch.arange(24.0).view(8, 3))
    assert open_test_samples("own_scans:pair", 2).size == 2
    with pytest.raises(DataError, match="labels must be 0, 1, … 0"):
        open_test_samples("own_scans:scans", 1).load()
