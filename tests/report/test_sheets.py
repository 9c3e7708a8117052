from __future__ import annotations

import csv

import pytest

from fedrelay.report.document import document
from fedrelay.report.figures import write_figures
from fedrelay.report.sheets import as_csv, sheets, write_sheets


@pytest.fixture(scope="module")
def doc(comparison_folder):
    return document([comparison_folder])


def test_every_figure_has_its_table(doc, tmp_path):
    written = write_sheets(doc, tmp_path)
    names = ["curves", "targets", "results", "federation", "groups", "relay", "forgetting", "communication"]
    assert [path.stem for path in written] == names
    with (tmp_path / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["fedavg"] * 4 + ["fedseq"] * 4 + ["centralized"] * 4
    assert float(rows[4]["accuracy_mean"]) == doc["methods"][1]["course"]["accuracy"]["mean"][0]


def test_every_stop_is_a_row(doc):
    rows = sheets(doc)["relay"]
    assert len(rows) == sum(len(r) for j in doc["journeys"] for s in j["rounds"] for r in s["routes"])
    first = doc["journeys"][2]["rounds"][0]["routes"][0]
    found = [
        row["client"] for row in rows if (row["method"], row["seed"], row["round"], row["route"]) == ("fedseq", 1, 1, 0)
    ]
    assert found == first


def test_formulas_are_disarmed():
    assert (
        as_csv([{"a": "=1+1", "b": -3, "c": "x,y"}, {"a": "@x", "d": None}]) == "a,b,c,d\n'=1+1,-3,\"x,y\",\n'@x,,,\n"
    )


def test_every_figure_has_its_picture(doc, tmp_path):
    event = {"method": 1, "seed": 1, "round": 1, "client": 3, "what": "nan", "done": "refused: not finite"}
    written = write_figures({**doc, "events": [event]}, tmp_path)
    assert {path.stem for path in written} == {
        "curves-accuracy", "curves-loss", "targets", "results", "communication", "faults", "federation", "federation-2",
        "groups-fedseq",
        "relay-fedavg", "relay-fedseq", "relay-centralized", "forgetting-fedseq",
    }  # fmt: skip
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_a_document_without_results_has_no_pictures(doc, tmp_path):
    empty = {**doc, "methods": [], "federations": [], "journeys": []}
    assert write_figures(empty, tmp_path) == []
