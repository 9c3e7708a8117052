"""How notebooks show results, comparisons, plans and federations."""

from __future__ import annotations

import base64
import re
from html import escape

import numpy as np
import pytest

import fedrelay as fr
from fedrelay.notebook_display import NotebookDisplay
from fedrelay.report.tuning_summary import reason

CELLS = re.compile(r"<td>(.*?)</td>")
PICTURE = re.compile(r'src="data:image/png;base64,([^"]+)"')


def cells(html):
    return CELLS.findall(html)


def has_picture(html):
    [content] = PICTURE.findall(html)
    assert base64.b64decode(content).startswith(b"\x89PNG")
    assert len(content) < 120_000, "notebooks keep every output"
    return True


def test_a_result_has_its_numbers_and_its_curve():
    result = fr.run("fedseq", clients=6, rounds=2, workers=1)
    html = result._repr_html_()
    facts = dict(zip(cells(html)[::2], cells(html)[1::2], strict=True))
    assert facts["method"] == "fedseq"
    assert facts["accuracy"] == f"{100 * result.accuracy:.1f} %"
    assert facts["rounds"] == "2 of 2"
    assert facts["transfers"] == str(sum(result.transfers.values()))
    assert has_picture(html)
    assert "<img" not in fr.run("fedavg", clients=4, rounds=1, workers=1)._repr_html_()


def test_a_comparison_has_a_line_for_each_method():
    outcome = fr.compare(["fedavg", "fedseq"], clients=6, alpha=0, rounds=2, seeds=[1, 2], workers=1)
    html = outcome._repr_html_()
    fedavg, fedseq = cells(html)[:6], cells(html)[6:]
    assert [fedavg[0], fedseq[0]] == ["fedavg", "fedseq"]
    assert fedavg[2:4] == ["", ""]
    assert fedseq[2] == f"{100 * outcome.differences['fedseq'].difference.mean:+.1f}"
    assert re.fullmatch(r"\[[-+][\d.]+, [-+][\d.]+\]", fedseq[3])
    assert has_picture(html)


@pytest.mark.parametrize("sweep", [{"alpha": [0.1, 10]}, {"alpha": [0.1, 10], "lr": [0.05, 0.1]}], ids=["one", "two"])
def test_a_sweep_has_a_column_for_each_value(sweep):
    result = fr.compare(["fedavg", "fedseq"], clients=6, rounds=1, seeds=[1, 2], workers=1, sweep=sweep)
    html = result._repr_html_()
    rows = re.findall(r"<tr><td>(fedavg|fedseq)</td>", html)
    assert rows == ["fedavg"] * (len(rows) // 2) + ["fedseq"] * (len(rows) // 2)
    level = result.at({name: values[0] for name, values in sweep.items()})["fedseq"].mean_std(
        lambda run: run.score_last
    )
    assert any(f"{100 * level[0]:.1f} ± {100 * level[1]:.1f}" in cell for cell in cells(html))
    assert html.count("<td><b>") == len(result.cells)  # the best method of each cell
    assert "<p>Test accuracy in percent on digits, 1 round, by alpha" in html
    assert has_picture(html)


def test_a_tuning_says_which_method_and_why(tuned):
    html = tuned._repr_html_()
    rows = [cells(html)[start : start + 5] for start in range(0, len(cells(html)), 5)]
    assert [row[0].split()[0] for row in rows] == [each.name for each in tuned.standings]
    assert rows[0][0] == f"{tuned.recommended.name} (recommended)"
    assert rows[0][3] == f"{100 * tuned.recommended.score:.1f}"
    assert f"lr {tuned[tuned.recommended.name].choice.best.point.lr}" in rows[0][1]
    assert html.startswith(f"<p>{escape(reason(tuned))}</p>")
    assert has_picture(html)


def test_seeds_that_stopped_in_different_rounds_are_drawn():
    outcome = fr.compare(
        ["fedavg"], clients=10, alpha=0.5, rounds=12, seeds=[1, 2], validation=0.2, patience=1, workers=1
    )
    assert len({result.rounds for result in outcome["fedavg"].results}) == 2
    assert has_picture(outcome._repr_html_())


def test_a_plan_shows_its_routes():
    plan = fr.plan("fedcyclic", clients=6, fraction=0.5)
    html = plan._repr_html_()
    assert cells(html)[:6] == ["round", "1", "routes", "1", "longest route", "3"]
    assert has_picture(html)


@pytest.mark.parametrize("labels", ["classes", "numbers"])
def test_a_federation_shows_what_it_holds(labels):
    x = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    y = np.arange(40) % 2 if labels == "classes" else x[:, 0]
    html = fr.federate(x[:30], y[:30], x[30:], y[30:], clients=3, partition="iid")._repr_html_()
    facts = dict(zip(cells(html)[::2], cells(html)[1::2], strict=True))
    assert (facts["clients"], facts["train samples"], facts["test samples"]) == ("3", "30", "10")
    assert facts["classes"] == ("2" if labels == "classes" else "none")
    assert ("<img" in html) is (labels == "classes")


def test_a_value_that_nothing_is_registered_for_is_shown_as_text():
    assert NotebookDisplay()._repr_html_() is None
