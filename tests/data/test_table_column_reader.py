"""Columns as they come out of CSV files, Parquet files and data frames."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas
import pytest

from fedrelay.data.table_column_reader import as_text, frame_columns, is_missing, read_table_columns
from fedrelay.errors import DataError

AGES, TOWNS = [41.5, np.nan, 7.0], ["oslo", "", "rome"]


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    path = tmp_path / "rows.csv"
    path.write_text("age,town,sick\n41.5,oslo,1\nNA,?,0\n7,rome,1\n")
    return path


def check(columns):
    np.testing.assert_array_equal(columns["age"].values, AGES)
    assert columns["town"].values.tolist() == TOWNS
    np.testing.assert_array_equal(columns["sick"].values, [1.0, 0.0, 1.0])
    assert (
        is_missing(columns["town"].values).tolist()
        == is_missing(columns["age"].values).tolist()
        == [False, True, False]
    )


def test_a_csv_file(csv):
    check(read_table_columns(csv))


@pytest.mark.parametrize("word", ["?", "NA", "n/a", "N/A", "#N/A", "<NA>", "NaN", "NULL", "Null", "None"])
def test_words_for_missing_values(tmp_path, word):
    (tmp_path / "rows.csv").write_text(f"age,town\n1,oslo\n{word},{word}\n")
    columns = read_table_columns(tmp_path / "rows.csv")
    np.testing.assert_array_equal(columns["age"].values, [1, np.nan])
    assert (
        columns["town"].values.tolist()
        == frame_columns({"town": ["oslo", word]})["town"].texts.tolist()
        == ["oslo", ""]
    )


@pytest.mark.parametrize("categorical", [False, True])
def test_a_data_frame_and_its_parquet_file(tmp_path, categorical):
    frame = pandas.DataFrame({"age": [41.5, None, 7.0], "town": ["oslo", None, "rome "], "sick": [True, False, True]})
    frame = frame.astype({"town": "category"}) if categorical else frame
    frame.to_parquet(tmp_path / "rows.parquet")
    check(frame_columns(frame))
    check(read_table_columns(tmp_path / "rows.parquet"))


def test_whole_numbers_with_missing_values(tmp_path):
    frame = pandas.DataFrame({"n": pandas.array([3, None], dtype="Int64")})
    frame.to_parquet(tmp_path / "rows.parquet")
    for columns in (
        frame_columns(frame),
        frame_columns({"n": [3, None]}),
        read_table_columns(tmp_path / "rows.parquet"),
    ):
        np.testing.assert_array_equal(columns["n"].values, [3.0, np.nan])


def test_numbers_as_text_have_no_needless_decimals():
    assert as_text(np.array([1.0, np.nan, 0.1, -3, 1, np.nan])).tolist() == ["1", "", "0.1", "-3", "1", ""]
    assert as_text(np.array([-0.0, 0.0])).tolist() == ["0", "0"]
    ids = [4000000000000001, 4000000000000002]
    assert as_text(np.array(ids, dtype=np.float64)).tolist() == [str(each) for each in ids]


def test_codes_in_a_csv_file_stay_as_written(tmp_path):
    (tmp_path / "rows.csv").write_text("code,mixed,visits\n01,01,1.0\n1,0A,\n1234567890123456789,2.50,2\n")
    columns = read_table_columns(tmp_path / "rows.csv")
    assert columns["code"].texts.tolist() == ["01", "1", "1234567890123456789"]
    assert columns["code"].values.tolist() == [1.0, 1.0, 1234567890123456789.0]
    assert columns["mixed"].texts.tolist() == ["01", "0A", "2.50"]
    assert columns["visits"].texts.tolist() == ["1", "", "2"]  # 1.0 is the 1 of other files


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "needs a line of column names"),
        ("age,town\n", "needs a line of column names"),
        ("age,town\n1\n", "row 1 has 1 values for 2 columns"),
        ("age,age\n1,2\n", "duplicate column 'age'"),
        ("1,2\n3,4\n", "line 1 should have column names but has only numbers; add names$"),
    ],
)
def test_a_wrong_csv_file_is_one_line(tmp_path, text, problem):
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(DataError, match=problem) as error:
        read_table_columns(tmp_path / "rows.csv")
    assert str(error.value).startswith(str(tmp_path / "rows.csv"))


def test_files_that_are_no_tables(tmp_path):
    with pytest.raises(DataError, match=r"gone\.csv: file not found"):
        read_table_columns(tmp_path / "gone.csv")
    with pytest.raises(DataError, match=r"is no table; tables are \.csv and \.parquet files"):
        read_table_columns(tmp_path / "rows.xlsx")
    (tmp_path / "rows.parquet").write_text("not Parquet at all")
    with pytest.raises(DataError, match=r"rows\.parquet: is not a Parquet file"):
        read_table_columns(tmp_path / "rows.parquet")


def test_a_missing_pyarrow_is_explained(tmp_path, monkeypatch):
    (tmp_path / "rows.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=r"Parquet needs the package pyarrow; pip install 'fedrelay\[tables\]'"):
        read_table_columns(tmp_path / "rows.parquet")


@pytest.mark.parametrize(
    ("frame", "problem"),
    [
        (3, "must be a path, a pandas DataFrame or a mapping column → values, got int"),
        ({}, "has no rows"),
        ({"age": []}, "has no rows"),
        ({"age": [1, 2], "town": ["oslo"]}, "columns must have the same length, got 1, 2"),
        ({"age": [[1], [2]]}, r"column 'age': must have one value for each row, got shape \[2, 1\]"),
    ],
)
def test_wrong_frames(frame, problem):
    with pytest.raises(DataError, match=problem):
        frame_columns(frame)
