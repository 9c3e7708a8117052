"""What a notebook shows while runs go on."""

from __future__ import annotations

import re

import pytest

import fedrelay as fr
from fedrelay.report import notebook_progress
from fedrelay.report.notebook_progress import NotebookProgress


@pytest.fixture(autouse=True)
def every_change(monkeypatch):
    monkeypatch.setattr(notebook_progress, "LEAST_SECONDS", 0.0)


def test_a_bar_for_every_round_and_a_line_at_the_end():
    shown = []
    fr.run("fedavg", clients=4, rounds=3, workers=1, callbacks=NotebookProgress(shown.append, ()))
    assert [re.findall(r'value="(\d)" max="3"', html) for html in shown] == [["0"], ["1"], ["2"], ["3"], []]
    assert re.search(r"round 2/3, accuracy [\d.]+ %, .* left", shown[2])
    assert re.fullmatch(r"<div>fedavg: round 3/3, accuracy [\d.]+ %, done in .*</div>", shown[-1])


def test_finished_runs_stay_and_the_first_of_many_are_counted():
    shown = []
    progress = NotebookProgress(shown.append, [f"<run {number}>" for number in range(15)])
    result = fr.run("fedavg", clients=4, rounds=1, workers=1)
    for _ in range(15):
        progress.on_run_end(result)
    assert shown[-1].count("<div>") == 13
    assert "… and 3 earlier runs" in shown[-1]
    assert "&lt;run 14&gt;: round 1/1" in shown[-1]
    assert "already complete" in shown[-1]


def test_changes_are_not_sent_too_often(monkeypatch):
    monkeypatch.setattr(notebook_progress, "LEAST_SECONDS", 3600)
    shown = []
    fr.run("fedavg", clients=4, rounds=3, workers=1, callbacks=NotebookProgress(shown.append, ()))
    assert len(shown) == 2


def test_profiling_is_shown():
    shown = []
    progress = NotebookProgress(shown.append, ())
    progress.on_profiling_progress(2, 5)
    assert "profiling clients" in shown[-1]
    assert "client 2/5" in shown[-1]


def test_without_a_notebook_nothing_is_imported(monkeypatch):
    monkeypatch.setattr(notebook_progress, "notebook_output", lambda: pytest.fail("this is no notebook"))
    assert fr.run("fedavg", clients=4, rounds=1, workers=1, progress=True).rounds == 1
