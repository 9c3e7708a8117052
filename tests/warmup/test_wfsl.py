from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from rich.console import Console
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
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


def selected(cycles, **select):
    """The clients of each cycle, planned in reverse order: client 4 of nine has no samples."""
    warmup = {"cycles": cycles, "select": {**GENETIC["select"], **select}}
    spec = experiment("wfsl", warmup=warmup, rounds=cycles, workers=1, model={"name": "mlp", "hidden": (3,)})
    planner = prepare(spec, federation=make_federation([3, 3, 3, 3, 0, 3, 3, 3, 3])).planner
    found = [set(planner.plan(round).routes[0].clients) for round in range(cycles, 0, -1)]
    assert all(len(each) == 3 for each in found)
    return found[::-1]


def test_a_client_is_selected_again_only_when_the_pool_is_used_up():
    """Eight clients fill two cycles of three; the next pool begins with the third, in another phase with the last."""
    cycles = selected(6)
    assert all(not one & two for one, two in zip(cycles[::2], cycles[1::2], strict=True))
    pools = [one | two for one, two in zip(cycles[::2], cycles[1::2], strict=True)]
    assert all(len(pool) == 6 and 4 not in pool for pool in pools)


def test_without_memory_every_cycle_selects_from_all():
    cycles = selected(6, memory=False)
    assert any(one & two for one, two in zip(cycles[::2], cycles[1::2], strict=True))


def test_clients_may_be_compared_after_longer_steps(tmp_path):
    def vectors(**select):
        warmup = {"cycles": 1, "select": {**GENETIC["select"], **select}}
        spec = experiment("wfsl", warmup=warmup, rounds=1, workers=1, lr=0.01, batch_size=4, model={"name": "logistic"})
        prepared = prepare(spec, federation=make_federation([3] * 8)).prepared
        return prepared.selection.vectors, prepared.layout.flatten(prepared.module).double().numpy()

    (short, start), (long, _) = vectors(), vectors(profile_lr=0.1)
    # One step on one batch: its length is proportional to the learning rate.
    np.testing.assert_allclose(long - start, 10 * (short - start), rtol=1e-3, atol=1e-6)


def test_without_a_search_no_time_is_recorded(toy):
    result = fr.run("wfsl", data=toy, warmup={"cycles": 1}, rounds=2, workers=1)
    assert result.selection_seconds == 0
