from __future__ import annotations

import json

import pytest
import torch
from rich.console import Console
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.local.terms.blend_with_received import BlendWithReceived
from fedrelay.merge.hop_average import HopAverage
from fedrelay.merge.last_route import LastRoute
from fedrelay.report.terminal.run_tables import result_table
from fedrelay.routes.warmup_cycle import WarmupCycle
from fedrelay.warmup.base import Phase
from fedrelay.warmup.wfsl import Wfsl

GENETIC = {"cycles": 2, "select": {"by": "genetic", "count": 3, "population": 6, "iterations": 2}}


def test_the_models_of_the_last_cycle_are_combined():
    damped, plain = (BlendWithReceived(alpha=0.2),), (BlendWithReceived(alpha=0.2, plain=True),)
    first = Phase(4, WarmupCycle(), damped, LastRoute())
    assert Wfsl(cycles=5, alpha=0.2).phases() == (first, Phase(1, WarmupCycle(), damped, HopAverage(of="ema")))
    last = Wfsl(cycles=5, alpha=0.2, final="last", plain_last_cycle=True).phases()
    assert last == (first, Phase(1, WarmupCycle(), plain, LastRoute()))
    assert Wfsl(cycles=1, final="mean").phases() == (
        Phase(1, WarmupCycle(), (BlendWithReceived(),), HopAverage(of="mean")),
    )


def test_the_time_of_a_genetic_selection_is_recorded(tmp_path):
    settings = {"model": {"name": "mlp", "hidden": (3,)}, "rounds": 3, "fraction": 0.5, "workers": 1}
    federation = make_federation([3] * 8)
    result = fr.run("wfsl", data=federation, warmup=GENETIC, out=tmp_path / "run", **settings)
    lines = [json.loads(line) for line in (tmp_path / "run" / "timings.jsonl").read_text().splitlines()]
    assert ["selection_seconds" in line for line in lines] == [True, True, False]
    told = sum(line.get("selection_seconds", 0) for line in lines)
    assert result.selection_seconds == pytest.approx(told, abs=1e-3)
    assert result.summary()["selection_seconds"] == pytest.approx(told, abs=2e-3)
    again = fr.resume(tmp_path / "run", data=federation)
    assert again.selection_seconds == pytest.approx(told)
    assert torch.equal(again.weights, result.weights)
    console = Console(width=80)
    with console.capture() as shown:
        console.print(result_table(result))
    assert "choosing clients" in shown.get()


def test_without_a_search_no_time_is_recorded(toy):
    result = fr.run("wfsl", data=toy, warmup={"cycles": 1}, rounds=2, workers=1)
    assert result.selection_seconds == 0
