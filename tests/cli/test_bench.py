from __future__ import annotations

import json

import pytest

from fedrelay.cli import main


def test_bench_prints_ratios(capsys):
    assert main(["bench", "--workers", "2", "--rounds", "1", "--json"]) == 0
    printed = capsys.readouterr()
    paces = json.loads(printed.out.splitlines()[-1])["paces"]
    assert len(paces) == 6
    assert "times faster" in printed.err


@pytest.mark.parametrize("arguments", [["--rounds", "0"], ["--workers", "-1"]])
def test_impossible_numbers_are_refused(capsys, arguments):
    assert main(["bench", *arguments]) == 2
    assert "--workers must be at least 0" in capsys.readouterr().err
