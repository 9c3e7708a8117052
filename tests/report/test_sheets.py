from __future__ import annotations

import csv
import shutil

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from tests.report.folders import add_event

from fedrelay.report import figures
from fedrelay.report.document import document
from fedrelay.report.figures import write_figures
from fedrelay.report.plots import LINE_COLOURS
from fedrelay.report.sheets import sheets, write_sheets
from fedrelay.report.spreadsheet import as_csv
from fedrelay.report.thinning import EVERYTHING, Limits


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
    faults = [{"method": 1, "what": "nan", "done": "refused", "times": 3}]
    written = write_figures({**doc, "faults": faults}, tmp_path)
    assert {path.stem for path in written} == {
        "curves-accuracy", "curves-loss", "targets", "results", "communication", "faults", "federation", "federation-2",
        "groups-fedseq",
        "relay-fedavg", "relay-fedseq", "relay-centralized", "forgetting-fedseq",
    }  # fmt: skip
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)


def test_a_document_without_results_has_no_pictures(doc, tmp_path):
    empty = {**doc, "methods": [], "federations": [], "journeys": []}
    assert write_figures(empty, tmp_path) == []


def test_tables_are_whole_however_little_the_page_shows(comparison_folder, doc):
    few = Limits(points=2, stops=6, cells=2, routes=1, stops_of_a_route=2, faults=1)
    partly, wholly = sheets(document([comparison_folder], few)), sheets(document([comparison_folder], EVERYTHING))
    assert wholly == sheets(doc)  # nothing had to be left out of the page of such small runs
    for name, column in (
        ("curves", "evaluations_in_all"),
        ("relay", "rounds_in_all"),
        ("relay", "routes_in_all"),
        ("relay", "turns_in_all"),
    ):
        assert len(partly[name]) < len(wholly[name])
        assert {row[column] for row in partly[name]} <= {row[column] for row in wholly[name]}
    assert {row["evaluations_in_all"] for row in partly["curves"]} == {4}
    assert max(row["turn"] for row in partly["relay"]) < max(row["turns_in_all"] for row in partly["relay"])
    assert {row["clients_in_all"] for row in wholly["federation"]} == {20}


def test_all_faults_are_in_the_table(slots_folder, tmp_path):
    run = shutil.copytree(slots_folder, tmp_path / "run")
    for number in range(3):
        add_event(run, round=1, route=0, hop=0, client=number, what="dropout", done="skipped")
    assert [row["client"] for row in sheets(document([run], EVERYTHING))["faults"]] == [0, 1, 2]
    [row] = sheets(document([run], Limits(faults=1)))["faults"]
    assert row == {
        "method": "fedseqinter", "seed": 1, "round": 1, "client": 0, "route": 0, "hop": 0, "node": "",
        "what": "dropout", "done": "skipped", "faults_in_all": 3,
    }  # fmt: skip


def test_factors_are_against_the_first_method(doc):
    first, chained = (
        next(row for row in sheets(doc)["targets"] if row["method"] == name) for name in ("fedavg", "fedseq")
    )
    assert first["compared_with"] == chained["compared_with"] == "fedavg"
    for cost in ("round", "client_updates", "bytes", "virtual_seconds"):
        known = first[cost] is not None and chained[cost] is not None
        assert chained[f"speed_up_{cost}"] == (pytest.approx(first[cost] / chained[cost]) if known else None)


def drawn(draw, **parts):
    figure = Figure()
    draw(figure, **parts)
    return figure.axes


def test_colours_are_those_of_the_curves_where_a_method_failed(doc):
    failed = {**doc["methods"][0], "course": {**doc["methods"][0]["course"], "round": []}}
    broken = {**doc, "methods": [failed, *doc["methods"][1:]]}
    [draw] = [draw for name, _, draw in figures._drawings(broken) if name == "results"]
    [axes] = drawn(draw)
    found = [to_hex(bar.get_facecolor()).upper() for bar in axes.patches]
    assert found == list(LINE_COLOURS[1:3])


def test_a_level_over_some_seeds_says_so(doc):
    runs = [{"status": "complete"}, {"status": "diverged"}]
    assert figures._with_losses({**doc["methods"][0], "runs": runs}) == "fedavg (1 of 2 seeds)"
    assert figures._with_losses(doc["methods"][0]) == "fedavg"


def test_bytes_that_were_not_noted_are_no_zero(doc):
    method = {**doc["methods"][0], "traffic": {**doc["methods"][0]["traffic"], "bytes": None}}
    transfers, sizes = drawn(figures._communication, methods=[method, doc["methods"][1]])
    assert [text.get_text() for text in sizes.texts] == [" not noted"]
    assert not transfers.texts


def test_many_clients_are_few_shapes():
    rows = [[client % 3 + 1, 2, 3, 4] for client in range(2000)]
    [axes] = drawn(figures._mixes, rows=rows, noun="client", in_all=5000)
    assert len(axes.patches) == 4
    assert axes.get_title() == "2,000 of 5,000 clients"


def test_no_two_methods_share_a_file(doc):
    named = [{**doc["methods"][0], "name": name} for name in ("a b", "a_b", "A_B", "a_b-2", "..")]
    assert figures._file_names({"methods": named}) == ["a_b", "a_b-2", "A_B-3", "a_b-2-2", "_"]
