"""Damaged files of data: a clear error or success, soon, and nothing written elsewhere."""

from __future__ import annotations

import gzip
import io
import json
import random
import string
import zipfile
from pathlib import Path

import numpy as np
from tests.damage import FAIR, cases, damaged, verdict

from fedrelay.data.registry import load_dataset


def zipped(members: dict[str, bytes], kind: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(array: np.ndarray, header: str | None = None) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    content = buffer.getvalue()
    if header is None:
        return content
    text = header.encode().ljust(117) + b"\n"
    return content[:8] + len(text).to_bytes(2, "little") + text + content[128:]


ARRAYS = {
    "x_train.npy": npy(np.arange(12.0).reshape(4, 3)),
    "y_train.npy": npy(np.array([0, 1, 2, 0])),
    "x_test.npy": npy(np.arange(12.0).reshape(4, 3)),
    "y_test.npy": npy(np.array([1, 1, 0, 0])),
}

HEADERS = (
    "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 3), }",
    "{'descr': '|O', 'fortran_order': False, 'shape': (4, 3), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (-4, 3), }",
    "{'descr': '<f8', 'fortran_order': False, 'shape': (4, 3.0), }",
    "{'descr': '<U999999999', 'fortran_order': False, 'shape': (4, 3), }",
    "{'descr': [('a', '<f8'), ('b', 'O')], 'fortran_order': False, 'shape': (4,), }",
    "{'descr': __import__('os'), 'fortran_order': False, 'shape': (4, 3), }",
    "{'descr': '<f8', 'shape': (" + "1," * 40 + ")}",
    "{" * 60,
)


def test_damaged_archives(tmp_path):
    path = tmp_path / "mine.npz"
    for seed in cases(700):
        rng = random.Random(f"npz {seed}")
        members, name = dict(ARRAYS), rng.choice(list(ARRAYS))
        match rng.randrange(5):
            case 0:
                members[name] = npy(np.zeros((4, 3)), rng.choice(HEADERS))
            case 1:
                members[name] = damaged(members[name], rng)
            case 2:
                members[rng.choice(("../../escape.npy", "/abs.npy", "x_train.npy/", "C:\\x.npy"))] = members.pop(name)
            case 3:
                kinds = (
                    np.array(["x"]),
                    np.zeros((4, 3, 2, 2, 2)),
                    np.array(7),
                    np.full((4, 3), np.nan),
                    np.zeros((0, 3)),
                )
                members[name] = npy(rng.choice(kinds))
            case _:
                pass
        content = zipped(members, rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2)))
        path.write_bytes(damaged(content, rng) if rng.random() < 0.5 else content)
        assert verdict(load_dataset, "npz", path) in FAIR, f"seed {seed}"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["mine.npz"]


def test_damaged_texts_and_tables(tmp_path):
    row = b"0,tcp,http,SF," + b"0.5," * 37 + b"normal,20\n"
    leaf = json.dumps({"users": ["a"], "num_samples": [1], "user_data": {"a": {"x": ["b" * 80], "y": ["c"]}}}).encode()
    sets = {
        "nsl-kdd": {"KDDTrain+.txt": row * 2, "KDDTest+.txt.gz": gzip.compress(row, mtime=0)},
        "shakespeare": {"train/a.json": leaf + b"\n", "test/a.json": leaf + b"\n"},
    }
    for seed in cases(600):
        rng = random.Random(f"text {seed}")
        name = rng.choice(list(sets))
        folder = tmp_path / name
        file = rng.choice(list(sets[name]))
        for each, content in sets[name].items():
            (folder / each).parent.mkdir(parents=True, exist_ok=True)
            (folder / each).write_bytes(damaged(content, rng) if each == file else content)
        assert verdict(load_dataset, name, folder) in FAIR, f"seed {seed}, {file}"


def test_names_of_data_lead_nowhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    odd = (
        "",
        ".",
        "..",
        "/",
        "~",
        "\x00",
        "a\nb",
        "../../etc/passwd",
        "digits\x00",
        "/dev/zero",
        "/dev/zero.npz",
        "x.npz",
    )
    letters = string.printable
    names = [*odd, *("".join(random.Random(seed).choices(letters, k=seed % 40)) for seed in range(200))]
    for name in names:
        assert verdict(load_dataset, name, None) in FAIR, repr(name)
        assert verdict(load_dataset, "npz", Path(name)) in FAIR, repr(name)
    assert not list(tmp_path.iterdir())
