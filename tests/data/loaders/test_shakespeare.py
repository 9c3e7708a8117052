import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders import shakespeare
from fedrelay.data.loaders.shakespeare import CHARACTERS, LENGTH, PADDING, UNKNOWN, encode, windows_of
from fedrelay.data.registry import load_dataset
from fedrelay.errors import DataError


def decode(tokens: np.ndarray) -> str:
    """Padding as `_`, unknown as `#`, neither of which is in the vocabulary."""
    return "".join(("_#" + CHARACTERS)[token] for token in tokens)


def role(name: str, *speeches: str) -> dict[str, Any]:
    return {"id": name, "n_lines": sum(speech.count("\n") + 1 for speech in speeches), "speeches": speeches}


def write(path: Path, *records: object) -> Path:
    text = "".join(json.dumps(record) + "\n" for record in records)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def test_the_vocabulary_has_80_tokens() -> None:
    assert shakespeare.CLASSES == 80
    assert len(set(CHARACTERS)) == 78
    assert encode(CHARACTERS).tolist() == list(range(2, 80))
    assert encode("$é\U0001f600\ud800").tolist() == [UNKNOWN] * 4


def test_a_role_is_split_by_lines_and_padded(tmp_path: Path) -> None:
    path = write(
        tmp_path / "shakespeare_x.jsonl.gz",
        role("hamlet/HAMLET", "To be,\nor not", "to be,", "that is\nthe question"),
        role("hamlet/GHOST", "Swear!"),
        role("a/ADAM", "ab", "c"),
    )
    data = load_dataset("shakespeare", tmp_path)
    assert (data.name, data.kind, data.classes, data.shape) == ("shakespeare", "tokens", 80, (80,))
    assert (data.x_train.dtype, data.y_train.dtype) == (np.uint8, np.int64)
    train_text = "To be,\nor not\nto be,\nthat is"
    assert decode(data.x_train[0]) == train_text[:-1].rjust(LENGTH, "_")
    assert decode(data.y_train) == "sb"
    assert decode(data.x_test[0]).lstrip("_") == "the questio"
    assert decode(data.y_test) == "nc"
    assert decode(data.x_test[1]) == "_" * LENGTH
    assert data.client_train is not None
    assert data.client_train.tolist() == [1, 0]
    assert load_dataset("shakespeare", path).x_train.tolist() == data.x_train.tolist()


@settings(deadline=None, max_examples=40)
@given(st.text(st.sampled_from("abc \n"), min_size=0, max_size=300), st.integers(1, 40))
def test_windows_are_the_text_itself(text: str, stride: int) -> None:
    windows = windows_of(text, stride)
    expected = [text[i : i + LENGTH + 1] for i in range(0, len(text) - LENGTH, stride)]
    if 0 < len(text) <= LENGTH:
        expected = [text.rjust(LENGTH + 1, "_")]
    assert [decode(window) for window in windows] == expected


def test_the_stride_is_a_choice(tmp_path: Path) -> None:
    path = write(tmp_path / "roles.jsonl", role("R", *["x" * 60] * 10))
    text = 8 * 61 - 1
    assert len(shakespeare.load(path, stride=1).x_train) == text - LENGTH
    assert len(shakespeare.load(path).x_train) == -(-(text - LENGTH) // 10)


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ([], "line 2 is not a role"),
        ({"id": "R"}, "line 2 is not a role"),
        ({"id": "R", "speeches": "text"}, "line 2 is not a role"),
        ({"id": "R", "speeches": ["text", 3]}, "line 2 is not a role"),
        ({"id": "R", "n_lines": 3, "speeches": ["a\nb"]}, "line 2 has 2 lines of text but claims 3"),
        (role("OK", "a", "b"), "line 2: duplicate role OK"),
    ],
)
def test_damaged_roles(tmp_path: Path, record: object, complaint: str) -> None:
    path = write(tmp_path / "shakespeare.jsonl", role("OK", "a", "b"), record)
    with pytest.raises(DataError, match=rf"shakespeare\.jsonl: {complaint}"):
        load_dataset("shakespeare", path)


def test_a_file_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "shakespeare.jsonl").write_text("Enter HAMLET")
    with pytest.raises(DataError, match=r"shakespeare\.jsonl: is not valid JSON"):
        load_dataset("shakespeare", tmp_path)


def test_a_file_without_roles(tmp_path: Path) -> None:
    path = write(tmp_path / "shakespeare.jsonl", role("short", "one line"))
    with pytest.raises(DataError, match=r"shakespeare\.jsonl: has no train samples"):
        load_dataset("shakespeare", path)


def leaf(folder: Path, **users: list[tuple[str, str]]) -> None:
    folder.mkdir(exist_ok=True)
    data = {name: {"x": [x for x, _ in own], "y": [y for _, y in own]} for name, own in users.items()}
    (folder / "all.json").write_text(json.dumps({"users": list(users), "user_data": data}))


def test_leaf(tmp_path: Path) -> None:
    leaf(tmp_path / "train", ROMEO=[("a" * 80, "b"), ("short", "}")], JULIET=[("c" * 80, "d")])
    leaf(tmp_path / "test", ROMEO=[("e" * 80, "f")])
    data = load_dataset("shakespeare", tmp_path)
    assert [decode(x).lstrip("_") for x in data.x_train] == ["a" * 80, "short", "c" * 80]
    assert data.x_train[1, 0] == PADDING
    assert decode(data.y_train) == "b#d"
    assert decode(data.y_test) == "f"
    assert data.client_train is not None
    assert data.client_train.tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("sample", "complaint"),
    [
        (("a" * 81, "b"), "has 81 characters and then 1, not 80 and then 1"),
        (("a" * 80, "bc"), "has 80 characters and then 2"),
        ((3, "b"), "is not a text and its next character"),
    ],
)
def test_damaged_leaf_samples(tmp_path: Path, sample: tuple[Any, str], complaint: str) -> None:
    leaf(tmp_path / "train", ROMEO=[sample])
    leaf(tmp_path / "test", ROMEO=[("e" * 80, "f")])
    with pytest.raises(DataError, match=rf"all\.json: a sample of user ROMEO {complaint}"):
        load_dataset("shakespeare", tmp_path)


def test_a_leaf_user_in_two_files(tmp_path: Path) -> None:
    leaf(tmp_path / "train", ROMEO=[("a" * 80, "b")])
    (tmp_path / "train" / "all.json").rename(tmp_path / "train" / "first.json")
    leaf(tmp_path / "train", ROMEO=[("c" * 80, "d")], JULIET=[("e" * 80, "f")])
    leaf(tmp_path / "test", ROMEO=[("e" * 80, "f")])
    data = load_dataset("shakespeare", tmp_path)
    assert decode(data.y_train) == "dbf"
    assert data.client_train is not None
    assert data.client_train.tolist() == [1, 1, 0]


def test_real_shakespeare(real: Callable[[str], Dataset]) -> None:
    data = real("shakespeare")
    assert data.client_train is not None
    assert len(np.unique(data.client_train)) == 1_251
    assert data.x_train.shape == (334_423, 80)
    assert data.x_test.shape == (78_932, 80)
    assert data.x_train.max() < 80
    assert data.y_train.min() > PADDING
    assert (data.x_train == UNKNOWN).sum() <= 8
