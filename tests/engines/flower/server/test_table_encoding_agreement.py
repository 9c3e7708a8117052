"""Nodes with tables: they share sums, and then train as the local engine does on the same rows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedrelay as fr
from fedrelay.data.holdout import held_out_samples, with_holdout
from fedrelay.data.table_encoding import NumberSums
from fedrelay.engines.flower.connect import _check_data, remote_federation, table_remarks
from fedrelay.engines.flower.job_description import encoding_from_plain
from fedrelay.engines.flower.node.node_table import MIN_ROWS, NodeTable
from fedrelay.engines.flower.node.service import NodeService
from fedrelay.engines.flower.node_facts import parse_facts
from fedrelay.engines.flower.server.node_registration import ListedNode
from fedrelay.engines.flower.server.table_encoding_agreement import agree_on_encoding
from fedrelay.errors import DataError, SpecError
from fedrelay.experiment.spec import DataSettings, TableSettings

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

HEADER = "site,age,town,ill"
SITES = {
    "n00": ["n00,1,oslo,no", "n00,3,rome,yes", "n00,5,oslo,no", "n00,8.5,oslo,yes"],
    "n01": ["n01,10,oslo,maybe", "n01,30,bern,yes", "n01,,rome,yes", "n01,20,,no"],
    "n02": ["n02,7,kiel,no", "n02,7.25,kiel,yes", "n02,9,,no"],
}
TEST = ["n00,3,oslo,no", "n01,20,bern,yes", "x,11,rome,maybe"]
RUN: dict[str, Any] = {"rounds": 2, "fraction": 1.0, "batch_size": 2, "seed": 3}


def write(path: Path, lines: list[str], header: str = HEADER) -> Path:
    path.write_text("\n".join([header, *lines]))
    return path


def node_table(folder: Path, name: str, lines: list[str], header: str = HEADER, **options: Any) -> NodeTable:
    settings = TableSettings(target="ill", drop=("site",), **options.pop("columns", {}))
    return NodeTable.read(write(folder / f"{name}.csv", lines, header), settings, **{"min_rows": 1, **options})


def service(folder: Path, name: str, table: NodeTable, **options: Any) -> NodeService:
    (folder / name).mkdir(exist_ok=True)
    return NodeService(table.encoded_by_itself(), folder / name, table=table, **options)


def facts_of(folder: Path, tables: dict[str, NodeTable], **options: Any) -> dict[str, Any]:
    services = {name: service(folder, name, table, **options) for name, table in tables.items()}
    return {name: parse_facts(json.loads(each.facts().model_dump_json())) for name, each in services.items()}


@pytest.fixture
def local(tmp_path: Path):
    """The same rows in one place."""
    rows = write(tmp_path / "all.csv", [line for lines in SITES.values() for line in lines])
    test = write(tmp_path / "test.csv", TEST)

    def made(**options: Any):
        return fr.federate_table(rows, target="ill", client="site", test=test, **options)

    return made


@pytest.fixture
def federation(tmp_path, make_nodes, local):
    """Nodes that serve the files of the sites, and the server's view of them."""

    def made(test: bool = True, **table: Any):
        found = make_nodes(local())
        tables = {name: node_table(tmp_path, name, lines) for name, lines in SITES.items()}
        for name, each in tables.items():
            found.connection.services[name] = service(tmp_path, name, each)
        data = DataSettings(name="sites", table=TableSettings(**table))
        found.remote = remote_federation(data, facts_of(tmp_path, tables), str(tmp_path / "test.csv") if test else None)
        return found

    return made


@pytest.mark.parametrize(("method", "scaling"), [("fedcyclic", "shared"), ("fedavg", "client"), ("fedcyclic", "none")])
def test_the_same_weights_as_the_local_engine(method, scaling, federation, local, use_nodes, tmp_path):
    here = fr.run(method, data=local(scaling=scaling), workers=1, lanes=1, out=tmp_path / "here", **RUN)
    use_nodes(federation(scaling=scaling))
    data = {"name": "sites", "table": {"scaling": scaling}}
    there = fr.run(method, engine="flower", data=data, out=tmp_path / "there", **RUN)
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    setups = [json.loads((tmp_path / run / "ledger.jsonl").read_text().splitlines()[0]) for run in ("here", "there")]
    assert setups[0]["payloads"] == setups[1]["payloads"]
    assert setups[0]["payloads"].keys() == {"table sums", "table encoding"}


@pytest.mark.parametrize("options", [{}, {"scaling": "client"}, {"mark_missing": False}])
def test_nodes_hold_the_same_samples_bit_for_bit(options, federation, local, tmp_path):
    here, found = local(**options), federation(**options)
    shared = found.remote.shared
    assert shared == here.shared
    for client, name in enumerate(SITES):
        samples = found.connection.services[name].table.encoded(shared).train_samples(0)
        assert samples.x.equal(here.train_samples(client).x)
        assert samples.y.equal(here.train_samples(client).y)
    assert found.remote.class_count == 3
    assert found.remote.sample_shape == here.sample_shape
    assert found.remote.task == "classification"
    if "scaling" not in options:  # the server knows no client of its test rows
        assert found.remote.test.x.equal(here.test.x)


def test_held_out_rows_are_encoded_too_and_nodes_evaluate_on_them(tmp_path, make_nodes, local, use_nodes):
    found = make_nodes(local())
    shares = {"n00": 0.5, "n01": 0.5, "n02": 0.3}
    tables = {name: node_table(tmp_path, name, lines, hold_out=shares[name]) for name, lines in SITES.items()}
    for name, each in tables.items():
        found.connection.services[name] = service(tmp_path, name, each)
    facts = facts_of(tmp_path, tables, share_histogram=True)
    assert [each.tests for each in facts.values()] == [2, 2, 1]
    found.remote = remote_federation(DataSettings(name="sites"), facts, None)
    # Two rows of each node are for training, with these ages: 1 and 8.5, 30 and a missing one, 7 and 7.25.
    assert found.remote.shared.encoding.numbers["age"].shift == 53.75 / 5
    assert [found.remote.histogram(client).tolist() for client in range(3)] == [[0, 1, 1], [0, 0, 2], [0, 1, 1]]
    use_nodes(found)
    result = fr.run("fedavg", engine="flower", data="sites", model="logistic", out=tmp_path / "run", **RUN)
    weight, bias = result.model.values()
    deviation = np.std([1, 8.5, 30, 7, 7.25])
    # age, age missing, town = bern, kiel, oslo, rome; a missing town is kiel, as frequent as oslo, and is not marked
    x = torch.tensor([
        [(3 - 10.75) / deviation, 0, 0, 0, 0, 1],
        [(5 - 10.75) / deviation, 0, 0, 0, 1, 0],
        [(10 - 10.75) / deviation, 0, 0, 0, 1, 0],
        [(20 - 10.75) / deviation, 0, 0, 1, 0, 0],
        [(9 - 10.75) / deviation, 0, 0, 1, 0, 0],
    ])  # fmt: skip
    outputs, labels = x.float() @ weight.T + bias, torch.tensor([2, 1, 0, 1, 1])
    assert result.accuracy == (outputs.argmax(1) == labels).sum().item() / 5
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["loss"] == pytest.approx(torch.nn.functional.cross_entropy(outputs, labels).item(), rel=1e-5)


def test_held_out_cells_are_not_in_the_sums(tmp_path):
    table = node_table(tmp_path, "a", SITES["n00"], hold_out=0.5)
    rows = [line.replace(",3,rome,", ",1000,kiel,") for line in SITES["n00"]]
    changed = node_table(tmp_path, "b", rows, hold_out=0.5)
    assert changed.statistics == table.statistics
    assert table.statistics.numbers == {"age": NumberSums(2, 9.5, 73.25)}
    assert table.statistics.categories == {"town": {"oslo": 2}}


def test_the_histogram_of_a_node_is_in_the_order_of_all_labels(tmp_path):
    tables = {name: node_table(tmp_path, name, lines) for name, lines in SITES.items()}
    agreed = agree_on_encoding(facts_of(tmp_path, tables, share_histogram=True), TableSettings())
    assert agreed is not None
    facts, shared = agreed
    assert shared.labels == ("maybe", "no", "yes")
    assert [each.histogram for each in facts.values()] == [(0, 2, 2), (1, 1, 2), (0, 2, 1)]


def test_a_column_without_values_fits_text_and_numbers(tmp_path):
    empty = node_table(tmp_path, "empty", ["e,,,no", "e,,,yes"])
    full = node_table(tmp_path, "full", SITES["n00"])
    agreed = agree_on_encoding(facts_of(tmp_path, {"empty": empty, "full": full}), TableSettings())
    assert agreed is not None
    _, shared = agreed
    assert (list(shared.encoding.numbers), list(shared.encoding.categories)) == (["age"], ["town"])
    assert empty.encoded(shared).train_samples(0).x.tolist() == [[0, 1, 1, 0, 1], [0, 1, 1, 0, 1]]


@pytest.mark.parametrize(
    ("lines", "header", "options", "problem"),
    [
        (
            ["x,1,2,no", "x,2,3,yes"],
            HEADER,
            {},
            "'town' has numbers at node 'b' and text at node 'a', such as 'oslo'; correct it there, or start all nodes "
            "with --categorical town if",
        ),
        (
            ["x,1,no", "x,2,yes"],
            "site,age,ill",
            {},
            "node 'a' has columns that node 'b' lacks: town; name them in --drop, at all nodes",
        ),
        (["x,1,oslo,1.5", "x,2,rome,2"], HEADER, {}, "has labels at one, numbers at the other; start both with --task"),
        (SITES["n00"], HEADER, {"target": "town"}, "predict other columns: 'ill' and 'town'"),
    ],
)
def test_tables_that_do_not_fit_each_other(tmp_path, lines, header, options, problem):
    settings = TableSettings(**{"target": "ill", "drop": ("site",), **options})
    tables = {
        "a": node_table(tmp_path, "a", SITES["n00"]),
        "b": NodeTable.read(write(tmp_path / "b.csv", lines, header), settings, min_rows=1),
    }
    facts = facts_of(tmp_path, tables)
    with pytest.raises(DataError, match=problem):
        agree_on_encoding(facts, TableSettings())
    nodes = [ListedNode(name, "ready", 1.0, each) for name, each in facts.items()]
    [remark] = table_remarks(nodes)
    assert re.search(f"^a run would refuse these tables: .*{problem}", remark)
    assert table_remarks(nodes[:1]) == []
    assert table_remarks([*nodes, ListedNode("c", "never seen", None, None)]) == []


def agreed_on(folder: Path, **nodes: tuple[list[str], str | None]) -> Any:
    """The agreed facts of nodes with these labels and `--task`."""
    tables = {}
    for name, (labels, task) in nodes.items():
        rows = [f"x,{row},oslo,{label}" for row, label in enumerate(labels)]
        tables[name] = node_table(folder, name, rows, task=task)
    found = agree_on_encoding(facts_of(folder, tables), TableSettings())
    assert found is not None
    return found[0]


def test_the_task_of_the_owners_is_kept(tmp_path):
    assert agreed_on(tmp_path, a=(["no", "yes"], None), b=(["no"], None))["a"].task == "binary"
    facts = agreed_on(tmp_path, a=(["no", "yes"], "classification"), b=(["no"], None))
    assert [each.task for each in facts.values()] == ["classification"] * 2
    assert agreed_on(tmp_path, a=(["no"], "binary"), b=(["yes"], "binary"))["b"].task == "binary"
    with pytest.raises(SpecError, match="--task: must be one of classification, binary, regression, got 'mine:task'"):
        node_table(tmp_path, "a", SITES["n00"], task="mine:task")


@pytest.mark.parametrize(
    ("a", "b", "problem"),
    [
        (
            (["0", "1"], "binary"),
            (["0", "1"], "classification"),
            "node 'a' was started with --task binary, node 'b' with --task classification; start all nodes with the",
        ),
        ((["0", "1"], "binary"), (["2"], None), "--task binary, but the nodes have labels 0, 1, 2"),
        ((["no", "no"], None), (["no"], None), "all rows of all nodes have the same label in the target column: 'no'"),
        (
            (["0", "1"], None),
            (["yes", "no"], None),
            r"numbers at node 'a' \(0, 1\) and words at node 'b' \(no, yes\); write the same labels at all nodes",
        ),
    ],
)
def test_targets_that_do_not_fit_each_other(tmp_path, a, b, problem):
    with pytest.raises(DataError, match=problem):
        agreed_on(tmp_path, a=a, b=b)


def test_labels_that_no_other_node_has_are_warned_of(tmp_path, caplog):
    agreed_on(tmp_path, a=(["no", "yes"], None), b=(["no"], None), c=(["maybe"], None))
    assert not caplog.records
    agreed_on(tmp_path, a=(["no", "yes"], None), b=(["n", "y"], None))
    assert "no other node has a label of node 'b' (n, y): are labels written alike?" in caplog.text


def test_a_table_that_cannot_be_shared_is_refused_in_one_line(tmp_path):
    table = node_table(tmp_path, "a", ["x,1,oslo,no", f"x,2,rome,{'y' * 1001}"])
    with pytest.raises(DataError, match=r"a\.csv: cannot be shared: labels\.1: .* at most 1000 characters$"):
        service(tmp_path, "a", table).facts()


def test_nodes_with_and_without_tables(tmp_path):
    facts = facts_of(tmp_path, {"a": node_table(tmp_path, "a", SITES["n00"])})
    mixed = {**facts, "b": facts["a"].model_copy(update={"table": None})}
    with pytest.raises(DataError, match="node 'a' serves a table, node 'b' does not; serve one at all nodes"):
        agree_on_encoding(mixed, TableSettings())
    assert agree_on_encoding({"b": mixed["b"]}, TableSettings()) is None
    with pytest.raises(SpecError, match=r"data\.table: has no effect, because the nodes serve no tables"):
        remote_federation(DataSettings(table=TableSettings(scaling="client")), {"b": mixed["b"]}, None)
    with pytest.raises(SpecError, match=r"engine\.test: test\.csv is a table, but the nodes serve none"):
        remote_federation(DataSettings(), {"b": mixed["b"]}, "test.csv")


def test_columns_are_chosen_at_the_nodes():
    with pytest.raises(SpecError, match=r"data\.table\.target: has no effect with engine 'flower'"):
        _check_data(DataSettings(name="sites", table=TableSettings(target="ill")))
    _check_data(DataSettings(name="sites", table=TableSettings(scaling="client", mark_missing=False)))


@pytest.mark.parametrize(
    "lie",
    [
        {"known": 99},
        {"squares": -1.0},
        {"total": float("inf")},
        {"known": 4, "total": 10.0, "squares": 24.9},
        {"total": 1e200, "squares": 1e300},
        {"known": 0, "total": 0.0, "squares": 1.0},
    ],
)
def test_impossible_sums_are_refused(tmp_path, lie):
    [facts] = facts_of(tmp_path, {"a": node_table(tmp_path, "a", SITES["n00"])}).values()
    plain = json.loads(facts.model_dump_json())
    plain["table"]["statistics"]["numbers"]["age"] |= lie
    with pytest.raises(ValueError, match=r"more values than|sum is impossible|finite"):
        parse_facts(plain)


@pytest.mark.parametrize("ages", [["0.1"] * 4, ["1e-200", "1e-170"], ["1e30", "-1e30"], ["", ""], ["0.1", "0.3"]])
def test_sums_that_are_rounded_are_possible(tmp_path, ages):
    table = node_table(tmp_path, "a", [f"x,{age},oslo,no" for age in ages])
    assert facts_of(tmp_path, {"a": table})["a"].table.statistics == table.statistics


@pytest.mark.parametrize("target", [lambda row: row % 3, lambda row: f"{(row % 5) * 3}", lambda row: row * 0.37])
def test_nodes_hold_out_the_rows_that_a_simulation_tests_with(tmp_path, target):
    rows = {name: [f"{name},{row},oslo,{target(row)}" for row in range(size)] for name, size in (("b", 23), ("a", 31))}
    everything = write(tmp_path / "all.csv", [line for lines in rows.values() for line in lines])
    tests = fr.federate_table(everything, target="ill", client="site", test=0.2, scaling="none")
    trained = fr.federate_table(everything, target="ill", client="site", test=everything, scaling="none")
    samples = held_out_samples(with_holdout(trained, 0.2, seed=1))
    for client, name in enumerate(("a", "b")):
        table = node_table(tmp_path, name, rows[name], hold_out=0.2)
        kept = held_out_samples(tests).of(client).x[:, 0].tolist()
        assert kept == samples.of(client).x[:, 0].tolist() == table.test.tolist()
        assert len(kept) == {"a": 7, "b": 5}[name]


def test_sums_of_few_values_are_not_shared(tmp_path):
    rows = [f"x,{age},oslo,no" for age in range(10)]
    assert node_table(tmp_path, "a", rows, min_rows=MIN_ROWS).statistics.rows == 10
    with pytest.raises(DataError, match=r"a\.csv: has 9 rows to train on; .* at least 10, or lower --min-rows"):
        node_table(tmp_path, "a", rows[1:], min_rows=MIN_ROWS)
    with pytest.raises(DataError, match="has 5 rows to train on"):
        node_table(tmp_path, "a", rows, min_rows=MIN_ROWS, hold_out=0.5)
    with pytest.raises(DataError, match=r"a\.csv: --holdout keeps 8 rows; .* Keep at least 10, or none, or lower"):
        node_table(tmp_path, "a", rows * 4, min_rows=MIN_ROWS, hold_out=0.2)
    assert len(node_table(tmp_path, "a", rows * 5, min_rows=MIN_ROWS, hold_out=0.2).test) == 10
    with pytest.raises(DataError, match=r"fewer than 10 known numbers .*: 'age' \(9\)\. .* --drop, .* --min-rows to 9"):
        node_table(tmp_path, "a", [*rows[1:], "x,,oslo,no"], min_rows=MIN_ROWS)
    with pytest.raises(DataError, match="has 9 rows to train on"):
        NodeTable.read(write(tmp_path / "a.csv", rows[1:]), TableSettings(target="ill", drop=("site",)))
    unknown = node_table(tmp_path, "a", ["x,,oslo,no"] * 10, min_rows=MIN_ROWS)
    assert unknown.statistics.rows == 10


def test_the_list_of_nodes_does_not_print_sums(tmp_path):
    [facts] = facts_of(tmp_path, {"a": node_table(tmp_path, "a", SITES["n00"])}).values()
    table = ListedNode("a", "ready", 1.0, facts).to_json()["table"]
    assert table == {"target": "ill", "labels": ["no", "yes"], "task": None}


def test_a_job_without_an_encoding_is_refused_by_a_node_with_a_table(tmp_path):
    node = service(tmp_path, "a", node_table(tmp_path, "a", SITES["n00"]))
    with pytest.raises(fr.EngineError, match="do not agree whether its samples are rows of a table"):
        node._samples_as(None)
    with pytest.raises((ValueError, KeyError)):
        encoding_from_plain({"numbers": [["age", {"shift": "far"}]], "categories": [], "labels": []})


def test_validation_rows_are_in_the_sums_and_held_out_rows_are_not(tmp_path):
    lines = [f"n00,{age},oslo,{'yes' if age % 2 else 'no'}" for age in range(20)]
    table = node_table(tmp_path, "n00", lines, hold_out=0.2)
    facts = facts_of(tmp_path, {"n00": table}, validation=0.25)["n00"]
    assert (facts.samples, facts.validations, facts.tests, facts.table.statistics.rows) == (12, 4, 4, 16)


def test_a_column_without_a_value_at_any_node_is_refused(tmp_path):
    """At one node it may be empty: others may know it."""
    header, lines = "site,age,town,ill", ["x,1,,no", "x,2,NA,yes"]
    tables = {name: node_table(tmp_path, name, lines, header) for name in ("a", "b")}
    with pytest.raises(
        DataError, match=r"^no train row of any client has a value in 'town'; name such .*nodes: --drop"
    ):
        agree_on_encoding(facts_of(tmp_path, tables), TableSettings())
    tables["b"] = node_table(tmp_path, "b", ["x,1,oslo,no", "x,2,rome,yes"], header)
    assert agree_on_encoding(facts_of(tmp_path, tables), TableSettings()) is not None
