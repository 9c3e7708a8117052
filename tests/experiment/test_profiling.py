"""The pass before the first round in which clients describe themselves: what it costs, and that it is done once."""

from __future__ import annotations

import json
import os
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tests.conftest import make_federation

import fedrelay as fr
from fedrelay.experiment import prepare as settings_of
from fedrelay.experiment.prepare import inputs_of_profiles, prepare
from fedrelay.experiment.spec import experiment
from fedrelay.runtime.recorder import plan_summary
from fedrelay.runtime.run_folder import RunFolder
from fedrelay.runtime.run_folder_reader import PROFILES

CLIENTS = 12
CONF = {
    "data": "digits", "clients": CLIENTS, "alpha": 0, "rounds": 3, "fraction": 0.5, "batch_size": 16, "workers": 1,
    "grouping.assign": "greedy", "grouping.profile": "conf", "grouping.epochs": 2, "grouping.max_clients": 4,
}  # fmt: skip


class Watcher:
    """Notes what it is told, and stops a run where asked to."""

    def __init__(self, die_after=None, press_at=None):
        self.die_after, self.press_at = die_after, press_at
        self.seen, self.begun = [], False

    def on_profiling_progress(self, done, clients):
        assert not self.begun
        self.seen.append((done, clients))
        if done == self.press_at:
            os.kill(os.getpid(), signal.SIGINT)

    def on_run_start(self, experiment, round):
        self.begun = True

    def on_round_end(self, context):
        if context.round == self.die_after:
            raise KeyboardInterrupt("the process dies here")

    def on_interrupt(self):
        pass


@pytest.fixture
def nobody_trains(monkeypatch):
    """Call it, and clients cannot be asked any more."""

    def forbid():
        monkeypatch.setattr(settings_of, "start_engine", lambda *_: pytest.fail("clients describe themselves again"))

    return forbid


def ledger(folder):
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def died(tmp_path, after):
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedseq", **CONF, out=out, callbacks=Watcher(after), **{"checkpoint.seconds": 0})
    return out


def test_every_client_is_seen_going_by():
    watcher = Watcher()
    fr.run("fedseq", **CONF, callbacks=watcher)
    assert watcher.seen == [(done, CLIENTS) for done in range(1, CLIENTS + 1)]


def test_the_pass_is_the_first_line_of_the_ledger_and_part_of_all_sums(tmp_path):
    result = fr.run("fedseq", **CONF, out=tmp_path / "run")
    first, *rounds = ledger(tmp_path / "run")
    assert (first["round"], first["s2c"], first["c2s"], first["c2c"]) == (0, CLIENTS, CLIENTS, 0)
    assert first["payloads"] == {"model": CLIENTS * 4810 * 4, "profile": CLIENTS * 10 * 4}
    assert [line["round"] for line in rounds] == [1, 2, 3]
    assert result.bytes == first["bytes"] + sum(line["bytes"] for line in rounds)
    assert sum(result.transfers.values()) == 2 * CLIENTS + sum(
        line["s2c"] + line["c2s"] + line["c2c"] for line in rounds
    )
    assert result.client_updates == CLIENTS + sum(line["client_updates"] for line in rounds)
    assert result.history[0]["bytes"] == first["bytes"] + rounds[0]["bytes"]
    in_memory = fr.run("fedseq", **CONF)
    assert (in_memory.bytes, in_memory.transfers) == (result.bytes, result.transfers)
    assert in_memory.history == result.history


def test_a_run_without_profiles_has_no_such_line(tmp_path):
    options = {name: value for name, value in CONF.items() if not name.startswith("grouping.")}
    fr.run("fedseq", **options, out=tmp_path / "run")
    assert [line["round"] for line in ledger(tmp_path / "run")] == [1, 2, 3]
    assert not (tmp_path / "run" / "profiles.safetensors").exists()


def test_class_histograms_are_uploaded_once_and_nobody_trains_for_them(tmp_path):
    fr.run("fedseq", **{**CONF, "grouping.profile": "hist", "grouping.epochs": None}, out=tmp_path / "run")
    first, *_ = ledger(tmp_path / "run")
    assert (first["round"], first["s2c"], first["c2s"], first["c2c"]) == (0, 0, CLIENTS, 0)
    assert first["payloads"] == {"histogram": CLIENTS * 10 * 8}
    assert first["client_updates"] == first["longest_route"] == first["computing_seconds"] == 0
    assert first["virtual_seconds"] == pytest.approx(8 * 80 / 2e7 + 0.05)
    assert not (tmp_path / "run" / "profiles.safetensors").exists()


TOLD = {
    "fedseq": 0,
    "fedseq+feddisco": 1,
    "fedgsp": 1,
    "fedgsp+feddisco": 1,
    "astraea": 1,
    "astraea+feddisco": 1,
    "centralized+feddisco": 0,
    "fedavg-first+feddisco": 1,
}


@pytest.mark.parametrize("method", TOLD)
def test_histograms_are_sent_once_for_all_parts_that_need_them(toy, method):
    line = prepare(experiment(method), federation=toy).costs.setup_line()
    assert (0 if line is None else line["c2s"]) == 6 * TOLD[method]
    if line is not None:
        assert line["payloads"] == {"histogram": 6 * 3 * 8}


def test_empty_clients_have_no_histogram_to_tell():
    line = prepare(experiment("feddisco"), federation=make_federation([3, 0, 4])).costs.setup_line()
    assert line is not None
    assert line["c2s"] == 2


def test_the_slowest_client_decides_how_long_profiles_take(tmp_path):
    fast, slow = "1e10,1e8,2e7,0.05", "1e9,1e7,2e6,0.5"
    rows = [f"{client},{slow if client == 3 else fast}" for client in range(CLIENTS)]
    path = tmp_path / "devices.csv"
    path.write_text("\n".join(["client,flops,down,up,latency", *rows]))
    run = prepare(experiment("fedseq", **CONF, clock={"profile": "csv", "path": str(path)}))
    line = run.costs.setup_line()
    assert line is not None

    def seconds(client, flops, down, up, latency):
        training = 2 * run.prepared.federation.sample_count(client) * run.costs.sample_flops / flops
        return training, 8 * 4810 * 4 / down + latency + 8 * 10 * 4 / up + latency

    times = [seconds(c, *((1e9, 1e7, 2e6, 0.5) if c == 3 else (1e10, 1e8, 2e7, 0.05))) for c in range(CLIENTS)]
    assert line["virtual_seconds"] == pytest.approx(sum(times[3]))
    assert line["idle_seconds"] == pytest.approx(sum(sum(times[3]) - sum(each) for each in times))
    assert line["computing_seconds"] == pytest.approx(times[3][0])
    assert line["communicating_seconds"] == pytest.approx(sum(way for _, way in times))


def test_profiles_and_histograms_come_one_after_another(toy):
    settings = {"grouping": {"assign": "kmeans", "profile": "weights"}, "fraction": 1.0}
    both = prepare(experiment("fedseq+feddisco", **settings), federation=toy).costs.setup_line()
    alone = prepare(experiment("fedseq", **settings), federation=toy).costs.setup_line()
    told = prepare(experiment("feddisco"), federation=toy).costs.setup_line()
    assert both is not None
    assert both["payloads"] == alone["payloads"] | told["payloads"]
    assert both["virtual_seconds"] == pytest.approx(alone["virtual_seconds"] + told["virtual_seconds"])
    assert (both["s2c"], both["c2s"], both["client_updates"]) == (6, 12, 6)


@pytest.mark.parametrize("after", [1, 2])
def test_a_run_that_died_goes_on_without_asking_again(tmp_path, nobody_trains, after):
    expected = fr.run("fedseq", **CONF, out=tmp_path / "whole")
    folder = died(tmp_path, after)
    nobody_trains()
    watcher = Watcher()
    resumed = fr.resume(folder, callbacks=watcher)
    assert watcher.seen == []
    assert torch.equal(resumed.weights, expected.weights)
    assert (resumed.bytes, resumed.transfers) == (expected.bytes, expected.transfers)
    for name in ("ledger.jsonl", "metrics.jsonl", "profiles.safetensors", "plan.json"):
        assert (folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize(
    "lost",
    [("checkpoint.json", "round-2.safetensors", "ledger.jsonl", "metrics.jsonl", "checksums.jsonl"), ()],
    ids=["all", "nothing"],
)
def test_a_run_that_died_right_after_the_pass(tmp_path, nobody_trains, lost):
    expected = fr.run("fedseq", **CONF)
    folder = died(tmp_path, 2)
    for name in lost:
        (folder / name).unlink()
    nobody_trains()
    assert torch.equal(fr.resume(folder).weights, expected.weights)
    assert [line["round"] for line in ledger(folder)] == [0, 1, 2, 3]


def test_vectors_are_kept_with_the_run(tmp_path):
    fr.run("fedseq", **CONF, out=tmp_path / "run")
    run = prepare(experiment("fedseq", **CONF))
    kept = load_file(tmp_path / "run" / "profiles.safetensors")
    assert kept["clients"].tolist() == list(range(CLIENTS))
    np.testing.assert_array_equal(kept["vectors"].numpy(), run.prepared.profiling.vectors)
    folder = RunFolder.open(tmp_path / "run")
    profiling = folder.profiling(PROFILES)
    np.testing.assert_array_equal(profiling.vectors, run.prepared.profiling.vectors)
    groups = run.prepared.method.grouping.form_groups(inputs_of_profiles(run.prepared), profiling)
    assert groups == folder.groups == run.prepared.groups
    folder.close()


def test_a_damaged_file_is_named(tmp_path):
    folder = died(tmp_path, 1)
    file = folder / "profiles.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(fr.RunFolderError, match=r"profiles\.safetensors: is not what the run was started with"):
        fr.resume(folder)
    file.unlink()
    with pytest.raises(fr.RunFolderError, match=r"profiles\.safetensors: cannot be read \(No such file"):
        fr.resume(folder)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (lambda lines: lines[1:], "has another setup"),
        (lambda lines: [lines[0], *lines], "has another setup"),
        (lambda lines: [lines[0], *lines[2:]], "has 1 of 2 rounds"),
    ],
)
def test_a_ledger_without_the_pass_is_damaged(tmp_path, lines, message):
    folder = died(tmp_path, 2)
    path = folder / "ledger.jsonl"
    path.write_text("".join(lines(path.read_text().splitlines(keepends=True))))
    with pytest.raises(fr.RunFolderError, match=r"ledger\.jsonl.*checksum"):
        fr.resume(folder)
    (folder / "checksums.jsonl").unlink()
    with pytest.raises(fr.RunFolderError, match=message):
        fr.resume(folder)


def test_a_bad_folder_is_refused_before_anybody_trains(tmp_path, nobody_trains):
    nobody_trains()
    (tmp_path / "notes.txt").write_text("precious")
    with pytest.raises(fr.RunFolderError, match="is not empty"):
        fr.run("fedseq", **CONF, out=tmp_path)
    with pytest.raises(fr.RunFolderError, match=r"cannot be created \(.*notes.txt is a file\)"):
        fr.run("fedseq", **CONF, out=tmp_path / "notes.txt" / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_during_the_pass_leaves_nothing_behind(tmp_path, workers):
    with pytest.raises(KeyboardInterrupt):
        fr.run("fedseq", **{**CONF, "workers": workers}, out=tmp_path / "run", callbacks=Watcher(press_at=2))
    assert not (tmp_path / "run").exists()


def test_a_comparison_trains_nothing_before_it_has_its_folder(tmp_path):
    watcher = Watcher()
    methods = [{"method": "fedseq", "label": "a"}]
    watcher.started = lambda experiment, round: None
    fr.compare(methods, **CONF, out=tmp_path / "both", callbacks=watcher)
    assert len(watcher.seen) == CLIENTS


def test_the_plan_of_a_run_has_the_pass(tmp_path):
    summary = plan_summary(prepare(experiment("fedseq", **CONF)))
    assert (summary["setup"]["round"], summary["setup"]["s2c"]) == (0, CLIENTS)
    assert plan_summary(prepare(experiment("fedavg", clients=4)))["setup"] is None


def test_a_method_that_cannot_describe_its_clients_is_refused_before_the_first_runs(tmp_path):
    t2v = {"method": "fedseq", "label": "t2v", "grouping": {"assign": "icg", "profile": "t2v"}}
    with pytest.raises(fr.SpecError, match="'t2v' needs images"):
        fr.compare(["fedavg", t2v], data="synthetic", clients=4, rounds=1, out=tmp_path / "both")
    assert list(tmp_path.iterdir()) == []


def test_rows_of_tables_and_half_floats_can_be_described():
    settings = {"data": "synthetic", "clients": 6, "rounds": 1, "model": "mlp"}
    for profile in ("conf", "clf"):
        result = fr.run("fedseq", **settings, **{"grouping.assign": "icg", "grouping.profile": profile})
        assert result.experiment.data.public == (10 if profile == "conf" else 0)
    half = torch.nn.Linear(64, 10).to(torch.bfloat16)
    module = torch.nn.Sequential(torch.nn.Flatten(), half)
    grouping = {"grouping.assign": "icg", "grouping.profile": "weights", "grouping.variance": None}
    wanted = experiment("fedseq", clients=4, **grouping, **{"grouping.relative": True})
    vectors = prepare(wanted, module=module).prepared.profiling.vectors
    assert vectors.shape == (4, 650)
    assert 0 < np.abs(vectors).max() < 1
