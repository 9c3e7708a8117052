"""CSV files: what is read, and what is refused in one line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.data.csv_table import read_columns
from fedrelay.errors import DataError


@pytest.fixture
def columns(tmp_path):
    def read(text):
        path = tmp_path / "own.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_columns(path)

    return read


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2\n3,4", "\ufeffa,b\r\n1,2\r\n\r\n3,4\r\n\r\n", '"a","b"\n"1"," 2"\n3,4\n', "\n a , b \n1, 2\n3,4\n"],
)
def test_forms_that_programs_write(text, columns):
    assert columns(text) == {"a": ["1", "3"], "b": ["2", "4"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "needs a line of column names, then one line per sample"),
        ("\n \n", "needs a line of column names"),
        ("a,b\n", "needs a line of column names"),
        ("1,0\n2,1\n", "line 1 should have column names but has only numbers; add names"),
        ("a;b\n1;0\n", "has one column; separate columns by commas, not semicolons"),
        ("a,a\n1,2\n", "duplicate column 'a'"),
        ("a,b\n1,0\n1,2,3\n", "row 2 has 3 values for 2 columns"),
        ("a,b\n1\n", "row 1 has 1 values for 2 columns"),
        (b"a,b\n1,\xff\n", "is not UTF-8 text"),
        ('a,b\n"' + "1" * 140_000, "line 2: field larger than field limit"),
    ],
)
def test_the_first_mistake_is_named(text, message, columns):
    with pytest.raises(DataError, match=rf"own\.csv: {message}"):
        columns(text)


@given(st.binary(max_size=60) | st.text("0123456789.,-einfa\n\"'; ", max_size=60).map(str.encode))
@settings(max_examples=60)
def test_anything_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "any.csv"
    path.write_bytes(content)
    try:
        found = read_columns(path)
    except DataError as error:
        said = str(error)
    else:
        said = "read"
        assert len({len(cells) for cells in found.values()}) == 1
    assert len(said.splitlines()) == 1
