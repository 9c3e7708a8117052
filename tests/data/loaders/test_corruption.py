"""Whatever happens to the bytes of a file, loading it gives a data set or a `DataError`, nothing else."""

import gzip
import io
import pickle
import struct
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from fedrelay.data.loaders.cifar import CIFAR100
from fedrelay.data.loaders.idx import FILES
from fedrelay.data.registry import load_dataset
from fedrelay.errors import DataError

Writer = Callable[[], dict[str, bytes]]


def idx_files() -> dict[str, bytes]:
    def encode(values: np.ndarray) -> bytes:
        return struct.pack(f">I{values.ndim}I", 0x800 + values.ndim, *values.shape) + values.tobytes()

    images, labels = encode(np.zeros((3, 2, 2), np.uint8)), encode(np.array([0, 5, 9], np.uint8))
    contents = (gzip.compress(images, mtime=0), gzip.compress(labels, mtime=0), images, labels)
    return dict(zip([f"{FILES[0]}.gz", f"{FILES[1]}.gz", *FILES[2:]], contents, strict=True))


def npz_file() -> dict[str, bytes]:
    buffer = io.BytesIO()
    rows = np.arange(12.0).reshape(4, 3)
    np.savez_compressed(buffer, x_train=rows, y_train=[0, 1, 2, 0], x_test=rows, y_test=[1, 1, 0, 0])
    return {"mine.npz": buffer.getvalue()}


def cifar_files() -> dict[str, bytes]:
    batch = {b"data": np.zeros((1, 3072), np.uint8), CIFAR100.labels: [42]}
    return dict.fromkeys(CIFAR100.batches, pickle.dumps(batch, protocol=3))


def leaf_files() -> dict[str, bytes]:
    text = b'{"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": ["%s"], "y": ["b"]}}}' % (b"a" * 80)
    return {"train/a.json": text, "test/a.json": text}


def role_file() -> dict[str, bytes]:
    return {"shakespeare.jsonl": b'{"id": "R", "n_lines": 3, "speeches": ["one\\ntwo", "three"]}\n'}


def kdd_files() -> dict[str, bytes]:
    row = b"0,tcp,http,SF," + b"0.5," * 37 + b"normal,20\n"
    return {"KDDTrain+.txt": row * 2, "KDDTest+.txt.gz": gzip.compress(row, mtime=0)}


def picture_files() -> dict[str, bytes]:
    files = {}
    for kind in ("png", "jpeg", "bmp", "gif"):
        buffer = io.BytesIO()
        Image.new("RGB", (3, 2), (1, 2, 3)).save(buffer, kind)
        files |= {f"{part}/cat/1.{kind}": buffer.getvalue() for part in ("train", "test")}
    return files


@pytest.mark.filterwarnings("ignore")  # image decoders may also warn about damage
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("mnist", idx_files),
        ("npz", npz_file),
        ("cifar100", cifar_files),
        ("shakespeare", leaf_files),
        ("shakespeare", role_file),
        ("nsl-kdd", kdd_files),
        ("image-folder", picture_files),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_any_damage_is_a_data_error(name: str, make: Writer, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("damage")
    files = make()
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    location = folder / "mine.npz" if name == "npz" else folder

    def outcome() -> str:
        try:
            return load_dataset(name, location).name
        except DataError:
            return "a data error"

    intact = outcome()
    assert intact != "a data error"

    @settings(deadline=None, max_examples=60)
    @given(st.data())
    def damage(data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(sorted(files)))
        content = bytearray(files[file])
        position = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[position] = data.draw(st.integers(0, 255))
        else:
            del content[position:]
        (folder / file).write_bytes(content)
        assert outcome() in (intact, "a data error")
        (folder / file).write_bytes(files[file])

    damage()
