from __future__ import annotations

import csv
import shutil

import pytest
from tests.report.folders import add_event

from fedrelay.report.csv_tables import csv_rows, write_csv_tables
from fedrelay.report.format import as_csv
from fedrelay.report.load_runs import load_runs
from fedrelay.report.page_limits import EVERYTHING, PageLimits
from fedrelay.report.report_content import describe, document


@pytest.fixture(scope="module")
def doc(comparison_folder):
    return document([comparison_folder])


def test_every_section_has_its_table(doc, tmp_path):
    written = write_csv_tables(doc, tmp_path)
    names = ["curves", "targets", "results", "differences", "clients", "groups"]
    names += ["forgetting", "communication", "routes"]
    assert [path.stem for path in written] == names
    with (tmp_path / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["fedavg"] * 4 + ["fedseq"] * 4 + ["centralized"] * 4
    assert float(rows[4]["accuracy_mean"]) == doc["methods"][1]["curves"]["accuracy"]["mean"][0]


def test_every_hop_is_a_row(doc):
    rows = csv_rows(doc)["routes"]
    assert len(rows) == sum(len(route) for run in doc["runs"] for each in run["rounds"] for route in each["routes"])
    found = [
        row["client"] for row in rows if (row["method"], row["seed"], row["round"], row["route"]) == ("fedseq", 1, 1, 0)
    ]
    assert found == doc["runs"][2]["rounds"][0]["routes"][0]


def test_formulas_are_quoted():
    assert (
        as_csv([{"a": "=1+1", "b": -3, "c": "x,y"}, {"a": "@x", "d": None}]) == "a,b,c,d\n'=1+1,-3,\"x,y\",\n'@x,,,\n"
    )


def test_tables_are_whole_however_little_the_page_shows(comparison_folder, doc):
    few = PageLimits(points=2, hops=6, cells=2, routes=1, hops_of_a_route=2, faults=1)
    partly, wholly = csv_rows(document([comparison_folder], few)), csv_rows(document([comparison_folder], EVERYTHING))
    assert wholly == csv_rows(doc)  # the page of such small runs leaves nothing out
    for name, column in (
        ("curves", "evaluations_in_all"),
        ("routes", "rounds_in_all"),
        ("routes", "routes_in_all"),
        ("routes", "hops_in_all"),
    ):
        assert len(partly[name]) < len(wholly[name])
        assert {row[column] for row in partly[name]} <= {row[column] for row in wholly[name]}
    assert {row["evaluations_in_all"] for row in partly["curves"]} == {4}
    assert max(row["hop"] for row in partly["routes"]) < max(row["hops_in_all"] for row in partly["routes"])
    assert {row["clients_in_all"] for row in wholly["clients"]} == {20}


def test_all_fault_events_are_in_the_table(slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    for number in range(3):
        add_event(run, round=1, route=0, hop=0, client=number, what="dropout", done="skipped")
    assert [row["client"] for row in csv_rows(document([run], EVERYTHING))["faults"]] == [0, 1, 2]
    [row] = csv_rows(document([run], PageLimits(faults=1)))["faults"]
    assert row == {
        "method": "fedseqinter", "seed": 1, "round": 1, "client": 0, "route": 0, "hop": 0, "node": "",
        "what": "dropout", "done": "skipped", "faults_in_all": 3,
    }  # fmt: skip


@pytest.mark.parametrize("names", [("fedavg", "fedseq"), ("fedseq", "fedavg")])
def test_factors_are_relative_to_the_baseline(names, doc):
    number = [method["name"] for method in doc["methods"]].index(names[0])
    rows = csv_rows({**doc, "baseline": number})["targets"]
    baseline, other = (next(row for row in rows if row["method"] == name) for name in names)
    assert baseline["compared_with"] == other["compared_with"] == names[0]
    for cost in ("round", "client_updates", "bytes", "virtual_seconds"):
        known = baseline[cost] is not None and other[cost] is not None
        assert other[f"speed_up_{cost}"] == (pytest.approx(baseline[cost] / other[cost]) if known else None)


def test_the_baseline_is_the_first_method_or_the_one_that_is_named(comparison_folder):
    assert describe(load_runs([comparison_folder]))["baseline"] == 0
    assert describe(load_runs([comparison_folder], "fedseq"))["baseline"] == 1
