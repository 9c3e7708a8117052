import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedrelay.data.dataset import Dataset
from fedrelay.data.registry import DATASETS, load_dataset
from fedrelay.errors import DataError


def image(level: int) -> list[float]:
    """White paper with one pixel of the given level."""
    return [level / 255, *[1.0] * 783]


def users(**levels: list[int]) -> dict[str, Any]:
    """LEAF content: for each writer one image for each level, the level being the label too."""
    return {
        "users": list(levels),
        "num_samples": [len(own) for own in levels.values()],
        "user_data": {name: {"x": [image(n) for n in own], "y": own} for name, own in levels.items()},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "train" / "all_data_0.json", users(f09=[3, 61], f01=[5]))
    write(tmp_path / "train" / "all_data_1.json", users(f02=[7, 8], empty=[]))
    write(tmp_path / "test" / "all_data_0.json", users(f09=[4], f02=[6]))
    return tmp_path


def write(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def test_leaf(folder: Path) -> None:
    data = load_dataset("femnist", folder)
    assert (data.name, data.kind, data.classes, data.shape) == ("femnist", "image", 62, (1, 28, 28))
    assert data.x_train.dtype == np.uint8
    assert data.x_train[:, 0, 0, 0].tolist() == data.y_train.tolist() == [3, 61, 5, 7, 8]
    assert (data.x_train[:, 0, 1:] == 255).all()
    assert data.y_test.tolist() == [4, 6]
    assert data.client_train is not None
    assert data.client_train.tolist() == [2, 2, 0, 1, 1]


def test_the_folder_of_a_leaf_checkout(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "femnist"
    (root / "data").mkdir(parents=True)
    for part in ("train", "test"):
        (folder / part).rename(root / "data" / part)
    assert DATASETS["femnist"].find(root) == root / "data"


SAMPLES = {"x": [image(1)], "y": [1]}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([], "has no table `user_data`: not a LEAF file"),
        ({"users": ["a"]}, "has no table `user_data`"),
        ({"users": ["a", "b"], "user_data": {"a": SAMPLES}}, "its `users` do not match"),
        ({"users": "a", "user_data": {"a": SAMPLES}}, "its `users` do not match"),
        ({"users": ["a"], "num_samples": [2], "user_data": {"a": SAMPLES}}, "its `num_samples` do not match"),
        ({"users": ["a"], "user_data": {"a": {"x": []}}}, "user a has no lists `x` and `y`"),
        ({"users": ["a"], "user_data": {"a": [1]}}, "user a has no lists `x` and `y`"),
        ({"users": ["a"], "user_data": {"a": {"x": [image(1)], "y": [1, 2]}}}, "has 1 samples and 2 labels"),
        ({"users": ["a"], "user_data": {"a": {"x": [image(1)], "y": [62]}}}, "has the label 62"),
        ({"users": ["a"], "user_data": {"a": {"x": [[0.5] * 9], "y": [1]}}}, r"shape \(1, 9\), not \(n, 784"),
        ({"users": ["a"], "user_data": {"a": {"x": ["text"], "y": [1]}}}, "are not rows of numbers"),
        ({"users": ["a"], "user_data": {"a": {"x": [None], "y": [1]}}}, r"shape \(1,\)|rows of numbers"),
        ({"users": ["a"], "user_data": {"a": {"x": [image(256)], "y": [1]}}}, "have values outside 0 … 1"),
        (
            {"users": ["a"], "user_data": {"a": {"x": [[float("nan")] * 784], "y": [1]}}},
            "have values outside 0 … 1",
        ),
    ],
)
def test_damaged_leaf_files(folder: Path, content: object, complaint: str) -> None:
    write(folder / "train" / "all_data_1.json", content)
    with pytest.raises(DataError, match=f"all_data_1.json: .*({complaint})"):
        load_dataset("femnist", folder)


@pytest.mark.parametrize("text", ['{"users": ["a"', "", "[" * 100_000])
def test_broken_json(folder: Path, text: str) -> None:
    (folder / "test" / "all_data_0.json").write_text(text)
    with pytest.raises(DataError, match=r"all_data_0\.json: is not valid JSON"):
        load_dataset("femnist", folder)


def test_a_part_without_samples(folder: Path) -> None:
    write(folder / "test" / "all_data_0.json", users(f09=[]))
    with pytest.raises(DataError, match="test: has no samples"):
        load_dataset("femnist", folder)


def test_a_numpy_archive(tmp_path: Path) -> None:
    images = np.zeros((3, 28, 28), np.uint8)
    arrays = {"x_train": images, "y_train": [0, 61, 9], "x_test": images[:1], "y_test": [3]}
    path = tmp_path / "femnist_small.npz"
    np.savez(path, **arrays, writer_train=[8, 2, 8])
    data = load_dataset("femnist", tmp_path)
    assert (data.name, data.classes, data.shape) == ("femnist", 62, (1, 28, 28))
    assert data.client_train is not None
    assert data.client_train.tolist() == [1, 0, 1]
    np.savez(path, **arrays)
    with pytest.raises(DataError, match=r"femnist_small\.npz: is missing the arrays \['writer_train'\]"):
        load_dataset("femnist", path)


def test_real_femnist(real: Callable[[str], Dataset]) -> None:
    data = real("femnist")
    assert data.x_train.shape == (41_124, 1, 28, 28)
    assert data.x_test.shape == (4_746, 1, 28, 28)
    assert len(np.unique(data.y_train)) == 62
    assert data.client_train is not None
    per_writer = np.bincount(data.client_train)
    assert (len(per_writer), per_writer.min(), per_writer.max()) == (291, 23, 319)
    assert data.x_train.mean() > 200
