"""An owner's samples: files, tables, functions, and what is kept apart."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fedrelay.data.samples import called, held, read_samples
from fedrelay.errors import DataError, SpecError


@pytest.fixture
def arrays():
    return {"x": np.arange(40, dtype=np.float32).reshape(20, 2), "y": np.arange(20) % 4}


def test_samples_keep_their_order_and_values(arrays):
    found = held(arrays)
    assert np.array_equal(found.samples(0).x.numpy(), arrays["x"])
    assert np.array_equal(found.samples(0).y.numpy(), arrays["y"])
    assert (found.clients, found.classes, len(found.test.y), found.kind) == (1, 4, 0, "tabular")
    assert held(arrays, classes=7).classes == 7


def test_a_share_is_kept_apart(arrays):
    found = held(arrays, hold_out=0.25)
    assert (found.size(0), len(found.test.y)) == (15, 5)
    both = np.concatenate([found.samples(0).x.numpy(), found.test.x.numpy()])
    assert np.array_equal(both[both[:, 0].argsort()], arrays["x"])


def test_an_archive(arrays, tmp_path):
    np.savez(tmp_path / "own.npz", **arrays, x_test=arrays["x"][:3], y_test=arrays["y"][:3])
    found = held(read_samples(str(tmp_path / "own.npz")))
    assert (found.size(0), len(found.test.y)) == (20, 3)
    with pytest.raises(DataError, match="there are test samples already"):
        held(read_samples(str(tmp_path / "own.npz")), hold_out=0.1)


def test_a_table(tmp_path):
    (tmp_path / "own.csv").write_text("age, sick, weight\n40,1,70.5\n50,0,81\n")
    named = read_samples(str(tmp_path / "own.csv"), "sick")
    assert named["x"].tolist() == [[40, 70.5], [50, 81]]
    assert named["y"].tolist() == [1, 0]
    with pytest.raises(DataError, match="has no column 'ill'; it has age, sick, weight"):
        read_samples(str(tmp_path / "own.csv"), "ill")
    with pytest.raises(DataError, match="'weight' holds labels that are no whole numbers"):
        read_samples(str(tmp_path / "own.csv"))


@pytest.mark.parametrize("text", ["", "a,b\n", "a,b\n1,x\n", "a,b\n1,2,3\n", "a\n1\n"])
def test_what_is_no_table(text, tmp_path):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(DataError, match=r"bad\.csv"):
        read_samples(str(tmp_path / "bad.csv"))


def test_a_function_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = "def load():\n    return [[1.0, 2.0]], [0]\n\ndef broken():\n    raise OSError('no disk')\n"
    code += "\ndef odd():\n    return 3\n"
    (tmp_path / "owner_of_this_test.py").write_text(code)
    assert held(read_samples("owner_of_this_test:load")).size(0) == 1
    with pytest.raises(DataError, match="owner_of_this_test:broken: OSError: no disk"):
        called("owner_of_this_test:broken")
    with pytest.raises(DataError, match=r"must give \(x, y\)"):
        read_samples("owner_of_this_test:odd")
    with pytest.raises(DataError, match="ModuleNotFoundError"):
        read_samples("nobody_has_this:load")


@pytest.mark.parametrize(
    ("source", "label", "error", "message"),
    [
        ("own.txt", None, SpecError, "samples come from a .npz file, a .csv file or MODULE:FUNCTION"),
        ("own.npz", None, DataError, "there is no such file"),
        ("own.csv", None, DataError, "no table"),
        ("own.npz", "sick", SpecError, "--label: names the column"),
    ],
)
def test_sources_that_cannot_be(source, label, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message):
        read_samples(source, label)


def test_no_samples_at_all():
    with pytest.raises(DataError, match="at least one sample"):
        held({"x": np.zeros((0, 4), np.float32), "y": np.zeros(0, np.int64)})
