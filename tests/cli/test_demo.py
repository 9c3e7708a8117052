"""`fedrelay demo`: examples that need no repository."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

import pytest

from fedrelay.cli import demo

ROOT = Path(__file__).parents[2]
TINY = """
methods: [fedavg, fedseq]
data: {name: digits, clients: 6}
rounds: 1
"""


@pytest.fixture
def tiny_demo(tmp_path, monkeypatch):
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "digits.yaml").write_text(TINY)
    monkeypatch.setattr(demo, "demo_files", lambda: tmp_path / "examples")


def test_a_demo_compares_and_reports(program, tiny_demo, tmp_path):
    ended = program("demo", "--out", "shown")
    assert ended.code == 0, ended.err
    assert "fedseq" in ended.out
    assert (tmp_path / "shown" / "report.html").read_text().startswith("<!doctype html>")
    again = program("demo", "--out", "shown")
    assert (again.code, again.out) == (2, "")
    assert "shown: is not empty; choose another folder with --out" in again.err


def test_an_unknown_demo_is_refused(program, tiny_demo):
    ended = program("demo", "digit")
    assert ended.code == 2
    assert "unknown name 'digit' (did you mean 'digits'?); allowed: digits, federation" in ended.err


def test_a_federation_needs_flower(program, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    ended = program("demo", "federation")
    assert ended.code == 6
    assert "pip install 'fedrelay[flower]'" in ended.err


def test_the_wheel_has_what_the_demos_need():
    built = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert built["force-include"] == {"examples": "fedrelay/demos"}
    assert demo.demo_files() == ROOT / "examples"
    assert {"digits.yaml", "federation"} <= {path.name for path in demo.demo_files().iterdir()}
