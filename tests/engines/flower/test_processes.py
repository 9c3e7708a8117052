"""A federation of real processes on this machine: SuperLink, nodes, TLS and keys."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.warm_python import WarmProcess, WarmPython

import fedrelay as fr
from fedrelay.cli import main
from fedrelay.data.open_federation import open_federation
from fedrelay.experiment.spec import DataSettings

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest

from fedrelay.engines.flower.connect import server_signatures
from fedrelay.engines.flower.credentials import public_keys, write_private
from fedrelay.engines.flower.node import serve_loop
from fedrelay.engines.flower.server.node_registration import ask_for_facts
from fedrelay.engines.flower.wire import superlink_run
from fedrelay.engines.flower.wire.server_side_connection import REFRESH, ServerSideConnection
from fedrelay.engines.flower.wire.superlink_calls import control

# A SuperLink that is killed in the middle of a handshake leaves a socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

NAMES = ("a", "b", "c")
TRAIN = {"rounds": 2, "batch_size": 16, "seed": 3, "fraction": 1.0}
GROUPS = {"grouping.max_clients": 3, "grouping.min_samples": 5000}
PATIENCE = 120

SLOW = """
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
import torch

class Slow(torch.nn.Sequential):
    def forward(self, x):
        if Path("slow").exists():
            Path("busy").touch()
            time.sleep(0.1)
        return super().forward(x)

def make():
    return Slow(torch.nn.Flatten(), torch.nn.Linear(64, 10))
"""
"""A model of one's own, which takes its time at the nodes whenever there is a file 'slow'."""


class Federation:
    """Folders, keys and processes; every process is ended by its id."""

    def __init__(self, folder: Path, python: WarmPython) -> None:
        self.folder, self.python, self.processes = folder, python, {}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{probe.getsockname()[1]}"
        self.program("certificates", "server")
        self.program("certificates", "stranger")
        self.data = open_federation(DataSettings(name="digits", clients=len(NAMES), alpha=0.3), 3)
        for client, name in enumerate((*NAMES, "d")):
            self.program("key", f"{name}.key")
            if name in NAMES:
                public = (folder / f"{name}.key.pub").read_bytes()
                (folder / "server" / "nodes" / f"{name}.pub").write_bytes(public)
            x, y = self.data.train_samples(client % len(NAMES))
            np.savez(folder / f"{name}.npz", x=x.numpy(), y=y.numpy())
        (folder / "slowly.py").write_text(SLOW)
        np.savez(folder / "test.npz", x=self.data.test.x.numpy(), y=self.data.test.y.numpy())

    @property
    def settings(self):
        engine = {"superlink": self.address, "folder": self.folder / "server", "test": self.folder / "test.npz"}
        return {"engine": {"name": "flower", **engine, "wait": PATIENCE}, "data": "digits at nodes", **TRAIN}

    def program(self, *words):
        here = Path.cwd()
        os.chdir(self.folder)
        try:
            assert main([*words, *(["-q"] if words[0] in ("certificates", "key") else [])]) == 0
        finally:
            os.chdir(here)

    def start(self, name: str, *words: str) -> WarmProcess:
        log = self.folder / f"{name}.log"
        self.processes[name] = self.python.start("-m", "fedrelay", *words, folder=self.folder, log=log)
        return self.processes[name]

    def start_link(self):
        return self.start("link", "superlink", "server", "--port", self.address.partition(":")[2])

    def start_node(self, name: str, *, data: str | None = None, ca: str = "server/ca.pem"):
        words = ["node", "--data", data or f"{name}.npz", "--key", f"{name}.key", "--ca", ca, "--model", "slowly:make"]
        more = ["--superlink", self.address, "--patience", "60", "--checkpoint-every", "1epoch"]
        return self.start(name, *words, *more)

    def kill(self, name: str) -> None:
        process = self.processes.pop(name)
        process.kill()
        process.wait()

    def says(self, name: str, words: str) -> bool:
        return words in " ".join((self.folder / f"{name}.log").read_text().split())

    def close(self) -> None:
        for name in sorted(self.processes, key=lambda name: name == "link"):
            self.processes[name].terminate()
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until(happened, what: str) -> None:
    began = time.monotonic()
    while not happened():
        assert time.monotonic() - began < PATIENCE, what
        time.sleep(0.02)


@pytest.fixture(scope="module")
def federation(tmp_path_factory, warm_python):
    found = Federation(tmp_path_factory.mktemp("federation"), warm_python)
    try:
        found.start_link()
        for name in NAMES:
            found.start_node(name)
        yield found
    finally:
        found.close()


class Watcher:
    """Does something after a round."""

    def __init__(self, act):
        self.act = act

    def on_round_end(self, context):
        self.act(context.round)

    profiling = started = stopping = lambda self, *_: None


def events(folder):
    path = folder / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize(
    ("method", "settings"), [("fedavg", {}), ("fedseq", GROUPS), ("fedavg+scaffold", {"rounds": 3})]
)
def test_the_same_weights_as_the_local_engine(method, settings, federation):
    there = fr.run(method, **{**federation.settings, **settings})
    here = fr.run(method, data=federation.data, workers=1, **{**TRAIN, **settings})
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    assert there.accuracy == pytest.approx(here.accuracy, abs=0.005)
    assert there.hop_overhead > 0


@pytest.mark.parametrize(
    ("ca", "message"),
    [
        ("server/ca.pem", "the SuperLink does not accept this node"),
        ("stranger/ca.pem", "has a certificate that stranger/ca.pem did not sign"),
    ],
)
def test_strangers_are_refused(ca, message, federation, monkeypatch, capsys):
    """A node with a key that nobody registered, and one that is led to a server of another authority."""
    monkeypatch.chdir(federation.folder)
    monkeypatch.setattr(serve_loop, "PAUSE", 0.1)
    words = ["--data", "d.npz", "--key", "d.key", "--ca", ca, "--superlink", federation.address]
    assert main(["node", *words]) == 6
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_server_with_another_secret_is_refused(federation, tmp_path):
    other = tmp_path / "server"
    other.mkdir()
    (other / "ca.pem").write_bytes((federation.folder / "server" / "ca.pem").read_bytes())
    write_private(other / "secret", b"guessed")
    with pytest.raises(fr.EngineError, match="does not accept the secret"):
        fr.run("fedavg", **{**federation.settings, "engine.folder": other})


def test_several_servers_at_one_superlink_do_not_steal_runs(federation, caplog):
    """A SuperLink gives the next run to any server. A server that gets another's run ends it."""
    server = federation.folder / "server"
    authority, secret = (server / "ca.pem").read_bytes(), (server / "secret").read_bytes()
    opened = partial(ServerSideConnection, federation.address, authority, secret, public_keys(server), wait=PATIENCE)
    opened().close()  # as soon as there is a SuperLink
    with control(federation.address, authority, secret) as api:
        left_behind = api.StartRun(StartRunRequest(fab=superlink_run.app())).run_id
        with ThreadPoolExecutor(3) as pool:
            connections = [started.result() for started in [pool.submit(opened) for _ in range(3)]]
        assert "had another run waiting" in caplog.text
        assert "has other runs too" in caplog.text
        for connection in connections:
            until(lambda connection=connection: connection.online() == set(NAMES), "all nodes are there")
            found, reasons = ask_for_facts(connection, NAMES, NAMES, PATIENCE, server_signatures(server))
            assert (set(found), reasons) == (set(NAMES), {})
            connection.close()
        runs = api.ListRuns(ListRunsRequest()).run_dict
    assert len({connection.superlink_run.run for connection in connections}) == 3
    assert runs[left_behind].status.sub_status == "failed"
    assert {runs[connection.superlink_run.run].status.sub_status for connection in connections} == {"completed"}


def test_models_that_do_not_wait_for_each_other(federation, tmp_path):
    """In every round the fastest model finishes one more group, whichever it is."""
    singles = {"grouping.max_clients": 1, "grouping.min_samples": 1, "fraction": 0.7, "route.period": 2, "rounds": 4}
    result = fr.run("fedasyncseq+scaffold", **{**federation.settings, **singles}, out=tmp_path / "run")
    ledger = [json.loads(line) for line in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    assert [line["merges"] for line in ledger] == [False, True, False, True]
    for first, second in (ledger[:2], ledger[2:]):
        done = [len(one) + len(two) for one, two in zip(first["routes"], second["routes"], strict=True)]
        assert len(done) == 2
        assert max(map(len, first["routes"])) == 1
        assert max(done) == 2
    assert {event["what"] for event in events(tmp_path / "run")} <= {"given up"}
    assert result.client_updates == sum(len(route) for line in ledger for route in line["routes"])
    assert result.transfers["s2c"] >= 2 * result.client_updates == result.transfers["c2s"]


@pytest.mark.slow
def test_a_node_that_is_killed_in_a_chain_and_comes_back(federation, tmp_path):
    def act(round):
        if round == 1:
            federation.kill("b")
        if round == 2:
            federation.start_node("b")
            before = (federation.folder / "b.log").read_text().count("ready")
            until(lambda: (federation.folder / "b.log").read_text().count("ready") > before, "b is back")
            time.sleep(REFRESH)  # until then the server may not look who is there

    patient = {"recovery.timeout": 20}  # a node's first hop takes seconds on a busy machine
    settings = {**federation.settings, **GROUPS, **patient, "rounds": 3}
    result = fr.run("fedseq+scaffold", **settings, out=tmp_path / "run", callbacks=Watcher(act))
    assert [(event["round"], event["client"]) for event in events(tmp_path / "run")] == [(2, 1)]
    assert events(tmp_path / "run")[0]["done"].startswith("passed over: ")
    assert result.complete
    assert (result.client_updates, result.longest_route) == (8, 3)  # one hop did not happen


def test_a_node_that_is_killed_in_a_hop_goes_on_where_it_was(federation, tmp_path):
    """Killed with -9 in the middle of five epochs."""
    until(lambda: federation.says("b", "ready"), "b is there")
    log = federation.folder / "b.log"
    before = len(log.read_text())

    def kill_in_a_hop():
        until(lambda: log.read_text()[before:].count("saved after step") == 2, "b has trained two epochs")
        federation.kill("b")
        (federation.folder / "slow").unlink()
        federation.start_node("b")

    meanwhile = threading.Thread(target=kill_in_a_hop)
    (federation.folder / "slow").touch()
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    settings = {**GROUPS, "rounds": 1, "batch_size": 64, "epochs": 5, "momentum": 0.9, "model": net}
    meanwhile.start()
    there = fr.run("fedseq", **{**federation.settings, **settings}, out=tmp_path / "run")
    meanwhile.join()
    here = fr.run("fedseq", data=federation.data, workers=1, **{**TRAIN, **settings})
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    assert events(tmp_path / "run") == []
    first_round = re.findall(r"round 1, .* (saved|goes on) after step (\d+)", log.read_text()[before:])
    epoch = int(first_round[0][1])
    done = [("saved", 1), ("saved", 2), ("goes on", 2), ("saved", 3), ("saved", 4), ("saved", 5)]
    assert [(what, int(step)) for what, step in first_round] == [(what, epoch * epochs) for what, epochs in done]
    assert main(["audit", str(tmp_path / "run"), "-q"]) == 0


def test_deaths_of_the_server_side_change_nothing(federation, tmp_path, caplog):
    """The SuperLink is killed in the middle of a hop, and the run goes on; both are killed, and the run is resumed."""

    class Death(BaseException):
        pass

    def restart_link():
        federation.kill("link")  # its child, the SuperLink itself, goes with it
        federation.start_link()

    def restart_link_in_a_hop():
        until((federation.folder / "busy").exists, "a node is at work")
        restart_link()
        (federation.folder / "slow").unlink()

    def die(round):
        if round == 1:
            (federation.folder / "busy").unlink(missing_ok=True)  # of an earlier test
            (federation.folder / "slow").touch()
            meanwhile.start()
        if round == 3:
            meanwhile.join()
            restart_link()
            raise Death

    meanwhile = threading.Thread(target=restart_link_in_a_hop)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    settings = {**GROUPS, "rounds": 4, "model": net}
    there = {**federation.settings, **settings, "checkpoint": {"seconds": 0}}
    with pytest.raises(Death):
        fr.run("fedseq+scaffold", **there, out=tmp_path / "run", callbacks=Watcher(die))
    warnings = "\n".join(record.getMessage() for record in caplog.records)
    # A SuperLink that restarts between two polls is only seen to have forgotten the run.
    assert re.search(r"the SuperLink at .* (cannot be reached|no longer knows this run) .*; waiting for it\n", warnings)
    assert re.search(r"; back after \d+ s, requests sent again: 1", warnings)
    there = fr.resume(tmp_path / "run", model=net)
    here = fr.run("fedseq+scaffold", data=federation.data, workers=1, **{**TRAIN, **settings})
    torch.testing.assert_close(there.weights, here.weights, rtol=0, atol=1e-6)
    assert not [event for event in events(tmp_path / "run") if event["client"] >= 0]  # no node was passed over
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    logs = [*federation.folder.glob("*.log"), federation.folder / "server" / "superlink.log"]
    secret = (federation.folder / "server" / "secret").read_bytes()
    assert not [path for path in (*written, *logs) if secret in path.read_bytes()]
