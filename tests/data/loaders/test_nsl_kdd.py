import gzip
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedrelay.data.dataset import Dataset
from fedrelay.data.loaders.nsl_kdd import TEST, TRAIN
from fedrelay.data.registry import load_dataset
from fedrelay.errors import DataError


def row(duration: float, protocol: str, label: str, service: str = "http", flag: str = "SF") -> str:
    return ",".join([str(duration), protocol, service, flag, *["0"] * 37, label, "20"])


TRAIN_ROWS = [
    row(0, "tcp", "normal"),
    row(np.e - 1, "udp", "neptune"),
    row(0, "tcp", "smurf"),
    row(np.e - 1, "udp", "normal"),
]
TEST_ROWS = [row(0, "tcp", "normal"), row(0, "icmp", "mailbomb"), row(np.e**2 - 1, "icmp", "smurf")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / TRAIN).write_text("\n".join(TRAIN_ROWS) + "\n")
    (tmp_path / f"{TEST}.gz").write_bytes(gzip.compress("\n".join(TEST_ROWS).encode()))
    return tmp_path


def test_features_are_fitted_on_the_train_rows(folder: Path) -> None:
    data = load_dataset("nsl-kdd", folder)
    assert (data.name, data.kind, data.scaling, data.client_train) == ("nsl-kdd", "tabular", None, None)
    assert data.x_train.dtype == data.x_test.dtype == np.float32
    assert data.shape == (38 + 2 + 1 + 1,)
    assert data.x_train[:, 0] == pytest.approx([-1, 1, -1, 1])
    assert (data.x_train[:, 1:38] == 0).all()
    assert data.x_train[:, 38:].tolist() == [[1, 0, 1, 1], [0, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 1]]


def test_a_category_of_the_test_rows_alone_is_a_block_of_zeros(folder: Path) -> None:
    data = load_dataset("nsl-kdd", folder)
    assert data.x_test[:, 38:40].tolist() == [[1, 0], [0, 0]]
    assert data.x_test[1, 0] == pytest.approx(3)


def test_labels_of_the_test_rows_alone_are_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        data = load_dataset("nsl-kdd", folder)
    assert data.classes == 3
    assert data.y_train.tolist() == [1, 0, 2, 1]
    assert data.y_test.tolist() == [1, 2]
    assert "left out 1 test rows whose labels are not in the train rows" in caplog.text


def test_the_binary_task_keeps_every_row(folder: Path) -> None:
    data = load_dataset("nsl-kdd-binary", folder)
    assert (data.name, data.classes) == ("nsl-kdd-binary", 2)
    assert data.y_train.tolist() == [0, 1, 1, 0]
    assert data.y_test.tolist() == [0, 1, 1]
    assert data.y_test.dtype == np.int64
    assert len(data.x_test) == 3


@pytest.mark.parametrize(
    ("rows", "complaint"),
    [
        ([], "has no rows"),
        ([TRAIN_ROWS[0], "1,2,3"], "line 2 has 3 columns, not 43"),
        ([TRAIN_ROWS[0], "", TRAIN_ROWS[0]], "line 2 has 1 columns, not 43"),
        ([TRAIN_ROWS[0] + ",9"], "line 1 has 44 columns, not 43"),
        ([TRAIN_ROWS[0].replace("0,tcp", "zero,tcp")], "could not convert string 'zero' to float64 at row 0"),
        ([row(-1, "tcp", "normal")], "negative or not finite"),
        ([row(float("nan"), "tcp", "normal")], "negative or not finite"),
        ([row(float("inf"), "tcp", "normal")], "negative or not finite"),
    ],
)
@pytest.mark.parametrize("name", ["nsl-kdd", "nsl-kdd-binary"])
def test_damaged_rows(folder: Path, rows: list[str], complaint: str, name: str) -> None:
    (folder / TRAIN).write_text("\n".join(rows))
    with pytest.raises(DataError, match=rf"KDDTrain\+\.txt: .*{complaint}"):
        load_dataset(name, folder)


def test_a_test_file_without_any_known_label(folder: Path) -> None:
    (folder / TEST).write_text(TEST_ROWS[1])
    with pytest.raises(DataError, match="has no row with a label of the train rows"):
        load_dataset("nsl-kdd", folder)


def test_a_truncated_gzip(folder: Path) -> None:
    path = folder / f"{TEST}.gz"
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"KDDTest\+\.txt\.gz: the compressed data is damaged or truncated"):
        load_dataset("nsl-kdd", folder)


def test_real_nsl_kdd(real: Callable[..., Dataset]) -> None:
    data = real("nsl-kdd")
    assert data.x_train.shape == (125_973, 122)
    assert data.x_test.shape == (22_544 - 3_750, 122)
    assert data.classes == 23
    assert np.bincount(data.y_train).max() == 67_343
    numbers = data.x_train[:, :38].astype(np.float64)
    assert np.abs(numbers.mean(axis=0)).max() < 1e-5
    assert sorted(set(numbers.std(axis=0).round(4))) == [0, 1]
    assert (data.x_train[:, 38:].sum(axis=1) == 3).all()


@pytest.mark.slow
def test_real_nsl_kdd_binary(real: Callable[..., Dataset]) -> None:
    data = real("nsl-kdd-binary", "nsl-kdd")
    assert np.bincount(data.y_train).tolist() == [67_343, 125_973 - 67_343]
    assert np.bincount(data.y_test).tolist() == [9_711, 22_544 - 9_711]
