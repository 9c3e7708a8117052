import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedrelay as fr
from fedrelay.data.registry import load_dataset
from fedrelay.errors import DataError


def table(rows: int) -> np.ndarray:
    return np.arange(rows * 3, dtype=np.float64).reshape(rows, 3)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "mine.npz"


def save(path: Path, **changes: Any) -> None:
    """An archive of four train and two test rows, with these arrays changed; None leaves one out."""
    arrays = {"x_train": table(4), "y_train": [0, 2, 1, 0], "x_test": table(2), "y_test": [0, 1]} | changes
    np.savez_compressed(path, **{key: array for key, array in arrays.items() if array is not None})


def test_a_table_is_taken_as_it_is(path: Path) -> None:
    save(path, client_train=np.array(["bern", "aarau", "bern", "chur"]))
    data = load_dataset("npz", path)
    assert (data.name, data.kind, data.classes, data.shape) == ("mine", "tabular", 3, (3,))
    assert data.x_train.dtype == np.float32
    assert data.x_train.tolist() == table(4).tolist()
    assert data.y_train.tolist() == [0, 2, 1, 0]
    assert data.y_test.dtype == np.int64
    assert data.scaling is None
    assert data.client_train is not None
    assert data.client_train.tolist() == [1, 0, 1, 2]


def test_8_bit_images_are_scaled_like_all_others(path: Path) -> None:
    images = np.arange(4 * 5 * 6 * 3, dtype=np.uint8).reshape(4, 5, 6, 3)
    save(path, x_train=images, x_test=images[:2])
    data = load_dataset("npz", path)
    assert (data.kind, data.shape, data.x_train.dtype) == ("image", (3, 5, 6), np.uint8)
    assert data.scaling is not None
    assert data.scaling.shift == pytest.approx(tuple(images.mean(axis=(0, 1, 2))))
    assert data.client_train is None


def test_float_images_are_taken_as_they_are(path: Path) -> None:
    images = np.linspace(0, 1, 4 * 5 * 6).reshape(4, 5, 6)
    save(path, x_train=images, x_test=images[:2], y_train=[[0], [1], [0], [0]])
    data = load_dataset("npz", path)
    assert (data.kind, data.shape, data.x_train.dtype, data.scaling) == ("image", (1, 5, 6), np.float32, None)
    assert data.y_train.tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"x_test": None, "extra": [1]},
            r"is missing the arrays \['x_test'\]; it has \['extra', 'x_train', 'y_",
        ),
        ({"y_train": [0, 1]}, "has 2 labels for 4 samples"),
        ({"y_train": [0, 1, -1, 0]}, "has the label -1"),
        (
            {"y_train": [0.5, 1, 1, 0]},
            r"y_train and y_test must be of the same kind, got float32 \[4\] and int64 \[2\]",
        ),
        (
            {"y_train": [0.0, 1, 1, 0]},
            "y_train: are float64 but whole numbers: convert class labels to integers, or set",
        ),
        ({"y_train": ["a", "b", "b", "a"]}, "y_train: must be labels"),
        ({"y_train": np.zeros((4, 2, 2), int)}, r"y_train: labels must have shape \[4\] or \[4, 3\], got \[4, 2, 2\]"),
        ({"x_test": table(2)[:, :2]}, r"train samples have shape \(3,\), test samples \(2,\)"),
        ({"x_test": table(2).astype(np.uint8)}, "train samples are float64, test samples uint8"),
        ({"x_train": table(4) * np.nan}, "has samples that are not finite"),
        ({"x_train": table(4) * 1e300}, "has samples that are not finite"),
        ({"x_train": np.zeros(4)}, r"x_train is float64 of shape \(4,\)"),
        ({"x_train": np.full((4, 3), "a")}, "x_train is <U1"),
        ({"x_train": table(0), "y_train": np.zeros(0, int)}, "has no samples"),
        ({"client_train": [0, 1]}, r"its client ids are int64 of shape \(2,\), not .* 4 samples"),
        ({"client_train": [0.5] * 4}, "its client ids are float64"),
    ],
)
def test_arrays_that_do_not_fit(path: Path, changes: dict[str, Any], complaint: str) -> None:
    save(path, **changes)
    with pytest.raises(DataError, match=f"mine.npz: {complaint}"):
        load_dataset("npz", path)


IMAGES, VOLUMES = np.zeros((6, 5, 5), np.float32), np.zeros((6, 1, 2, 3, 4), np.float32)


@pytest.mark.parametrize(
    ("x", "y", "task", "expected"),
    [
        (table(6), np.linspace(0, 1, 6), None, ("tabular", "regression", 0, "f", (6,))),
        (table(6), np.arange(6), "regression", ("tabular", "regression", 0, "f", (6,))),
        (table(6), np.ones((6, 2)) / 3, None, ("tabular", "regression", 0, "f", (6, 2))),
        (table(6), np.eye(6, 3, dtype=int), None, ("tabular", "multilabel", 0, "f", (6, 3))),
        (IMAGES, np.eye(6, 3, dtype=bool), "multilabel", ("image", "multilabel", 0, "f", (6, 3))),
        (IMAGES, np.ones((6, 5, 5), np.uint8), None, ("image", "segmentation", 2, "i", (6, 5, 5))),
        (IMAGES.astype(np.uint8), np.full((6, 5, 5), -100) + 100, None, ("image", "segmentation", 1, "i", (6, 5, 5))),
        (VOLUMES, np.arange(6) % 2, "binary", ("volume", "classification", 2, "i", (6,))),
        (VOLUMES, np.ones((6, 2, 3, 4), int), None, ("volume", "segmentation", 2, "i", (6, 2, 3, 4))),
        (np.ones((6, 4), int), np.ones((6, 4), int), "language-model", ("tokens", "classification", 2, "i", (6, 4))),
    ],
)
def test_targets_of_every_task(path: Path, x: Any, y: Any, task: str | None, expected: tuple[Any, ...]) -> None:
    save(path, x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    data = load_dataset(str(path), task=task)
    assert (data.kind, data.task, data.classes, data.y_train.dtype.kind, data.y_train.shape) == expected
    np.testing.assert_array_equal(data.y_test, np.asarray(y[:2]).astype(data.y_test.dtype))
    assert (data.scaling is not None) == (x.dtype == np.uint8)


def test_a_regression_runs_from_a_file(path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 3))
    save(path, x_train=x[:30], y_train=np.arange(30), x_test=x[30:], y_test=np.arange(10))
    result = fr.run("fedavg", data=str(path), task="regression", clients=2, rounds=1, lr=1e-4, workers=1)
    assert result.metric == "rmse"


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def test_pickled_objects_are_refused_and_do_not_run(path: Path, tmp_path: Path) -> None:
    save(path, x_train=np.array([Trap(tmp_path / "sprung")], dtype=object))
    with pytest.raises(DataError, match="stores x_train as Python objects, which is not safe to read"):
        load_dataset("npz", path)
    assert not (tmp_path / "sprung").exists()


def rewrite(path: Path, key: str, content: bytes) -> None:
    """Replace one member of the archive."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, old in members.items():
            archive.writestr(name, content if name == f"{key}.npy" else old)


def npy(shape: str, version: tuple[int, int] = (1, 0)) -> bytes:
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H", len(header)) + header + bytes(12)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (npy("(99999999999, 99999999)"), "the header of x_train claims 9,999,999,899,900,000,001 bytes"),
        (npy("(3, 9)"), "the header of x_train claims 27 bytes, more than the file can contain"),
        (npy("(3, 4)", (9, 0)), r"the array x_train is damaged|unknown format version \(9, 0\)"),
        (npy("(3, -4)"), "damaged|holds"),
        (npy("'many'"), "the array x_train is damaged"),
        (b"\x93NUMPX" + npy("(3, 4)")[6:], "the array x_train is damaged"),
        (b"", "the array x_train is damaged"),
    ],
)
def test_damaged_arrays(path: Path, content: bytes, complaint: str) -> None:
    save(path)
    rewrite(path, "x_train", content)
    with pytest.raises(DataError, match=f"mine.npz: .*({complaint})"):
        load_dataset("npz", path)


def test_what_is_no_archive_is_refused(path: Path) -> None:
    path.write_bytes(b"PK nothing of the kind")
    with pytest.raises(DataError, match=r"mine\.npz: is not a readable NumPy archive"):
        load_dataset("npz", path)


def test_a_truncated_archive_is_refused(path: Path) -> None:
    save(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"mine\.npz: is not a readable NumPy archive"):
        load_dataset("npz", path)


def test_flipped_bits_are_noticed(path: Path) -> None:
    save(path)
    buffer = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        start = archive.getinfo("x_train.npy").header_offset
    buffer.seek(start + 60)
    buffer.write(b"\xff\x00\xff")
    path.write_bytes(buffer.getvalue())
    with pytest.raises(DataError, match=r"mine\.npz: "):
        load_dataset("npz", path)
