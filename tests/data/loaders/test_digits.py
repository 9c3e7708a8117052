import hashlib
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from fedrelay.data.loaders.stratified_split import stratified_split
from fedrelay.data.registry import DATASETS, load_dataset


def test_digits() -> None:
    data = load_dataset("digits")
    assert (data.name, data.kind, data.classes, data.shape) == ("digits", "image", 10, (1, 8, 8))
    assert (len(data.x_train), len(data.x_test)) == (1438, 359)
    assert data.x_train.dtype == np.uint8
    assert (data.x_train.min(), data.x_train.max()) == (0, 16)
    assert data.y_train.dtype == data.y_test.dtype == np.int64
    train, test = np.bincount(data.y_train), np.bincount(data.y_test)
    assert (train + test).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert np.abs(test / (train + test) - 0.2).max() < 0.003
    assert data.client_train is None


def test_they_are_those_of_scikit_learn() -> None:
    data, theirs = load_dataset("digits"), load_digits()
    ours = np.concatenate([data.x_train, data.x_test]).reshape(-1, 64), np.concatenate([data.y_train, data.y_test])
    assert sorted(map(tuple, np.column_stack(ours))) == sorted(
        map(tuple, np.column_stack([theirs.data, theirs.target]).astype(int))
    )


def test_the_split_is_the_same_everywhere() -> None:
    data = load_dataset("digits")
    digest = hashlib.sha256(np.ascontiguousarray(data.x_test).tobytes() + data.y_test.tobytes())
    assert digest.hexdigest()[:16] == "11661a69fa945198"


def test_the_digits_are_found_in_their_package() -> None:
    found = DATASETS["digits"].find()
    assert found is not None
    assert found.name == "sklearn"
    assert DATASETS["digits"].find(Path("/")) is None


def test_a_stratified_split_takes_a_fifth_of_each_stratum_and_loses_nothing() -> None:
    strata = np.repeat([4, 1, 7], [10, 5, 2])
    train, test = stratified_split(strata, "test")
    assert sorted([*train, *test]) == list(range(17))
    assert np.unique(strata[test], return_counts=True)[1].tolist() == [1, 2]
    assert (np.diff(train) > 0).all()
    assert (np.diff(test) > 0).all()
