"""The patients of four hospitals, embedded in the package."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import fedrelay as fr
from fedrelay.data.loaders import heart_disease
from fedrelay.data.registry import load_dataset
from fedrelay.errors import DataError


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(heart_disease.package_folder()[0], tmp_path / "hearts")


def test_hospitals_are_clients_with_the_published_numbers_of_patients():
    data = load_dataset("heart-disease")
    assert (len(data.y_train), len(data.y_test), data.classes, data.task, data.shape) == (735, 185, 2, "binary", (35,))
    assert np.bincount(data.client_train).tolist() == [242, 235, 98, 160]
    assert int(data.y_train.sum() + data.y_test.sum()) == 139 + 106 + 115 + 149
    federation = fr.load_data("heart-disease")
    assert [federation.histogram(client).tolist() for client in range(4)] == [[131, 111], [150, 85], [6, 92], [41, 119]]


def test_numbers_are_standardised_over_known_train_values():
    data = load_dataset("heart-disease")
    age = data.x_train[:, 0]
    assert abs(age.mean()) < 1e-6
    assert age.std() == pytest.approx(1, abs=1e-6)
    assert np.isfinite(data.x_train).all()
    assert np.isfinite(data.x_test).all()


def test_a_cholesterol_of_zero_is_missing():
    data = load_dataset("heart-disease")
    cholesterol, marked = data.x_train[:, 3], data.x_train[:, 4]  # after age and blood pressure with its mark
    swiss = data.client_train == 2
    assert (marked[swiss] == 1).all()
    assert (cholesterol[swiss] == 0).all()
    assert (marked[data.client_train == 0] == 0).all()


def test_it_trains():
    assert fr.run("fedseq", data="heart-disease", model="logistic", rounds=5, fraction=1.0, workers=1).accuracy > 0.75


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("age,", "years,", "has no column 'age'"),
        ("63.0,1.0,1.0,145.0", "old,1.0,1.0,145.0", "column 'age', row 1: 'old' is not a finite float32 number"),
        ("2.3,3.0,0.0,6.0,0\n", "2.3,3.0,0.0,6.0,\n", "row 1 has no diagnosis"),
        ("2.3,3.0,0.0,6.0,0\n", "2.3\n", "row 1 has 10 values for 14 columns"),
    ],
)
def test_damage_is_named(folder, old, new, message):
    file = folder / "cleveland.csv"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match=message) as found:
        load_dataset("heart-disease", folder)
    assert "cleveland.csv" in str(found.value)


def test_the_files_are_in_the_package_with_their_licence():
    folder = heart_disease.package_folder()[0]
    assert {file.name for file in folder.iterdir()} == {*heart_disease.FILES, "README.md"}
    assert "CC BY 4.0" in (folder / "README.md").read_text()
