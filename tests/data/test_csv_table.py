"""Tables: what is read, and where the first mistake is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedrelay.data.csv_table import read_csv_samples
from fedrelay.errors import DataError


@pytest.fixture
def table(tmp_path):
    def read(text, label=None, **options):
        path = tmp_path / "own.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_csv_samples(path, label, 100, **options)

    return read


def test_a_named_column_of_labels(table):
    found = table("age, sick, weight\n40,1,70.5\n50,0,81\n", "sick")
    assert found["x"].tolist() == [[40, 70.5], [50, 81]]
    assert found["x"].dtype == np.float32
    assert found["y"].tolist() == [1, 0]


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2\n3,4", "\ufeffa,b\r\n1,2\r\n\r\n3,4\r\n\r\n", '"a","b"\n"1"," 2"\n3,4e0\n', "\n a , b \n1, 2.0\n+3,4\n"],
)
def test_forms_that_programs_write(text, table):
    found = table(text)
    assert (found["x"].tolist(), found["y"].tolist()) == ([[1], [3]], [2, 4])


def test_without_a_line_of_names(table):
    found = table("1,2,0\n3,4,1\n", header=False)
    assert (found["x"].tolist(), found["y"].tolist()) == ([[1, 2], [3, 4]], [0, 1])
    assert table("1,2,0\n3,4,1\n", "1", header=False)["y"].tolist() == [1, 3]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty; it needs a line of column names"),
        ("\n \n", "is empty"),
        ("1,0\n2,1\n", "line 1 should have column names but has only numbers; add names, or use --no-header"),
        ("a,b\n", "has column names but no samples"),
        ("a\n1\n", "has one column; at least two are needed, for samples and labels"),
        ("a;b\n1;0\n", "has one column; .*separate columns by commas, not semicolons"),
        ("a,a\n1,2\n", "duplicate column 'a'"),
        ("a,b\n1,0\n\n2,x\n", "line 4, column 'b': 'x' is not a number"),
        ("a,b\n1,0\n,1\n", "line 3, column 'a': is empty"),
        ("a,b\n1,0\nnan,1\n", "line 3, column 'a': 'nan' is not a finite number"),
        ("a,b\n1,0\n-inf,1\n", "line 3, column 'a': '-inf' is not a finite number"),
        ("a,b\n1e300,0\n", "line 2, column 'a': '1e300' is not a finite number"),
        ("a,b\n1,nan\n", "line 2, column 'b': 'nan' is not a finite number"),
        ("a,b\n1,0\n1,2,3\n", "line 3 has 3 values for 2 columns"),
        ("a,b\n1\n", "line 2 has 1 values for 2 columns"),
        ("a,b\n1,0.5\n", "line 2, column 'b': 0.5 is not a label; labels are 0, 1, … 99"),
        ("a,b\n1,-1\n", "line 2, column 'b': -1 is not a label"),
        ("a,b\n1,0\n1,1099511627776\n", "line 3, column 'b': 1099511627776 is not a label"),
        ("a,b\n1,100\n", "line 2, column 'b': 100 is not a label"),
        (b"a,b\n1,\xff\n", "is not UTF-8 text"),
        ('a,b\n"' + "1" * 140_000, "line 2: field larger than field limit"),
    ],
)
def test_the_first_mistake_is_named_with_its_place(text, message, table):
    with pytest.raises(DataError, match=rf"own\.csv: {message}"):
        table(text)


def test_an_unknown_column_gets_its_nearest(table):
    with pytest.raises(DataError, match=r"--label: unknown column 'sik' \(did you mean 'sick'\?\); allowed: age, sick"):
        table("age,sick\n40,1\n", "sik")
    with pytest.raises(DataError, match="line 1, column '1': 'age' is not a number"):
        table("age,sick\n40,1\n", header=False)


@given(st.binary(max_size=60) | st.text("0123456789.,-einfa\n\"'; ", max_size=60).map(str.encode), st.booleans())
@settings(max_examples=60)
def test_anything_is_read_or_refused(tmp_path_factory, content, header):
    path = tmp_path_factory.mktemp("any") / "any.csv"
    path.write_bytes(content)
    try:
        found = read_csv_samples(path, None, 100, header=header)
    except DataError as error:
        said = str(error)
    else:
        said = "read"
        assert len(found["x"]) == len(found["y"]) > 0
        assert np.isfinite(found["x"]).all()
    assert len(said.splitlines()) == 1
