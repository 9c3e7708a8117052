import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from fedrelay.data.dataset import IGNORED_LABEL
from fedrelay.data.loaders import stackoverflow
from fedrelay.data.loaders.stackoverflow import END, PADDING, START, TEST, TRAIN, UNKNOWN
from fedrelay.data.registry import DATASETS, load_dataset
from fedrelay.errors import DataError

TRAIN_SENTENCES = {
    "0002": ["how do i sort", "how do i", ""],
    "0001": ["i sort", " ".join(["how"] * 25)],
    "0003": [],
}
TEST_SENTENCES = {"0009": ["how do we sort"], "0008": ["i"]}


def write(path: Path, users: dict[str, list[str]]) -> None:
    with h5py.File(path, "w") as file:
        examples = file.create_group("examples")
        for user, sentences in users.items():
            rows = [sentence.encode() for sentence in sentences]
            examples.create_dataset(f"{user}/tokens", data=np.array(rows, object), dtype=h5py.string_dtype("ascii"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / TRAIN, TRAIN_SENTENCES)
    write(tmp_path / TEST, TEST_SENTENCES)
    return tmp_path


HOW, ME, DO, SORT = range(4, 8)  # 22, 3, 2 and 2 times


def padded(*tokens: int, fill: int = PADDING) -> list[int]:
    return [*tokens, *[fill] * (20 - len(tokens))]


def test_sentences_and_their_next_words(folder: Path) -> None:
    data = load_dataset("stackoverflow", folder)
    assert (data.name, data.kind, data.classes, data.shape) == ("stackoverflow", "tokens", 8, (20,))
    assert data.x_train.tolist() == [
        padded(START, ME, SORT, END),
        [START, *[HOW] * 19],
        padded(START, HOW, DO, ME, SORT, END),
        padded(START, HOW, DO, ME, END),
    ]
    assert data.y_train.tolist() == [
        padded(ME, SORT, END, fill=IGNORED_LABEL),
        [HOW] * 20,
        padded(HOW, DO, ME, SORT, END, fill=IGNORED_LABEL),
        padded(HOW, DO, ME, END, fill=IGNORED_LABEL),
    ]
    assert data.y_train.dtype == np.int64
    assert data.x_test.tolist() == [padded(START, ME, END), padded(START, HOW, DO, UNKNOWN, SORT, END)]
    assert data.client_train is not None
    assert data.client_train.tolist() == [0, 0, 1, 1]


def test_rare_words_are_unknown(folder: Path) -> None:
    data = stackoverflow.load(folder, vocabulary=2)
    assert data.classes == 6
    assert data.x_train[2].tolist() == padded(START, HOW, UNKNOWN, ME, UNKNOWN, END)


def test_limits(folder: Path) -> None:
    data = stackoverflow.load(folder, users=1, sentences=1, test_sentences=1)
    assert data.x_train.shape == data.x_test.shape == (1, 20)
    assert data.classes == 6


def test_both_files_are_needed(folder: Path) -> None:
    assert DATASETS["stackoverflow"].find(folder) == folder
    (folder / TEST).unlink()
    assert DATASETS["stackoverflow"].find(folder) is None


def test_a_missing_h5py_is_explained(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(DataError, match=r"needs the package h5py; install it with pip install 'fedrelay\[hdf5\]'"):
        load_dataset("stackoverflow", folder)


@pytest.mark.parametrize("name", [TRAIN, TEST])
def test_a_truncated_file(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    for length in (0, 100, len(content) - 200):
        (folder / name).write_bytes(content[:length])
        with pytest.raises(DataError, match=f"{name}: "):
            load_dataset("stackoverflow", folder)


def test_files_of_another_form(folder: Path) -> None:
    with h5py.File(folder / TRAIN, "w") as file:
        file["data"] = [1, 2]
    with pytest.raises(DataError, match=f"{TRAIN}: has no group `examples`"):
        load_dataset("stackoverflow", folder)
    with h5py.File(folder / TRAIN, "w") as file:
        file["examples/0001/title"] = [1, 2]
    with pytest.raises(DataError, match=f"{TRAIN}: examples/0001 has no list `tokens`"):
        load_dataset("stackoverflow", folder)
    with h5py.File(folder / TRAIN, "w") as file:
        file["examples/0001/tokens"] = [1, 2]
    with pytest.raises(DataError, match=f"{TRAIN}: examples/0001/tokens does not contain text"):
        load_dataset("stackoverflow", folder)


@pytest.mark.parametrize("name", [TRAIN, TEST])
def test_files_without_sentences(folder: Path, name: str) -> None:
    write(folder / name, {"0001": ["", " "]})
    with pytest.raises(DataError, match=f"{name}: has no sentences"):
        load_dataset("stackoverflow", folder)
