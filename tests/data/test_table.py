"""The roles of columns, and one line for each way in which they do not fit."""

from __future__ import annotations

import datetime
from pathlib import Path

import numpy as np
import pandas
import pytest

from fedrelay.data.table import Table, sorted_names, table_of
from fedrelay.data.table_column_reader import frame_columns, read_table_columns
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import TableSettings

ROWS = {
    "id": ["a", "b", "c"],
    "age": [40, 50, None],
    "sex": [0, 1, 1],
    "town": ["oslo", "", "rome"],
    "site": [10, 9, 10],
    "ill": [1, 0, 1],
}


def made(task: str | None = None, rows=ROWS, **settings) -> Table:
    return table_of(frame_columns(rows), TableSettings(**{"target": "ill", **settings}), "rows.csv", task)


def test_roles():
    table = made(client="site", categorical=("sex",), drop=("id",))
    assert list(table.inputs) == ["age", "sex", "town"]
    assert table.categorical == ("sex", "town")
    assert table.inputs["sex"].tolist() == ["0", "1", "1"]
    assert table.clients is not None
    assert table.clients.tolist() == ["10", "9", "10"]
    assert table.labels(np.arange(3)) == ("0", "1")
    assert table.encoded_targets(("0", "1")).tolist() == [1, 0, 1]


def test_names_of_numbers_are_in_the_order_of_numbers():
    assert sorted_names(["10", "9", "10"]) == ("9", "10")
    assert sorted_names(["10", "9", "x"]) == ("10", "9", "x")
    assert sorted_names(["2", "1.0", "01", "1"]) == ("01", "1", "1.0", "2")
    assert sorted_names(["9", "nan", "10"]) == ("10", "9", "nan")  # NaN has no place among numbers
    assert sorted_names(["9", "inf", "10"]) == ("10", "9", "inf")


@pytest.mark.parametrize(
    ("target", "task", "labels"),
    [
        (["no", "yes", "no"], None, True),
        ([1, 2, 2], None, True),
        ([1.5, 2, 2], None, False),
        ([1, 2, 2], "regression", False),
        ([1, 2, 2], "classification", True),
        ([1, 2, 2], "mine:task", True),
    ],
)
def test_the_target_says_whether_it_holds_labels(target, task, labels):
    assert made(task, {**ROWS, "ill": target}).has_labels is labels


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"target": None}, "target: is required: the column to predict; columns are id, age, sex, town, site, ill"),
        (
            {"target": "il"},
            r"target: unknown column 'il' \(did you mean 'ill'\?\); allowed: id, age, sex, town, site, ill",
        ),
        ({"client": "ward"}, "client: unknown column 'ward'"),
        ({"drop": ("ag",)}, "drop: unknown column 'ag'"),
        ({"categorical": ("sec",)}, "categorical: unknown column 'sec'"),
        ({"client": "ill"}, "client: the column 'ill' already has the role target"),
        ({"client": "site", "categorical": ("site",)}, "categorical: the column 'site' already has the role client"),
    ],
)
def test_unknown_columns_and_roles(settings, problem):
    with pytest.raises(SpecError, match=problem):
        made(**settings)


def many(values):
    return {"x": np.arange(len(values)), "ill": values}


@pytest.mark.parametrize(
    ("rows", "task", "problem"),
    [
        ({**ROWS, "ill": [1, None, None]}, None, r"row 2 has no value in the target column 'ill' \(2 of 3 rows\)"),
        (
            {**ROWS, "ill": ["a", "b", "b"]},
            "regression",
            "'ill' has text, such as 'a'; the task regression needs numbers",
        ),
        ({**ROWS, "ill": [0.5, 1, 1]}, "binary", "has numbers such as 0.5, not labels"),
        (many(range(101)), None, "has 101 different whole numbers; set the task to classification or regression"),
        ({"ill": [0, 1]}, None, "has no columns to learn from besides ill"),
        (
            {"x": [f"t{row}" for row in range(101)], "ill": np.arange(101) % 2},
            None,
            "column 'x' has 101 different texts, such as 't0'; correct them, or name the column in drop, "
            "or in categorical if these are categories, or in id if they name the rows",
        ),
        (
            {**ROWS, "age": ["40", "5O", "60"]},
            None,
            "column 'age', row 2: '5O' is not a number, but most of the column is; correct or empty the cell, or name "
            "the column in drop, or in categorical if these are categories",
        ),
        ({**ROWS, "age": [40, 50, np.inf]}, None, "column 'age', row 3: inf is not a finite float32 number"),
        (
            {**ROWS, "age": [40, 1e300, None]},
            None,
            r"row 2: 1e\+300 is not a finite float32 number, which are at most 3",
        ),
        ({**ROWS, "age": [10**400, 5, None]}, None, "column 'age', row 1: inf is not a finite float32 number"),
        ({**ROWS, "ill": [0.5, -1e39, 2]}, None, r"column 'ill', row 2: -1e\+39 is not a finite float32 number"),
        ({**ROWS, "ill": ["0.5", "-", "2"]}, None, "column 'ill', row 2: '-' is not a number, but most targets are"),
        (
            {**ROWS, "age": ["40", "", "-6,5"]},
            None,
            "column 'age', row 3: '-6,5' has a decimal comma; write all numbers of the column with a point, or name "
            "the column in drop, or in categorical if these are categories",
        ),
        ({**ROWS, "age": ["4,0", "5,5", "6,0"]}, None, "column 'age', row 1: '4,0' has a decimal comma"),
        (
            {**ROWS, "ill": ["1", "2,5", ",5"]},
            "regression",
            "column 'ill', row 2: '2,5' has a decimal comma",
        ),
    ],
)
def test_columns_that_do_not_fit(rows, task, problem):
    with pytest.raises(DataError, match=problem) as error:
        made(task, rows)
    assert str(error.value).startswith("rows.csv: ")


def test_text_among_numbers_is_accepted_where_the_settings_say_so():
    codes = {**ROWS, "age": ["40", "5O", "60"]}
    assert "age" in made(rows=codes, categorical=("age",)).categorical
    assert "age" not in made(rows=codes, drop=("age",)).inputs
    assert "age" in made(rows={**ROWS, "age": ["40", "old", "young"]}).categorical
    assert "age" in made(rows={**ROWS, "age": ["40", "50", "60"]}).categorical  # typed as text
    assert made("classification", {**ROWS, "ill": ["0", "x", "1"]}).has_labels
    assert "age" in made(rows={**ROWS, "age": ["1,2", "1,3", "other"]}).categorical  # not all are numbers
    assert made("binary", {**ROWS, "ill": ["1,2", "1,3", "1,2"]}).has_labels


def test_a_column_of_numbers_at_one_client_and_of_text_at_another_is_refused():
    rows = {
        "size": ["small", "big", "big", "", "1.5", "2"],
        "site": ["a", "a", "b", "c", "c", "c"],
        "ill": [0, 1, 0, 1, 0, 1],
    }
    problem = (
        r"^rows\.csv: column 'size', row 1 \(client 'a'\): 'small' is not a number, but client 'c' has only numbers in "
        "the column; write it alike at all clients, or name the column in drop, or in categorical if these "
        "are categories$"
    )
    with pytest.raises(DataError, match=problem):
        made(rows=rows, client="site")
    assert "size" in made(rows=rows, client="site", categorical=("size",)).categorical
    assert "size" in made(rows=rows, drop=("site",)).categorical  # who has which rows is not known
    commas = {**rows, "size": ["1,5", "2,5", "3,5", "1", "1.5", "2"]}
    with pytest.raises(DataError, match=r"column 'size', row 1 \(client 'a'\): '1,5' has a decimal comma"):
        made(rows=commas, client="site")


def test_clients_must_be_known():
    with pytest.raises(DataError, match="row 3 has no value in the client column 'age'"):
        made(client="age")
    with pytest.raises(DataError, match="has numbers too large to tell apart; use text"):
        made(rows={**ROWS, "site": [2**53, 2**53 + 1, 1]}, client="site")


def test_a_task_with_several_targets_is_refused():
    with pytest.raises(
        SpecError, match="one target per row, which fits classification, binary, regression, not 'multil"
    ):
        made("multilabel")


def test_rows_of_a_second_table():
    table = made(drop=("id",))
    other = made(rows={"ill": [0], "town": [5], "age": [60], "sex": [1], "site": [1]})
    assert table.joined(other).inputs["town"].tolist() == ["oslo", "", "rome", "5"]
    assert len(table.joined(other)) == 4
    with pytest.raises(DataError, match=r"rows\.csv: has no column 'age'; columns are town, sex, site"):
        table.joined(made(rows={"ill": [0], "town": [5], "sex": [1], "site": [1]}))
    with pytest.raises(DataError, match="column 'age', row 1: 'old' is not a finite float32 number, but the column"):
        table.joined(made(rows={"ill": [0], "town": [5], "age": ["old"], "sex": [1], "site": [1]}))


DAYS = np.array(["2026-01-01", "2026-01-02", "NaT"], dtype="datetime64[ns]")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (["2026-01-01", "2026-01-02 10:30", ""], "has dates, such as '2026-01-01'; make them numbers, such as an age"),
        (DAYS, "has dates, but must have numbers or text; convert it, or name it in drop"),
        (pandas.Series(DAYS), "has dates, but must have numbers or text"),
        (DAYS - DAYS[0], "has durations, but must have numbers or text"),
        ([datetime.date(2026, 1, 1), None, None], "has values of type date, but must have numbers or text"),
    ],
)
def test_dates_are_refused_unless_they_are_dropped(values, problem):
    rows = {**ROWS, "day": values}
    with pytest.raises(DataError, match=f"rows.csv: column 'day' {problem}"):
        made(rows=rows)
    assert "day" not in made(rows=rows, drop=("day",)).inputs


def test_dates_may_be_categories_or_clients():
    rows = {**ROWS, "day": ["2026-01-01", "2026-01-02", "2026-01-01"]}
    assert "day" in made(rows=rows, categorical=("day",)).categorical
    assert made(rows=rows, client="day").clients is not None


def test_roles_decide_whether_digits_are_names(tmp_path):
    def read(text: str, **options) -> Table:
        (tmp_path / "rows.csv").write_text(text)
        columns = read_table_columns(Path(tmp_path / "rows.csv"))
        return table_of(
            columns, TableSettings(target="ill", client="site", categorical=("code",)), "rows.csv", **options
        )

    table = read("code,ward,age,site,ill\n01,0A,40,007,00\n1,B,50,7,01\n")
    assert table.inputs["code"].tolist() == ["01", "1"]
    assert table.inputs["age"].tolist() == [40, 50]
    assert table.clients is not None
    assert table.clients.tolist() == ["007", "7"]
    assert table.labels(np.arange(2)) == ("00", "01")
    # A ward of the test rows is text, because wards of the train rows are.
    tested = table.joined(read("code,ward,age,site,ill\n01,01,60,7,01\n", for_testing=True))
    assert tested.inputs["ward"].tolist() == ["0A", "B", "01"]
    assert tested.inputs["age"].tolist() == [40, 50, 60]
    with pytest.raises(DataError, match="column 'age', row 1: '1e300' is not a finite float32 number"):
        table.joined(read("code,ward,age,site,ill\n01,01,1e300,7,01\n", for_testing=True))
    assert read("code,ward,age,site,ill\n1E400,0A,40,2E500,1\n").inputs["code"].tolist() == ["1E400"]


def test_numbers_too_large_to_tell_apart_are_no_names():
    large = {**ROWS, "sex": [2**53, 2**53 + 1, 1]}
    with pytest.raises(DataError, match="column 'sex' has numbers too large to tell apart; use text"):
        made(rows=large, categorical=("sex",))
