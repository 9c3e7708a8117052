"""`kill -9` at random moments, then resume: the same bits as if nothing had happened."""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from fedrelay.cli import main

ARGUMENTS = [
    "--data",
    "digits",
    "--clients",
    "40",
    "--alpha",
    "0",
    "--rounds",
    "16",
    "--batch-size",
    "4",
    "--workers",
    "2",
]

STORM = (
    "faults=[{what: dropout, rate: 0.2}, {what: hang, rate: 0.1}, {what: nan, rate: 0.05}, {what: zero, rate: 0.1}]",
    "guard={on_divergence: skip, norm: 3, tolerance: 0.1}",
    "recovery={policy: backup, deadline: 100}",
)


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in found.read_text().split()] if found.exists() else []


def lines_of(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def alive(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return state.exists() and state.read_text().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("checkpoint_seconds", "options"),
    [
        pytest.param("0", STORM, id="a checkpoint every round, with many faults"),
        pytest.param(
            "0.3",
            ("grouping.assign=greedy", "grouping.profile=conf", "grouping.epochs=1"),
            id="groups by confidence",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_run_killed_again_and_again_ends_with_the_same_bits(
    warm_python, tmp_path, capsys, checkpoint_seconds, options
):
    settings = [*ARGUMENTS, "--set", f"checkpoint.seconds={checkpoint_seconds}"]
    for option in options:
        settings += ["--set", option]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert main(["run", "fedseq", *settings, "--out", str(whole), "--json"]) == 0
    expected = json.loads(capsys.readouterr().out.splitlines()[-1])
    moments = random.Random(int(float(checkpoint_seconds) * 10))
    command = ["run", "fedseq", *settings, "--out", str(killed), "--json"]
    kills = 0
    while True:
        process = warm_python.start("-m", "fedrelay", *command, folder=tmp_path)
        lines = lines_of(killed / "ledger.jsonl")
        goal, deadline = lines + moments.randint(1, 6), time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline and lines_of(killed / "ledger.jsonl") < goal:
            time.sleep(0.005)
        time.sleep(moments.random() * 0.03)
        workers = children(process.pid)
        process.kill()
        if process.wait() == 0:
            break
        assert process.returncode == -signal.SIGKILL, process.err
        kills += 1
        gone = time.monotonic() + 10
        while any(alive(worker) for worker in workers) and time.monotonic() < gone:
            time.sleep(0.01)
        assert not any(alive(worker) for worker in workers), "workers outlived their parent"
        command = ["resume", str(killed), "--json"]
    assert kills >= 2
    found = json.loads(process.out.splitlines()[-1])
    assert found["weights_sha256"] == expected["weights_sha256"]
    stormy = options is STORM
    assert (whole / "events.jsonl").exists() == stormy
    for name in ("metrics.jsonl", "ledger.jsonl", "model.safetensors", *(["events.jsonl"] if stormy else [])):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
    for key in ("accuracy", "accuracy_last", "loss", "transfers", "bytes", "client_updates", "rounds"):
        assert found[key] == expected[key]
