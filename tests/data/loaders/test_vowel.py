"""Vowels of 15 speakers, each with test samples of their own."""

from __future__ import annotations

import numpy as np
import pytest

import fedrelay as fr
from fedrelay.data.holdout import held_out_samples
from fedrelay.data.loaders import vowel
from fedrelay.data.registry import DATASETS, load_dataset
from fedrelay.errors import DataError


def rows(**changed):
    speakers = np.repeat(np.arange(15), 66)
    vowels = np.tile(np.repeat(np.arange(11), 6), 15)
    x = np.random.default_rng(1).normal(size=(990, 10)) + vowels[:, None]
    features = dict(zip(vowel.FEATURES, x.T, strict=True))
    columns = {"test": speakers > 7, "speaker": speakers, "sex": speakers % 2, **features}
    columns = columns | {"vowel": vowels} | changed
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    return "\n".join(lines)


def test_speakers_are_clients_with_samples_of_every_vowel(tmp_path):
    (tmp_path / "vowel.csv").write_text(rows())
    data = load_dataset("vowel", tmp_path)
    assert (len(data.y_train), len(data.y_test), data.shape, data.classes) == (825, 165, (10,), 11)
    assert np.bincount(data.client_train).tolist() == [55] * 15
    np.testing.assert_allclose(data.x_train.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(data.x_train.std(0), 1, atol=1e-5)
    federation = fr.load_data("vowel", path=tmp_path / "vowel.csv")
    assert held_out_samples(federation).counts == [11] * 15
    assert np.bincount(held_out_samples(federation).of(14).y).tolist() == [1] * 11


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a,b\n1,2", "has no column 'speaker'"),
        (rows(speaker=np.zeros(990, int)), "must have each speaker from 0 to 14"),
        (rows(f3=["x"] * 990), "f3"),
        (rows(f3=[""] * 990), "missing or infinite"),
    ],
)
def test_damaged_files_are_refused(tmp_path, content, problem):
    (tmp_path / "vowel.csv").write_text(content)
    with pytest.raises(DataError, match=problem):
        load_dataset("vowel", tmp_path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DataError, match=r"data set 'vowel' not found\n  files: vowel\.csv"):
        load_dataset("vowel", tmp_path)


@pytest.mark.skipif(DATASETS["vowel"].find() is None, reason="the vowel data are not here")
def test_the_published_file():
    data = load_dataset("vowel")
    assert (len(data.y_train), len(data.y_test), len(data.client_names)) == (825, 165, 15)
