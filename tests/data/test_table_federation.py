"""Tables among clients: who knows which sums, and what every row becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.data.table_federation import TableFederation, shared_encoding
from fedrelay.errors import DataError, SpecError

TRAIN = {
    "age": [1, 3, 5, 10, 30, 20, None, 20],
    "town": ["oslo", "rome", "oslo", "oslo", "oslo", "", "rome", "bern"],
    "site": ["a"] * 3 + ["b"] * 5,
    "ill": ["no", "yes", "no", "no", "yes", "yes", "no", "no"],
}
TEST = {"age": [3, 20, 11.125, 1000], "town": ["oslo"] * 4, "site": ["a", "b", "c", "a"], "ill": ["no", "yes"] * 2}


def made(rows: Any = TRAIN, **settings: Any) -> TableFederation:
    found = fr.federate_table(rows, **{"target": "ill", "client": "site", "test": TEST, **settings})
    assert isinstance(found, TableFederation)
    return found


def ages(federation: Any, client: int | None = None) -> list[float]:
    samples = federation.test if client is None else federation.train_samples(client)
    return samples.x[:, 0].tolist()


def standardised(values: list[float], known: list[float]) -> Any:
    return pytest.approx((np.array(values) - np.mean(known)) / np.std(known), rel=1e-6, abs=1e-7)


ALL = [1, 3, 5, 10, 30, 20, 20]
MEAN = float(np.mean(ALL))


def test_shared_sums_are_those_of_one_pass_over_the_train_rows():
    data = made()
    number = data.shared.encoding.numbers["age"]
    assert number.missing == number.shift == pytest.approx(MEAN, rel=1e-15)
    assert number.scale == pytest.approx(np.std(ALL), rel=1e-12)
    assert number.marked
    town = data.shared.encoding.categories["town"]
    assert (town.categories, town.missing, town.marked) == (("bern", "oslo", "rome"), "oslo", True)
    assert data.shared.labels == ("no", "yes")
    assert (data.task, data.class_count, data.sample_shape) == ("binary", 2, (6,))


def test_shared_scaling():
    data = made()
    assert ages(data, 0) == standardised([1, 3, 5], ALL)
    assert ages(data, 1) == standardised([10, 30, 20, MEAN, 20], ALL)
    assert ages(data) == standardised(TEST["age"], ALL)
    north, south = (data.train_samples(client) for client in range(2))
    assert north.x[:, 1].tolist() == [0, 0, 0]
    assert south.x[:, 1].tolist() == [0, 0, 0, 1, 0]  # no age
    assert south.x[2, 2:].tolist() == [0, 1, 0, 1]  # no town: the most frequent one, and a mark
    assert south.y.tolist() == [0, 1, 1, 0, 0]


def test_every_client_scales_by_its_own_numbers():
    data = made(scaling="client")
    assert ages(data, 0) == standardised([1, 3, 5], [1, 3, 5])
    assert ages(data, 1) == standardised([10, 30, 20, 20, 20], [10, 30, 20, 20])
    a, b, unknown, far = ages(data)
    assert a == 0 and b == 0  # noqa: PT018  # the means of their own clients
    assert [unknown] == standardised([11.125], ALL)  # of no client: the shared ones
    assert [far] == standardised([1000], [1, 3, 5])
    assert made().train_samples(1).x[:, 2:].tolist() == data.train_samples(1).x[:, 2:].tolist()


def test_a_column_that_a_client_does_not_have_is_scaled_by_the_shared_numbers():
    data = made({**TRAIN, "age": [None] * 3 + TRAIN["age"][3:]}, scaling="client")
    known = [10, 30, 20, 20]
    assert ages(data, 0) == [0, 0, 0]
    assert ages(data)[:2] == standardised([3, 20], known)


def test_clients_that_mix_names_have_no_test_rows_of_their_own():
    data = made(scaling="client", partition="iid", clients=2)
    assert ages(data) == standardised(TEST["age"], ALL)


def test_no_scaling_and_no_marks():
    data = made(scaling="none", mark_missing=False)
    assert ages(data, 0) == [1, 3, 5]
    assert ages(data, 1) == pytest.approx([10, 30, 20, MEAN, 20], rel=1e-7)
    assert data.shared.encoding.feature_names == ["age", "town = bern", "town = oslo", "town = rome"]


def test_test_rows_change_nothing_but_themselves():
    other = made(test={**TEST, "age": [-5000, 0, 0, 0], "town": ["kiel"] * 4})
    assert other.shared == made().shared
    assert other.train_samples(1).x.tolist() == made().train_samples(1).x.tolist()
    assert other.test.x[:, 2:].sum() == 0  # a town that no train row has


def test_a_share_of_the_rows_of_every_client_and_label_is_for_testing():
    rows = {"x": np.arange(100), "site": ["a"] * 40 + ["b"] * 60, "ill": [0, 1] * 50}
    data = made(rows, test=0.2)
    assert data.sample_counts().tolist() == [32, 48]
    assert np.bincount(data.test.y).tolist() == [10, 10]
    trained = np.concatenate([made(rows, test=0.2, scaling="none").train_samples(k).x[:, 0] for k in range(2)])
    assert data.shared.encoding.numbers["x"].shift == pytest.approx(np.mean(trained), rel=1e-12)
    assert made(rows, test=0.2, seed=7).test.x.equal(data.test.x)


def test_every_client_and_label_keeps_a_train_row():
    rows = {"x": np.arange(9), "site": list("aaaaabbcd"), "ill": [0, 1, 2, 1, 0, 0, 1, 1, 0]}
    data = made(rows, test=0.99)
    assert data.sample_counts().tolist() == [2, 1, 1, 1]
    assert data.class_count == 3
    assert data.test.size == 4


def test_ordinary_partitions_and_regression():
    rows = {"x": np.arange(60), "price": np.arange(60) / 8 + 0.5}
    data = fr.federate_table(rows, target="price", clients=4)
    assert (data.task, data.class_count, data.sample_counts().tolist()) == ("regression", 0, [12] * 4)
    whole = fr.federate_table({**rows, "price": np.arange(60)}, target="price", task="regression", clients=2)
    assert whole.train_samples(0).y.dtype.is_floating_point
    labels = fr.federate_table({**rows, "price": np.arange(60) % 3}, target="price", clients=3, alpha=1)
    assert (labels.task, labels.class_count) == ("classification", 3)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"test": {**TEST, "ill": ["no", "no", "no", "maybe"]}},
            "no train row has the label 'maybe'; labels are no, yes",
        ),
        ({"test": {name: TEST[name] for name in ("age", "town")}}, "test table: has no column 'ill'"),
        (
            {"client": "age", "drop": ["site"], "rows": {**TRAIN, "age": list("abcdefgh")}, "test": 0.2},
            "leaves no test rows",
        ),
        ({"rows": {**TRAIN, "ill": ["no"] * 8}, "test": 0.2}, "all train rows have the same label"),
        (
            {"rows": {**TRAIN, "age": [1, 1e300, *[1] * 6]}},
            "table: column 'age', row 2: 1e\\+300 is not a finite float32",
        ),
        (
            {"rows": {**TRAIN, "age": [0, 1e-3] * 4}, "test": {**TEST, "age": [0, 3e38, 0, 0]}},
            "test table: column 'age', row 2: scaled, the number is too large for float32",
        ),
    ],
)
def test_rows_that_do_not_fit(settings, problem):
    with pytest.raises(DataError, match=problem):
        made(**settings)


def test_wrong_settings():
    with pytest.raises(SpecError, match="scaling: must be 'shared', 'client' or 'none'"):
        made(scaling="global")
    with pytest.raises(SpecError, match=r"test: must be a share between 0 and 1, or a .csv or .parquet file, got 1.5"):
        made(test=1.5)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, rows in (("patients.csv", TRAIN), ("tests.csv", TEST)):
        lines = [
            ",".join(rows),
            *(",".join("" if cell is None else str(cell) for cell in row) for row in zip(*rows.values(), strict=True)),
        ]
        (tmp_path / name).write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


TABLE = {"target": "ill", "client": "site", "test": "tests.csv"}


def test_a_spec_and_a_call_make_the_same_federation(files):
    spec = fr.load_data("table", path="patients.csv", table=TABLE)
    assert spec.train_samples(1).x.equal(made().train_samples(1).x)
    assert spec.test.x.equal(made().test.x)
    assert spec.fingerprint() == fr.load_data("patients.csv", table=TABLE).fingerprint()
    assert spec.fingerprint() == fr.federate_table("patients.csv", **TABLE).fingerprint()
    assert spec.name == "patients"


def test_the_ledger_counts_the_sums_and_the_encoding(files):
    result = fr.run("fedseq", data={"name": "patients.csv", "table": TABLE}, rounds=1, fraction=1, out="run")
    setup = json.loads((files / "run" / "ledger.jsonl").read_text().splitlines()[0])
    # Each client: rows, three numbers of age; categories of town with a count each; labels.
    a, b = 8 + 24 + 8 * 2 + len("osloromenoyes"), 8 + 24 + 8 * 3 + len("osloromebernnoyes")
    # Mean and deviation of age, three categories and which replaces a missing one, two marks, two labels.
    encoding = 16 + len("bernoslorome") + 8 + 2 + len("noyes")
    assert setup["payloads"] == {"table sums": a + b, "table encoding": 2 * encoding}
    assert (setup["round"], setup["c2s"], setup["s2c"]) == (0, 2, 2)
    own = fr.run("fedseq", data=made(), rounds=1, fraction=1)
    assert own.weights_sha256 == result.weights_sha256
    assert own.bytes == result.bytes


def test_an_exported_model_comes_with_its_encoding(files):
    fr.run("fedavg", data={"name": "patients.csv", "table": TABLE}, rounds=1, fraction=1, out="run")
    card = json.loads((fr.export("run", "exported").folder / "model.json").read_text())
    numbers = {
        "age": {
            "missing": pytest.approx(MEAN),
            "shift": pytest.approx(MEAN),
            "scale": pytest.approx(np.std(ALL)),
            "marked": True,
        }
    }
    towns = {"town": {"categories": ["bern", "oslo", "rome"], "missing": "oslo", "marked": True}}
    assert card["inputs"]["table"] == {
        "features": ["age", "age missing", "town = bern", "town = oslo", "town = rome", "town missing"],
        "numbers": numbers,
        "categories": towns,
        "scaled_per_client": False,
        "clients": [],
    }
    assert card["outputs"]["labels"] == ["no", "yes"]


def test_a_model_of_clients_with_own_scaling_comes_with_their_numbers(files):
    table = {**TABLE, "scaling": "client"}
    fr.run("fedavg", data={"name": "patients.csv", "table": table}, rounds=1, fraction=1, out="run")
    exported = fr.export("run", "exported")
    found = json.loads((exported.folder / "model.json").read_text())["inputs"]["table"]
    assert found["scaled_per_client"]
    assert found["numbers"]["age"]["shift"] == pytest.approx(MEAN)
    shifts = {tuple(each["names"]): each["numbers"]["age"]["shift"] for each in found["clients"]}
    assert shifts == {("a",): 3, ("b",): 20}
    scales = [each["numbers"]["age"]["scale"] for each in found["clients"]]
    assert scales == pytest.approx([np.std([1, 3, 5]), np.std([10, 30, 20, 20])])
    assert "for rows of a client use its `numbers`" in exported.card.read_text()


def test_a_program_takes_encoded_rows_of_a_table_and_says_so(files):
    result = fr.run("fedavg", data={"name": "patients.csv", "table": TABLE}, model="logistic", rounds=1, out="run")
    exported = fr.export("run", "exported", format="torch-export")
    inputs = json.loads((exported.folder / "model.json").read_text())["inputs"]
    assert (inputs["shape"], inputs["scaled_by_the_model"]) == (["batch", 6], False)
    card = exported.card.read_text()
    assert "Rows must be encoded first" in card
    assert "outputs = net(x)  # encoded rows" in card
    x = made().test.x
    weight, bias = result.model.values()
    torch.testing.assert_close(torch.export.load(exported.model).module()(x), x @ weight.T + bias)


def test_sums_without_noise_are_warned_of(caplog):
    fr.plan("fedavg", data=made(), rounds=1, fraction=1)
    fr.plan("fedavg+dp", clients=4, rounds=1)
    assert "epsilon does not cover them" not in caplog.text
    fr.plan("fedavg+dp", data=made(), rounds=1, fraction=1)
    assert "clients send sums of their tables without noise; epsilon does not cover them" in caplog.text


def test_nothing_is_shared_where_all_rows_are_in_one_place(files):
    fr.run("centralized", data={"name": "patients.csv", "table": TABLE}, rounds=1, out="run")
    assert json.loads((files / "run" / "ledger.jsonl").read_text().splitlines()[0])["round"] == 1


def test_a_run_on_a_table_goes_on_from_another_folder(files, monkeypatch):
    fr.run("fedavg", data={"name": "patients.csv", "table": TABLE}, rounds=1, fraction=1, out="run")
    (files / "elsewhere").mkdir()
    monkeypatch.chdir(files / "elsewhere")
    assert fr.resume("../run", rounds=2).rounds == 2


@pytest.mark.parametrize("data", [{"name": "~/patients.csv"}, {"name": "table", "path": "~/patients.csv"}])
def test_a_run_on_a_table_in_the_home_folder_goes_on(data, files, monkeypatch):
    monkeypatch.setenv("HOME", str(files))
    (files / "elsewhere").mkdir()
    monkeypatch.chdir(files / "elsewhere")
    fr.run("fedavg", data={**data, "table": {**TABLE, "test": 0.2}}, rounds=1, fraction=1, out="run")
    assert fr.resume("run", rounds=2).rounds == 2


def test_the_task_of_a_spec_decides_what_the_target_is(files):
    with pytest.raises(DataError, match="needs numbers"):
        fr.run("fedavg", data={"name": "patients.csv", "table": TABLE}, task="regression", rounds=1)
    ages_as_target = {"target": "age", "client": "site"}
    rows = files / "ages.csv"
    rows.write_text("age,site,x\n" + "".join(f"{age // 4},{'ab'[age % 2]},{age / 2}\n" for age in range(40)))
    data = {"name": "ages.csv", "table": ages_as_target}
    assert fr.run("fedavg", data=data, task="regression", rounds=1).metric == "rmse"
    assert fr.run("fedavg", data=data, rounds=1).metric == "accuracy"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"name": "table"}, "data.path: is required with data.name 'table'"),
        ({"name": "a.csv", "path": "b.csv"}, "data.path: has no effect, because data.name is the file 'a.csv'"),
        ({"name": "digits", "table": {"target": "ill"}}, "data.table: has no effect with 'digits'"),
        ({"name": "patients.csv"}, "data.table.target: is required"),
        ({"name": "patients.csv", "table": {"target": "il"}}, "data.table.target: unknown column 'il'"),
    ],
)
def test_specs_that_do_not_fit(files, settings, problem):
    with pytest.raises(SpecError, match=problem):
        fr.run("fedavg", data=settings, rounds=1)


def test_other_data_share_no_encoding():
    x, y = np.arange(8.0).reshape(4, 2), [0, 1, 0, 1]
    assert shared_encoding(fr.federate(x, y, x, y, clients=1, partition="iid")) is None


@pytest.mark.parametrize("empty", [[None] * 6, ["NA", "?", "", "", "", ""]], ids=["numbers", "text"])
def test_a_column_without_any_value_is_refused(empty):
    rows = {"age": [1, 2, 3, 4, 5, 6], "empty": empty, "ill": [0, 1, 0, 1, 0, 1]}
    problem = r"^no train row of any client has a value in 'empty'; name such columns in drop \(data\.table\.drop; "
    with pytest.raises(DataError, match=problem):
        fr.federate_table(rows, target="ill", clients=2, partition="iid", test=0.4)
    assert fr.federate_table(rows, target="ill", drop=["empty"], clients=2, test=0.4).sample_shape == (1,)
