from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace

import pytest

import fedrelay as fr
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import comparison
from fedrelay.experiment.sweep_cells import sweep_cells
from fedrelay.report.drawing import render
from fedrelay.report.load_sweep import load_sweep
from fedrelay.report.report_content import document
from fedrelay.report.sweep_figures import sweep_figures, swept_axis
from fedrelay.report.sweep_files import write_sweep_paper
from fedrelay.report.sweep_summary import sweep_rows, sweep_table
from fedrelay.report.web_page import web_page
from fedrelay.runtime.sweep_result import SweepResult

SETTINGS = {"rounds": 1, "workers": 1, "batch_size": 32}


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    out = tmp_path_factory.mktemp("line") / "here"
    sweep = {"alpha": [0.1, 1, 10]}
    return fr.compare(["fedavg", "fedseq"], sweep=sweep, clients=8, seeds=[1, 2], out=out, **SETTINGS)


@pytest.fixture
def grid(outcome):
    """Two settings; fedseq gains with the number of clients, and by chance where alpha is 0."""
    wanted = comparison(["fedavg", "fedseq"], sweep={"alpha": [0, 1], "clients": [6, 8, 10]}, seeds=[1, 2])
    cells = sweep_cells(wanted)
    outcomes = []
    for cell in cells:
        alpha, clients = cell.values.values()
        base = [0.2 + 0.01 * clients, 0.22 + 0.01 * clients]
        gain = [0.05 * clients, 0.05 * clients] if alpha else [0.1, -0.2]
        curves = {"fedavg": [[each] for each in base], "fedseq": [[a + b] for a, b in zip(base, gain, strict=True)]}
        outcomes.append(outcome(curves))
    return SweepResult(wanted, tuple(cells), tuple(outcomes))


def test_lines_show_means_and_intervals_of_every_cell(line):
    scores, differences = sweep_figures(line).values()
    assert scores["x"]["scale"] == "log"
    assert scores["x"]["ticks"] == [[0.1, "0.1"], [1.0, "1"], [10.0, "10"]]
    rows = [row for row in sweep_rows(line) if row["method"] == "fedseq"]
    assert scores["marks"][1]["x"] == [0.1, 1, 10]
    assert scores["marks"][1]["y"] == [row["mean"] for row in rows]
    assert scores["marks"][1]["error"] == [row["margin"] for row in rows]
    last = line.at({"alpha": 10}).differences["fedseq"].difference
    assert differences["marks"][0]["y"][-1] == last.mean
    assert differences["marks"][0]["error"][-1] == pytest.approx(last.interval[1] - last.mean)
    assert differences["marks"][-1]["kind"] == "rule"


@pytest.mark.parametrize(
    ("values", "places", "log"),
    [
        ((10, 20, 50), [10, 20, 50], False),
        ((0.01, 1), [0.01, 1], True),
        ((0, 0.1, 1), [0, 1, 2], False),
        ((0, 1, 2), [0, 1, 2], False),
        (("iid", "shards"), [0, 1], False),
        ((True, False), [0, 1], False),
    ],
)
def test_axes_fit_their_values(values, places, log):
    found, axis = swept_axis("x", values)
    assert found == places
    assert ("scale" in axis) is log
    assert [text for _, text in axis["ticks"]] == list(map(str, values))


def test_heat_maps_have_a_cell_for_every_pair(grid):
    figures = sweep_figures(grid)
    assert list(figures) == ["sweep-fedavg", "sweep-fedseq", "sweep-fedseq-minus-fedavg"]
    [score], [gap] = figures["sweep-fedseq"]["marks"], figures["sweep-fedseq-minus-fedavg"]["marks"]
    assert (score["rows"], score["columns"]) == (["0", "1"], ["6", "8", "10"])
    assert score["texts"] == [["22.0", "24.0", "26.0"], ["57.0", "69.0", "81.0"]]
    assert score["values"][1] == pytest.approx([0.57, 0.69, 0.81])
    assert score["limits"] == pytest.approx([0.22, 0.81])
    assert figures["sweep-fedavg"]["marks"][0]["limits"] == score["limits"]
    assert gap["texts"] == [["(-5.0)", "(-5.0)", "(-5.0)"], ["+30.0", "+40.0", "+50.0"]]  # brackets: may be chance
    assert gap["limits"] == pytest.approx([-0.5, 0.5])
    assert gap["diverging"] == "up"


def test_heat_maps_can_be_drawn_with_gaps(grid):
    lost = replace(grid.outcomes[0], methods=tuple(replace(each, results=()) for each in grid.outcomes[0].methods))
    holes = replace(grid, outcomes=(lost, *grid.outcomes[1:]))
    figure = sweep_figures(holes)["sweep-fedseq-minus-fedavg"]
    assert figure["marks"][0]["values"][0][0] is None
    assert render([figure], "png", dpi=20).startswith(b"\x89PNG")


def test_the_table_has_one_row_for_each_method_and_value(grid):
    table = sweep_table(grid)
    assert table.columns == ("Method", "alpha", "clients 6", "clients 8", "clients 10")
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        ("fedavg", "0"), ("fedavg", "1"), ("fedseq", "0"), ("fedseq", "1"),
    ]  # fmt: skip
    assert sum(cell.bold for row in table.rows for cell in row) == 6
    assert r"\begin{tabular}{llrrr}" in table.latex()
    assert table.caption.endswith("one set of hyperparameters for all methods; data.alpha and data.clients vary.")
    assert "Two seeds tell little" in table.caption


def test_a_folder_says_the_same_as_the_result(line):
    loaded, states = load_sweep(line.comparison.out)
    assert sweep_rows(loaded) == sweep_rows(line)
    assert states == {"complete": 12}
    rows = list(csv.DictReader((line.comparison.out / "table.csv").read_text().splitlines()))
    assert [row["data.alpha"] for row in rows[::2]] == ["0.1", "1", "10"]
    assert json.loads((line.comparison.out / "results.json").read_text())["sweep"] == {"data.alpha": [0.1, 1, 10]}


def test_the_page_works_before_all_cells_have_begun(line, tmp_path):
    folder = tmp_path / "here"
    shutil.copytree(line.comparison.out, folder)
    shutil.rmtree(folder / "alpha=10")
    page = document([folder])
    assert page["title"] == "fedavg, fedseq by alpha"
    assert page["headlines"] == [{"number": "8 of 12", "text": "runs complete"}]
    figure, scores = page["sections"][0]["cards"]
    assert figure["figures"]["sweep"]["marks"][0]["x"] == [0.1, 1]
    assert scores["table"]["rows"][0][-1]["text"] == "–"
    assert page["facts"]["clients"] == "8"
    assert 'href="#sweep"' in web_page(page)
    shutil.rmtree(folder / "alpha=0.1")
    shutil.rmtree(folder / "alpha=1")
    assert document([folder])["sections"][0]["cards"][0]["figures"] == {}


def test_a_sweep_has_a_page_of_its_own(line, comparison_folder):
    with pytest.raises(SpecError, match="is a sweep, which has a page of its own"):
        document([line.comparison.out, comparison_folder])
    with pytest.raises(SpecError, match="baseline: 'x' is none of the methods"):
        load_sweep(line.comparison.out, "x")


def test_files_for_a_paper(line, tmp_path):
    written = {path.name for path in write_sweep_paper(line, tmp_path)}
    figures = {f"{name}.{kind}" for name in ("sweep", "sweep-differences") for kind in ("pdf", "svg")}
    assert written == {"sweep.tex", "sweep.md", "sweep.csv", "captions.md", *figures}
