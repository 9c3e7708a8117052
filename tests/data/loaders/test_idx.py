import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders import idx
from fedrelay.data.registry import DATASETS, load_dataset
from fedrelay.errors import DataError

TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS = idx.FILES


def encode(values: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.tobytes()


def images(count: int) -> np.ndarray:
    return np.arange(count * 6, dtype=np.uint8).reshape(count, 2, 3)


def labels(count: int) -> np.ndarray:
    return (np.arange(count) * 3 % 10).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / TRAIN_IMAGES).write_bytes(encode(images(4)))
    (tmp_path / f"{TRAIN_LABELS}.gz").write_bytes(gzip.compress(encode(labels(4))))
    (tmp_path / f"{TEST_IMAGES}.gz").write_bytes(gzip.compress(encode(images(2))))
    (tmp_path / TEST_LABELS).write_bytes(encode(labels(2)))
    return tmp_path


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_plain_and_compressed_files(folder: Path, name: str) -> None:
    data = load_dataset(name, folder)
    assert (data.name, data.kind, data.classes, data.shape) == (name, "image", 10, (1, 2, 3))
    assert data.x_train.tolist() == images(4)[:, None].tolist()
    assert data.y_train.tolist() == [0, 3, 6, 9]
    assert data.x_test.tolist() == images(2)[:, None].tolist()
    assert data.y_test.tolist() == [0, 3]
    assert data.client_train is None
    assert data.scaling is not None
    assert data.scaling.shift == (11.5,)
    assert data.x_train.flags.writeable
    assert data.x_test.flags.writeable


def test_all_four_files_are_needed(folder: Path) -> None:
    assert DATASETS["mnist"].find(folder) == folder
    (folder / TEST_LABELS).unlink()
    assert DATASETS["mnist"].find(folder) is None
    with pytest.raises(DataError, match=f"{TEST_LABELS}: not found"):
        idx.load(folder, "mnist")


def test_the_writers_of_mnist_are_its_clients(folder: Path) -> None:
    np.savez(folder / idx.WRITERS, train_writer=np.array([300, 7, 300, 12], np.int16))
    clients = load_dataset("mnist", folder).client_train
    assert clients is not None
    assert clients.tolist() == [2, 0, 2, 1]
    assert load_dataset("fashion-mnist", folder).client_train is None


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"train_writer": np.arange(3)}, "has 3 writer ids for 4 train images"),
        ({"train_writer": np.arange(4.0)}, "its writers are float64"),
        ({"writers": np.arange(4)}, r"is missing the arrays \['train_writer'\]; it has \['writers'\]"),
    ],
)
def test_bad_writers(folder: Path, arrays: dict[str, np.ndarray], complaint: str) -> None:
    np.savez(folder / idx.WRITERS, **arrays)
    with pytest.raises(DataError, match=f"{idx.WRITERS}: {complaint}"):
        load_dataset("mnist", folder)


GOOD = encode(images(4))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", r"starts with \(none\), not 00 00 08 03"),
        (b"\0\0\x0d\x03" + GOOD[4:], "starts with 00 00 0d 03"),
        (encode(labels(4)), "starts with 00 00 08 01"),
        (GOOD[:9], "ends in the middle of its header"),
        (GOOD[:-1], "claims 24 values, but it has only 23|claims 24 values, more than the file can contain"),
        (GOOD + b"!", "claims 24 values, but it has more"),
        (
            GOOD[:4] + b"\xff" * 12 + GOOD[16:],
            "claims 79,228,162,458,924,105,385,300,197,375 values, more than",
        ),
        (encode(images(3)), f"{TRAIN_LABELS}.gz: has 4 labels for 3 samples"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_images(folder: Path, content: bytes, complaint: str, packed: bool) -> None:
    (folder / TRAIN_IMAGES).unlink()
    name = f"{TRAIN_IMAGES}.gz" if packed else TRAIN_IMAGES
    (folder / name).write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(DataError, match=complaint) as caught:
        load_dataset("mnist", folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [GOOD, gzip.compress(GOOD)[:-9], gzip.compress(GOOD)[:-8] + bytes(8)],
    ids=["not gzip", "truncated", "wrong checksum"],
)
def test_damaged_gzip(folder: Path, content: bytes) -> None:
    (folder / TRAIN_IMAGES).unlink()
    (folder / f"{TRAIN_IMAGES}.gz").write_bytes(content)
    with pytest.raises(DataError, match=f"{TRAIN_IMAGES}.gz: the compressed data is damaged or truncated"):
        load_dataset("mnist", folder)


def test_labels_out_of_range(folder: Path) -> None:
    (folder / TEST_LABELS).write_bytes(encode(np.array([0, 10], np.uint8)))
    with pytest.raises(DataError, match=f"{TEST_LABELS}: has the label 10; labels are 0 to 9"):
        load_dataset("fashion-mnist", folder)


def test_train_and_test_must_have_one_size(folder: Path) -> None:
    (folder / f"{TEST_IMAGES}.gz").write_bytes(gzip.compress(encode(np.zeros((2, 3, 3), np.uint8))))
    with pytest.raises(DataError, match=r"differ in size: \(2, 3\) in train, \(3, 3\) in test"):
        load_dataset("mnist", folder)


def test_real_mnist(real: Callable[[str], Dataset]) -> None:
    data = real("mnist")
    assert data.x_train.shape == (60_000, 1, 28, 28)
    assert data.x_test.shape == (10_000, 1, 28, 28)
    counts = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    assert np.bincount(data.y_train).tolist() == counts
    assert data.client_train is not None
    per_writer = np.bincount(data.client_train)
    assert (len(per_writer), per_writer.min(), per_writer.max()) == (539, 19, 131)
    assert data.scaling is not None
    assert data.scaling.shift[0] / 255 == pytest.approx(0.1306605)
    assert 1 / data.scaling.scale[0] / 255 == pytest.approx(0.3081078)


def test_real_fashion_mnist(real: Callable[[str], Dataset]) -> None:
    data = real("fashion-mnist")
    assert np.bincount(data.y_train).tolist() == [6000] * 10
    assert np.bincount(data.y_test).tolist() == [1000] * 10
    assert data.scaling is not None
    assert data.scaling.shift[0] / 255 == pytest.approx(0.2860406)
    assert 1 / data.scaling.scale[0] / 255 == pytest.approx(0.3530242)
