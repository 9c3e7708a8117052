from __future__ import annotations

import io

import pytest
from rich.console import Console

from fedrelay.api import load_data
from fedrelay.grouping.base import Grouping
from fedrelay.grouping.profiles import ProfileInputs
from fedrelay.report import grouping as page
from fedrelay.report.grouping import SINGLE, draw_groupings, grouping_page, grouping_report

WAYS = {"random": Grouping(max_clients=5), "icg": Grouping(assign="icg", groups=4)}


@pytest.fixture
def report():
    return grouping_report(ProfileInputs(load_data("digits", clients=20, alpha=0), 1), WAYS)


@pytest.fixture
def drawn(monkeypatch):
    """The figure, looked at just before it is written."""
    figures = []
    save = page.save_figure
    monkeypatch.setattr(page, "save_figure", lambda figure, path: (figures.append(figure), save(figure, path)))
    return figures


def shown(report):
    console = Console(width=80, file=io.StringIO())
    console.print(grouping_page(report))
    return console.file.getvalue()


def test_single_clients_come_first(report):
    assert [way.name for way in report.ways] == [SINGLE, "random", "icg"]
    assert [len(way.groups) for way in report.ways] == [20, 4, 4]
    assert report.ways[0].quality.median_cpd == pytest.approx(1.264241, abs=5e-7)


def test_the_most_alike_is_advised(report):
    text = shown(report)
    assert "digits: 20 clients, 1,438 samples" in text
    assert "use it      fedrelay run fedseq --set grouping.assign=icg --set" in text
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
    assert report.ways[1].summary()["median_cpd"] is None
    assert "–" in shown(report)
    assert "use it" not in shown(report)


def test_one_column_for_each_way(report, tmp_path, drawn):
    draw_groupings(report, tmp_path / "groups.png")
    assert (tmp_path / "groups.png").read_bytes().startswith(b"\x89PNG")
    titles = [axes.get_title(loc="left") for axes in drawn[0].axes[:6]]
    assert titles[:3] == ["single clients\n20 clients", "random\n4 groups", "icg\n4 groups"]
    assert titles[3] == "median CPD 1.26"
    assert drawn[0].axes[3].images[0].get_array().shape == (20, 20)


def test_of_very_many_groups_some_are_drawn(report, tmp_path, drawn, monkeypatch):
    monkeypatch.setattr(page, "MOST_DRAWN", 7)
    draw_groupings(report, tmp_path / "groups.svg")
    assert drawn[0].axes[3].images[0].get_array().shape == (7, 7)


def test_many_ways_stand_on_several_shelves(report, tmp_path, drawn, monkeypatch):
    monkeypatch.setattr(page, "MOST_ACROSS", 2)
    draw_groupings(report, tmp_path / "groups.png")
    panels = drawn[0].axes[:8]
    titles = [axes.get_title(loc="left").split("\n")[0] for axes in panels]
    assert [titles[number] for number in (0, 1, 2, 4, 5, 7)] == [SINGLE, "random", "median CPD 1.26", "icg", "", ""]
    assert [axes.axison for axes in panels] == [True] * 5 + [False, True, False]


def test_groups_without_a_difference_can_be_drawn(tmp_path):
    report = grouping_report(ProfileInputs(load_data("digits", clients=1), 1), {"random": Grouping()})
    draw_groupings(report, tmp_path / "groups.pdf")
    assert (tmp_path / "groups.pdf").read_bytes().startswith(b"%PDF")
