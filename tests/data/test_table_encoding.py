"""Tables as model inputs, on rows that can be checked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fedrelay.data.table_encoding import NumberSums, TableStatistics, numeric_column
from fedrelay.errors import DataError

NORTH = {"age": ["2", "4"], "weight": ["1", ""], "town": ["oslo", "bergen"], "pain": ["yes", "?"]}
SOUTH = {"age": ["6"], "weight": ["3"], "town": ["oslo"], "pain": ["no"]}
CATEGORICAL = ("town", "pain")


@pytest.fixture
def statistics() -> TableStatistics:
    return TableStatistics.of(NORTH, CATEGORICAL) + TableStatistics.of(SOUTH, CATEGORICAL)


def test_statistics_of_clients_add_up_to_those_of_all_rows(statistics):
    together = {name: [*NORTH[name], *SOUTH[name]] for name in NORTH}
    assert statistics == TableStatistics.of(together, CATEGORICAL)
    assert statistics.rows == 3
    assert statistics.numbers == {"age": NumberSums(3, 12, 56), "weight": NumberSums(2, 4, 10)}
    assert statistics.categories == {"town": {"oslo": 2, "bergen": 1}, "pain": {"yes": 1, "no": 1}}


def test_rows_are_scaled_imputed_and_marked(statistics):
    assert statistics.encoding().feature_names == [
        *("age", "weight", "weight missing", "town = bergen", "town = oslo"),
        *("pain = no", "pain = yes", "pain missing"),
    ]
    step = 2 / np.sqrt(8 / 3)
    expected = [
        [-step, -1, 0, 0, 1, 0, 1, 0],
        [0, 0, 1, 1, 0, 1, 0, 1],  # the mean weight; of two equally frequent answers the first by name
    ]
    encoded = statistics.encoding().encode(NORTH)
    assert encoded.dtype == np.float32
    np.testing.assert_allclose(encoded, expected, rtol=1e-6)


def test_an_unknown_category_is_zeros(statistics):
    encoded = statistics.encoding().encode({"age": ["4"], "weight": ["2"], "town": ["rome"], "pain": ["no"]})
    assert encoded.tolist() == [[0, 0, 0, 0, 0, 1, 0, 0]]


def test_a_constant_or_unknown_column_becomes_zeros():
    table = {"same": ["7", "7"], "never": ["", "?"]}
    statistics = TableStatistics.of(table, ())
    assert statistics.encoding().encode(table).tolist() == [[0, 0, 1], [0, 0, 1]]


def test_a_column_that_is_constant_at_one_client_keeps_the_shared_scale():
    own, other = TableStatistics.of({"dose": ["500", "500"]}, ()), TableStatistics.of({"dose": ["300", "700"]}, ())
    number = (own + other).encoding().with_numbers_of(own).numbers["dose"]
    assert (number.shift, number.scale) == (500, pytest.approx(np.sqrt(20_000)))
    assert (own + other).encoding().with_numbers_of(other).numbers["dose"].scale == 200


@pytest.mark.parametrize("cell", ["high", "inf", "nan", "1e300"])
def test_a_cell_that_is_no_number_is_named(cell):
    with pytest.raises(DataError, match=f"column 'age', row 2: '{cell}' is not a finite float32 number"):
        numeric_column({"age": ["1", cell]}, "age")
