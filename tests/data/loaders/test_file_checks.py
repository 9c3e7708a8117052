import gzip
from pathlib import Path

import numpy as np
import pytest

from fedrelay.data.loaders.file_checks import capacity, checked_labels, integers, read_text, reading, renumbered
from fedrelay.errors import DataError

HERE = Path("labels")


def test_labels_become_64_bit_integers() -> None:
    labels = checked_labels(HERE, np.array([[2], [0]], np.uint8), classes=3, samples=2)
    assert labels.dtype == np.int64
    assert labels.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ([0, 1, 3], "has the label 3; labels are 0 to 2"),
        ([0, -1, 1], "has the label -1"),
        ([0, 1], "has 2 labels for 3 samples"),
        ([0.0, 1.0, 2.0], "its labels are float64"),
        ([0, 1, 2**70], "its labels are object"),
        (["a", "b", "c"], "its labels are <U1"),
        ([[0], [1, 2], [0]], "its labels are not a list of integers"),
        ([[0, 1], [1, 2], [0, 0]], r"of shape \(3, 2\)"),
    ],
)
def test_bad_labels_are_named(values: list[object], complaint: str) -> None:
    with pytest.raises(DataError, match=f"labels: .*{complaint}"):
        checked_labels(HERE, values, classes=3, samples=3)


def test_no_samples_at_all_are_refused() -> None:
    with pytest.raises(DataError, match="has no samples"):
        checked_labels(HERE, [], classes=3, samples=0)


def test_an_empty_list_is_a_row_of_no_integers() -> None:
    assert integers(HERE, [], "labels").shape == (0,)


def test_ids_are_renumbered_without_gaps() -> None:
    assert renumbered(np.array([70, 5, 70, 9])).tolist() == [2, 0, 2, 1]
    assert renumbered(np.array(["b", "a"])).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("error", "complaint"),
    [
        (EOFError("ended"), "truncated"),
        (gzip.BadGzipFile("CRC"), "truncated"),
        (PermissionError(13, "Permission denied"), "cannot be read .Permission denied"),
        (MemoryError(), "does not fit in memory"),
    ],
)
def test_every_failure_of_reading_names_the_file(error: Exception, complaint: str) -> None:
    with pytest.raises(DataError, match=f"labels: .*{complaint}"), reading(HERE):
        raise error


def test_text_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"ab\xff")
    with pytest.raises(DataError, match=r"text: is not UTF-8 text .*at byte 2"):
        read_text(path)


def test_a_compressed_file_may_hold_more_than_its_size(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a", tmp_path / "a.gz"
    for path in (plain, packed):
        path.write_bytes(bytes(10))
    assert capacity(plain) == 10
    assert capacity(packed) == 10_320
