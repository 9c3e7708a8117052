"""Evaluations of single clients in a run: what is recorded, what it costs, and that its bits never change."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.runtime.eight_clients import Dies, federation, network

import fedrelay as fr
from fedrelay.data.holdout import held_out_samples, with_holdout
from fedrelay.errors import RunFolderError, SpecError

STREAMS = ("client_metrics", "client_resamples", "ledger", "metrics")


def run(out=None, method="fedavg", **more):
    settings = {"rounds": 6, "holdout": 0.25, "per_client": 2, "fine_tune": 2, "checkpoint": {"seconds": 0}}
    own = {"data": federation(), "model": network()}
    return fr.run(method, **own, **settings | {"workers": 1, "out": out} | more)


def contents(folder):
    return {name: (folder / f"{name}.jsonl").read_text() for name in STREAMS}


def rows(folder, stream):
    return [json.loads(line) for line in (folder / f"{stream}.jsonl").read_text().splitlines()]


def test_lines_are_the_same_with_two_workers_and_after_an_interruption(tmp_path):
    for method in ("fedavg", "local"):
        whole, parallel, broken = (tmp_path / f"{method}-{name}" for name in ("whole", "parallel", "broken"))
        run(whole, method)
        run(parallel, method, workers=2)
        with pytest.raises(KeyboardInterrupt):
            run(broken, method, callbacks=Dies(after=3))
        fr.resume(broken, data=federation(), model=network())
        assert contents(whole) == contents(parallel) == contents(broken)


def test_an_extended_run_has_the_lines_of_the_long_one(tmp_path):
    run(tmp_path / "long", rounds=7)
    run(tmp_path / "short", rounds=3)
    assert {row["round"] for row in rows(tmp_path / "short", "client_metrics")} == {2, 3}
    fr.resume(tmp_path / "short", rounds=7, data=federation(), model=network())
    assert contents(tmp_path / "short") == contents(tmp_path / "long")


def test_a_missing_line_is_noticed(tmp_path):
    run(tmp_path / "run", rounds=2)
    path = tmp_path / "run" / "client_metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(RunFolderError, match=r"client_metrics\.jsonl, line 8"):
        fr.resume(tmp_path / "run", data=federation(), model=network())


def test_the_ledger_counts_models_and_answers(tmp_path):
    result = run(tmp_path / "run", rounds=2, fine_tune=0)
    lines = rows(tmp_path / "run", "ledger")
    [line] = [each for each in lines if each.get("evaluation")]
    assert (line["round"], line["s2c"], line["c2s"], line["client_updates"]) == (2, 8, 8, 0)
    model = 4 * (4 * 4 + 4 + 4 * 3 + 3)
    assert line["payloads"]["evaluated model"] == 8 * model
    assert line["virtual_seconds"] > 0
    assert result.bytes == sum(each["bytes"] for each in lines)
    alone = run(method="local", rounds=2)
    assert (alone.transfers["s2c"], alone.transfers["c2s"]) == (0, 8)  # models are there, answers are sent


def test_a_callback_that_stops_a_run_has_its_clients_evaluated(tmp_path):
    class Stops(fr.Callback):
        def on_round_end(self, context):
            return fr.StopRun("enough") if context.round == 3 else None

    result = run(tmp_path / "run", callbacks=Stops())
    assert result.clients.round == 3
    assert len(result.clients.resamples) == 8
    again = fr.resume(tmp_path / "run", data=federation(), model=network())
    assert again.clients.lines == result.clients.lines


def test_resamples_are_around_the_score_and_only_of_the_last_round():
    result = run(rounds=4)
    assert {row["round"] for row in result.client_resamples} == {4}
    for name, value in result.clients.values().items():
        drawn = result.clients.resamples[name]
        assert len(drawn) == 1000
        assert np.mean(drawn) == pytest.approx(value, abs=0.06)


def test_odd_clients_are_evaluated_or_reported_and_none_is_dropped(monkeypatch):
    """One sample; three samples; a single class; and a column that one client never knows."""
    monkeypatch.setattr("fedrelay.tasks.bootstrap.MOST_RESAMPLES", 200)
    rng = np.random.default_rng(1)
    sizes = {"one": 1, "three": 3, "healthy": 12, "blind": 30, "usual": 40}
    names = [name for name, size in sizes.items() for _ in range(size)]
    age = rng.normal(60, 10, len(names))
    sick = (age + rng.normal(0, 5, len(names)) > 60).astype(int)
    sick[[name == "healthy" for name in names]] = 0
    dose = [None if name == "blind" else float(value) for name, value in zip(names, age / 10, strict=True)]
    columns = {"age": age, "dose": dose, "sick": sick, "site": names}
    data = fr.federate_table(
        columns, target="sick", client="site", test={each: list(columns[each]) for each in columns}
    )
    settings = {"data": data, "holdout": 0.3, "per_client": 3, "fine_tune": 2, "rounds": 3, "fraction": 1.0}
    outcome = fr.compare(["local", "fedavg", "spfl", "centralized"], **settings, seeds=[1, 2])
    for method in outcome.methods:
        for result in method.results:
            clients = result.clients
            assert clients.names == ["blind", "healthy", "one", "three", "usual"]
            assert clients.not_evaluated == {"one": "it has a single sample"}
            assert "healthy" in clients.undefined()
            assert clients.undefined()["healthy"] == "it needs samples of both classes"
            assert clients.values("accuracy")["healthy"] is not None
            assert clients.lines[3]["held_out"] == 1
            assert clients.values("loss")["blind"] is not None
            assert clients.spread("loss").clients == 4
    gains = {each.name: each for each in outcome.clients.gains["fedavg"]}
    assert gains["one"].reason == "it has a single sample"
    assert gains["healthy"].reason == "it needs samples of both classes"
    assert "unknown for healthy, one, three" in outcome.clients.who_loses("fedavg")


def test_scores_are_those_of_the_clients_samples():
    data = federation()
    result = run(rounds=2, fine_tune=0)
    held_out = held_out_samples(with_holdout(data, 0.25, result.experiment.seed))
    module = result.load_into(network())
    for client, line in enumerate(result.clients.lines):
        x, y = held_out.of(client)
        assert line["scores"]["accuracy"] == (module(x).argmax(1) == y).double().mean().item()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"per_client": 2}, r"eval\.per_client: no client has held-out samples; set data\.holdout"),
        ({"holdout": 0.2}, r"data\.holdout: has no effect without eval\.per_client"),
        ({"fine_tune": 3}, r"eval\.fine_tune: has no effect without per_client"),
    ],
)
def test_settings_without_effect_are_refused(settings, message):
    with pytest.raises(SpecError, match=message):
        fr.run("fedavg", clients=5, rounds=1, **settings)


def test_results_without_evaluations_of_clients_say_how_to_get_them():
    with pytest.raises(SpecError, match=r"run with per_client=1 and holdout=0\.2"):
        fr.run("fedavg", clients=5, rounds=1).clients  # noqa: B018
