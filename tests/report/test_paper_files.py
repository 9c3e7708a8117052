from __future__ import annotations

import re

import pytest

from fedrelay.metrics.paired_differences import margin_of_mean
from fedrelay.report.figure_specs import learning_curves
from fedrelay.report.paper_files import paper_figures, paper_tables, write_paper_files
from fedrelay.report.report_content import document


@pytest.fixture(scope="module")
def doc(comparison_folder):
    return document([comparison_folder])


def test_tables_show_the_numbers_of_the_report(doc):
    results, costs = paper_tables(doc)
    assert results.columns[:3] == ("Method", "Accuracy (%) ↑", "Difference to fedavg")
    baseline, chained, central = results.rows
    level = doc["methods"][1]["summary"]["accuracy_last"]
    assert chained[1].text == f"{100 * level['mean']:.1f} ± {100 * level['std']:.1f}"
    assert chained[2].numbers["difference"] == doc["differences"]["methods"]["fedseq"]["mean"]
    assert [cell.text for cell in baseline[2:]] == ["", "", ""]
    assert sum(row[1].bold for row in results.rows) == 1
    assert not central[1].bold  # it is no federated method
    assert costs.rows[0][-2].numbers == {"bytes": doc["methods"][0]["summary"]["bytes"]}
    assert len(costs.columns) == 7


def test_captions_say_what_a_reader_must_know(doc):
    caption = paper_tables(doc)[0].caption
    for text in (
        "digits (20 clients, alpha 0.1, 4 rounds)",
        "over 2 seeds",
        "higher is better",
        "Two seeds: the interval",
    ):
        assert text in caption
    assert caption.endswith(doc["tuning"]["text"])


def test_curves_have_confidence_intervals_of_the_mean(doc):
    found = learning_curves(doc, "accuracy", "bytes", "interval")
    line = next(mark for mark in found["marks"] if mark["kind"] == "line" and "layer" not in mark)
    std = doc["methods"][0]["curves"]["accuracy"]["std"]
    assert line["error"] == pytest.approx([margin_of_mean(each, 2) for each in std])
    assert "bands are 95 % confidence intervals of the mean" in found["note"]


def test_centralised_training_is_a_line_only(doc):
    figure = dict(paper_figures(doc))["curves-bytes"]
    assert {mark["name"] for mark in figure["marks"]} == {"fedavg", "fedseq", "centralised training"}


def test_files(doc, tmp_path):
    written = {path.name for path in write_paper_files(doc, tmp_path)}
    figures = {
        "curves-round",
        "curves-client_updates",
        "curves-bytes",
        "curves-virtual_seconds",
        "results",
        "differences",
    }
    assert written == {
        *(f"{name}.{kind}" for name in figures for kind in ("pdf", "svg")),
        *(f"{name}.{kind}" for name in ("results", "costs") for kind in ("tex", "md", "csv")),
        "captions.md",
    }
    pdf = (tmp_path / "curves-round.pdf").read_bytes()
    [box] = re.findall(rb"/MediaBox \[ 0 0 ([\d.]+) ", pdf)
    assert float(box) == pytest.approx(3.4 * 72)
    assert b"/FontFile2" in pdf or b"/Type42" in pdf or b"/CIDFontType2" in pdf
    assert b"/Type3" not in pdf
    assert "3 seeds" not in (tmp_path / "captions.md").read_text()


def test_runs_without_results_have_no_tables(doc):
    empty = {"round": [], "evaluated": 0, "runs": []}
    assert paper_tables({**doc, "methods": [{**each, "curves": empty} for each in doc["methods"]]}) == []
