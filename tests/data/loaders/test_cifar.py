import io
import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders.cifar import CIFAR10, CIFAR100, CifarFormat
from fedrelay.data.registry import DATASETS, load_dataset
from fedrelay.errors import DataError


def rows(seed: int, count: int = 2) -> np.ndarray:
    return ((np.arange(count * 3072) * 7 + seed) % 256).astype(np.uint8).reshape(count, 3072)


def python2_batch(images: np.ndarray, label_key: bytes, labels: list[int]) -> bytes:
    """A batch as Python 2 wrote the official ones: protocol 2, byte strings, NumPy's old module name."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\nq\x01" + text(b"u1") + b"K\x00K\x01\x87Rq\x02"
    dtype += b"(K\x03" + text(b"|") + b"NNN" + number(-1) * 2 + b"K\x00tb"
    raw = images.tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + number(images.shape[0]) + number(images.shape[1]) + b"\x86" + dtype
    array += b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    names = b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(label_key) + names + b"u."


def batches(layout: CifarFormat) -> dict[str, bytes]:
    """Two images in each batch, of the classes k and k+1 for the batch k."""
    return {
        name: python2_batch(rows(number), layout.labels, [number, number + 1])
        for number, name in enumerate(layout.batches)
    }


def write_folder(root: Path, layout: CifarFormat) -> Path:
    folder = root / layout.folder
    folder.mkdir()
    for name, content in batches(layout).items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(root: Path, layout: CifarFormat, files: dict[str, bytes]) -> Path:
    with tarfile.open(root / layout.archive, "w:gz") as archive:
        for name, content in {"readme.html": b"hello", **files}.items():
            member = tarfile.TarInfo(f"{layout.folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return root / layout.archive


def content(data: Dataset) -> tuple[object, ...]:
    """Everything in a data set, as it can be compared."""
    arrays = (data.x_train, data.x_test, data.y_train, data.y_test)
    writeable = data.x_train.flags.writeable and data.x_test.flags.writeable
    return data.name, data.kind, data.classes, writeable, *((each.shape, each.tolist()) for each in arrays)


def written(layout: CifarFormat) -> tuple[object, ...]:
    """What the batches hold, in arrays that may be written to."""
    last = len(layout.train)
    x_train = np.concatenate([rows(number) for number in range(last)]).reshape(-1, 3, 32, 32)
    x_test = rows(last).reshape(-1, 3, 32, 32)
    y_train, y_test = [label for k in range(last) for label in (k, k + 1)], [last, last + 1]
    labels = (((len(y),), y) for y in (y_train, y_test))
    return layout.name, "image", layout.classes, True, *((x.shape, x.tolist()) for x in (x_train, x_test)), *labels


@pytest.mark.parametrize("layout", [CIFAR10, CIFAR100], ids=lambda layout: layout.name)
def test_the_folder_of_batches(tmp_path: Path, layout: CifarFormat) -> None:
    folder = write_folder(tmp_path, layout)
    assert content(load_dataset(layout.name, tmp_path)) == written(layout)
    assert content(load_dataset(layout.name, folder)) == written(layout)


@pytest.mark.parametrize("layout", [CIFAR10, CIFAR100], ids=lambda layout: layout.name)
def test_the_archive_is_read_in_place(tmp_path: Path, layout: CifarFormat) -> None:
    path = write_archive(tmp_path, layout, batches(layout))
    assert content(load_dataset(layout.name, tmp_path)) == written(layout)
    assert content(load_dataset(layout.name, path)) == written(layout)
    assert list(tmp_path.iterdir()) == [path]


def test_batches_pickled_by_a_newer_numpy(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, CIFAR10)
    again = pickle.dumps({b"data": rows(0), b"labels": [0, 1]}, protocol=4)
    (folder / "data_batch_1").write_bytes(again)
    assert content(load_dataset("cifar10", tmp_path)) == written(CIFAR10)


def test_a_numpy_archive(tmp_path: Path) -> None:
    x = np.arange(3 * 32 * 32 * 3, dtype=np.uint8).reshape(3, 32, 32, 3)
    np.savez(tmp_path / "cifar10_small.npz", x_train=x, y_train=[9, 0, 1], x_test=x[:1], y_test=[3])
    data = load_dataset("cifar10", tmp_path)
    assert (data.name, data.classes, data.shape) == ("cifar10", 10, (3, 32, 32))
    assert (data.x_train == x.transpose(0, 3, 1, 2)).all()
    assert DATASETS["cifar100"].find(tmp_path) is None
    np.savez(tmp_path / "cifar10_small.npz", x_train=x, y_train=[10, 0, 1], x_test=x[:1], y_test=[3])
    with pytest.raises(DataError, match="has the label 10"):
        load_dataset("cifar10", tmp_path)
    np.savez(tmp_path / "cifar10_small.npz", x_train=x / 255, y_train=[1, 0, 1], x_test=x[:1] / 255, y_test=[3])
    with pytest.raises(DataError, match=r"its samples are float64 .* not 8-bit images"):
        load_dataset("cifar10", tmp_path)


def test_the_two_sets_are_told_apart_by_name(tmp_path: Path) -> None:
    (tmp_path / "cifar100.npz").touch()
    assert DATASETS["cifar10"].find(tmp_path) is None
    assert DATASETS["cifar100"].find(tmp_path) == tmp_path / "cifar100.npz"
    (tmp_path / "cifar10.npz").touch()
    assert DATASETS["cifar10"].find(tmp_path) == tmp_path / "cifar10.npz"


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_a_malicious_pickle_is_refused_and_does_not_run(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, CIFAR10)
    trap = tmp_path / "sprung"
    for content in (Trap(trap), {b"data": rows(0), b"labels": [0, 1], b"more": [Trap(trap)]}):
        (folder / "test_batch").write_bytes(pickle.dumps(content, protocol=4))
        with pytest.raises(DataError, match=r"test_batch: refused: it names posix\.mkdir"):
            load_dataset("cifar10", tmp_path)
        assert not trap.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"cbuiltins\neval\n(V1/0\ntR.",
        b"cos\nsystem\n(Vtrue\ntR.",
        b"cnumpy\nload\n(Vfile\ntR.",
        b"cnumpy.core.multiarray\nfromfile\n(Vfile\ntR.",
        b"\x80\x04\x8c\x08builtins\x8c\x07getattr\x93.",
        b"(i__main__\nTrap\n.",
    ],
)
def test_only_what_batches_need_is_admitted(tmp_path: Path, content: bytes) -> None:
    folder = write_folder(tmp_path, CIFAR100)
    (folder / "train").write_bytes(content)
    with pytest.raises(DataError, match=r"train: refused: it names .*, which no CIFAR batch needs"):
        load_dataset("cifar100", tmp_path)


GOOD = python2_batch(rows(0), b"labels", [0, 1])


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not a readable batch"),
        (GOOD[:-100], "is not a readable batch"),
        (b"not a pickle at all", "is not a readable batch"),
        (b"\x80\x02}r\xff\xff\xff\x7f.", "is not a readable batch .it claims more objects than it can hold"),
        (b"\x80\x02T\xff\xff\xff\x7f.", "is not a readable batch"),
        (GOOD.replace(b"u1", b"f4"), "is not a readable batch .*does not have unsigned bytes"),
        (GOOD.replace(b"J\x00\x0c\x00\x00", b"J\x00\x0d\x00\x00"), "is not a readable batch .*reshape"),
        (pickle.dumps([1, 2], 3), "contains list, not a table with b'data' and b'labels'"),
        (python2_batch(rows(0), b"fine_labels", [0, 1]), r'contains \["b\'data\'", "b\'fine_labels\'"\]'),
        (pickle.dumps({b"data": b"", b"labels": []}, 3), "its data is not an array"),
        (
            python2_batch(rows(0)[:, :3000], b"labels", [0, 1]),
            r"its images have shape \(2, 3000\), not \(n, 3072\)",
        ),
        (python2_batch(rows(0), b"labels", [0, 1, 2]), "has 3 labels for 2 samples"),
        (python2_batch(rows(0), b"labels", [0, 10]), "has the label 10; labels are 0 to 9"),
    ],
)
def test_damaged_batches(tmp_path: Path, content: bytes, complaint: str) -> None:
    folder = write_folder(tmp_path, CIFAR10)
    (folder / "data_batch_3").write_bytes(content)
    with pytest.raises(DataError, match=f"data_batch_3: {complaint}"):
        load_dataset("cifar10", tmp_path)


def test_damaged_archives(tmp_path: Path) -> None:
    files = batches(CIFAR10)
    del files["data_batch_4"]
    path = write_archive(tmp_path, CIFAR10, files)
    with pytest.raises(DataError, match=r"cifar-10-python\.tar\.gz: is missing cifar-10-batches-py/data_batch_4"):
        load_dataset("cifar10", path)
    path.write_bytes(path.read_bytes()[:300])
    with pytest.raises(DataError, match=r"\.tar\.gz: (is not a readable|the compressed data is damaged)"):
        load_dataset("cifar10", path)
    path.write_bytes(b"no archive")
    with pytest.raises(DataError, match=r"\.tar\.gz: is not a readable \.tar\.gz archive"):
        load_dataset("cifar10", path)


def test_an_archive_with_a_member_of_absurd_size(tmp_path: Path) -> None:
    member = tarfile.TarInfo(f"{CIFAR10.folder}/test_batch")
    member.size = 2**40
    path = tmp_path / CIFAR10.archive
    with tarfile.open(path, "w:gz") as archive:
        archive.fileobj.write(member.tobuf())
    with pytest.raises(DataError, match="test_batch claims more bytes than the archive can hold"):
        load_dataset("cifar10", path)


def test_an_unfinished_folder_is_not_taken(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, CIFAR10)
    (folder / "test_batch").unlink()
    assert DATASETS["cifar10"].find(tmp_path) is None


def test_real_cifar10(real: Callable[[str], Dataset]) -> None:
    data = real("cifar10")
    assert data.shape == (3, 32, 32)
    assert len(np.unique(data.y_train)) == 10
    assert len(data.y_train) in (20_000, 50_000)
    assert (np.bincount(data.y_train) == len(data.y_train) // 10).all()
    assert (np.bincount(data.y_test) == len(data.y_test) // 10).all()
    assert data.scaling is not None
    assert data.scaling.shift == pytest.approx((125.3, 122.95, 113.9), abs=0.5)
