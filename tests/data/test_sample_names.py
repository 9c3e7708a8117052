from __future__ import annotations

import fedrelay as fr
from fedrelay.data.public_samples import with_public
from fedrelay.data.sample_names import sample_names

ROWS = {
    "who": [f"P{row}" for row in range(12)],
    "age": [float(row) for row in range(12)],
    "site": ["north", "south"] * 6,
    "ill": [0, 1] * 6,
}


def test_samples_have_numbers():
    data = fr.load_data("digits", clients=3)
    assert {name: column.tolist() for name, column in sample_names(data).items()} == {"sample": list(range(359))}


def test_some_samples_keep_their_numbers():
    data = fr.load_data("digits", clients=3)
    some = fr.load_data("digits", clients=3, test_samples=20)
    numbers = sample_names(some)["sample"]
    assert len(numbers) == 20
    assert (data.test.select(numbers).y == some.test.y).all()
    fewer = with_public(some, 1, seed=1)
    kept = sample_names(fewer)["sample"]
    assert len(kept) == fewer.test.size == 10
    assert (data.test.select(kept).x == fewer.test.x).all()


def test_hospitals_are_known():
    names = sample_names(fr.load_data("heart-disease"))
    assert list(names) == ["sample", "client"]
    assert sorted(set(names["client"])) == ["cleveland", "hungarian", "switzerland", "va"]


def test_rows_of_tables_have_ids():
    data = fr.federate_table(ROWS, target="ill", client="site", id="who", test=0.5)
    assert data.sample_shape == (1,), "ids are not learned from"
    names = sample_names(data)
    assert list(names) == ["sample", "row", "id", "client"]
    assert names["id"].tolist() == [f"P{row - 1}" for row in names["row"]]
    assert names["client"].tolist() == [ROWS["site"][row - 1] for row in names["row"]]


def test_a_test_table_may_lack_ids_and_clients():
    test = {name: ROWS[name][:4] for name in ("age", "ill")}
    names = sample_names(fr.federate_table(ROWS, target="ill", client="site", id="who", test=test))
    assert {name: column.tolist() for name, column in names.items()} == {
        "sample": [0, 1, 2, 3],
        "row": [1, 2, 3, 4],
        "id": [""] * 4,
        "client": [""] * 4,
    }
