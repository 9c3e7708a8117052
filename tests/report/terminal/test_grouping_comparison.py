from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from fedrelay.api import load_data
from fedrelay.grouping.grouping import Grouping
from fedrelay.grouping.profiles import ProfileInputs
from fedrelay.report import figure_specs
from fedrelay.report.drawing import compose
from fedrelay.report.figure_files import save_figures
from fedrelay.report.terminal import grouping_comparison as page
from fedrelay.report.terminal.grouping_comparison import SINGLE, grouping_page, grouping_panels, grouping_report

WAYS = {"random": Grouping(max_clients=5), "icg": Grouping(assign="icg", groups=4)}


@pytest.fixture
def report():
    return grouping_report(ProfileInputs(load_data("digits", clients=20, alpha=0), 1), WAYS)


def shown(report):
    console = Console(width=80, file=io.StringIO())
    console.print(grouping_page(report))
    return console.file.getvalue()


def test_single_clients_come_first(report):
    assert [result.name for result in report.results] == [SINGLE, "random", "icg"]
    assert [len(result.groups) for result in report.results] == [20, 4, 4]
    assert report.results[0].quality.median_cpd == pytest.approx(1.264241, abs=5e-7)


def test_the_most_similar_groups_are_advised(report):
    text = shown(report)
    assert "digits: 20 clients, 1,438 samples" in text
    best = report.results[2].quality.median_cpd
    assert f"recommended  icg: lowest median CPD ({best:.3g}), so its groups are most" in text
    assert "use it       fedrelay run fedseq --set grouping.assign=icg --set" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_summary_is_plain_data(report):
    facts = report.summary()
    icg = facts["groupings"][2]
    assert (facts["clients"], facts["classes"], facts["samples"]) == (20, 10, 1438)
    assert icg["options"] == {"assign": "icg", "groups": 4}
    assert icg["clients_per_group"] == {"min": 5, "mean": 5.0, "max": 5}
    assert sorted(client for group in icg["groups"] for client in group) == list(range(20))
    assert facts["groupings"][0]["options"] is None


def test_a_single_group_has_no_pair():
    report = grouping_report(ProfileInputs(load_data("digits", clients=3), 1), {"random": Grouping()})
    assert report.results[1].summary()["median_cpd"] is None
    assert "–" in shown(report)
    assert "use it" not in shown(report)


def test_one_column_for_each_grouping(report, tmp_path):
    panels, across = grouping_panels(report)
    axes = compose(panels, columns=across).axes[:6]
    titles = [each.get_title(loc="left") for each in axes]
    assert titles[:3] == ["single clients\n20 clients", "random\n4 groups", "icg\n4 groups"]
    assert titles[3] == "median CPD 1.26"
    assert axes[3].images[0].get_array().shape == (20, 20)
    save_figures(tmp_path / "groups.png", panels, columns=across)
    assert (tmp_path / "groups.png").read_bytes().startswith(b"\x89PNG")


def test_of_very_many_groups_some_are_drawn(report, monkeypatch):
    monkeypatch.setattr(figure_specs, "MOST_GROUPS_DRAWN", 7)
    panels, across = grouping_panels(report)
    assert np.shape(panels[across]["marks"][0]["values"]) == (7, 7)


def test_many_groupings_take_several_rows(report, monkeypatch):
    monkeypatch.setattr(page, "MOST_ACROSS", 2)
    panels, across = grouping_panels(report)
    titles = [panel and panel["title"].split("\n")[0] for panel in panels]
    assert across == 2
    assert [titles[number] for number in (0, 1, 2, 4, 5, 7)] == [SINGLE, "random", "median CPD 1.26", "icg", None, None]
    assert [axes.axison for axes in compose(panels, columns=across).axes[:8]] == [True] * 5 + [False, True, False]


def test_groups_without_a_difference_can_be_drawn(tmp_path):
    report = grouping_report(ProfileInputs(load_data("digits", clients=1), 1), {"random": Grouping()})
    panels, across = grouping_panels(report)
    save_figures(tmp_path / "groups.pdf", panels, columns=across)
    assert (tmp_path / "groups.pdf").read_bytes().startswith(b"%PDF")
