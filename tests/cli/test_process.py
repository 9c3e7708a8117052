"""The program as a process: signals, pipes and how long it takes to say hello."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from importlib.metadata import entry_points
from pathlib import Path

import psutil
import pytest
from tests.warm_python import WarmProcess

from fedrelay.cli import main
from fedrelay.report.progress import ProgressLines
from fedrelay.runtime.interrupt import SAME_PRESS

RUN = ["run", "fedseq", "--clients", "10", "--alpha", "0", "--seed", "3", "--set", "checkpoint.seconds=60"]
QUICK = [*RUN, "--rounds", "40", "--batch-size", "32"]
SLOW = [*RUN, "--rounds", "5", "--batch-size", "1", "--epochs", "3000"]


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str] | WarmProcess) -> None:
    """Wait for something that a process does."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)


def has_lines(file: Path, count: int) -> bool:
    return file.exists() and file.read_bytes().count(b"\n") >= count


def test_a_run_stopped_with_ctrl_c_resumes_to_the_same_bits(program, tmp_path):
    command = [sys.executable, "-m", "fedrelay", *QUICK, "--workers", "2", "--out", "stopped"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: has_lines(tmp_path / "stopped/ledger.jsonl", 3), process)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    done = json.loads((tmp_path / "stopped/checkpoint.json").read_text())["round"]
    assert 3 <= done < 40
    assert f"stopped after round {done} of 40" in err
    assert "everything is saved" in err
    assert err.endswith("fedrelay resume stopped\n")
    resumed = program("resume", "stopped", "--json")
    assert resumed.code == 0, resumed.err
    assert f"continues after round {done}" in resumed.err
    whole = program(*QUICK, "--workers", "1", "--out", "whole", "--json")
    assert resumed.json["weights_sha256"] == whole.json["weights_sha256"]
    for name in ("metrics.jsonl", "ledger.jsonl"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_sigterm_does_what_ctrl_c_does(program, tmp_path):
    def terminate() -> None:
        while not (tmp_path / "stopped/ledger.jsonl").exists():
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=terminate, daemon=True)
    thread.start()
    ended = program(*RUN, "--rounds", "5000", "--workers", "1", "--out", "stopped")
    assert ended.code == 130
    assert "of 5000 (fedseq, seed 3); everything is saved" in ended.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("run fedseq --out stopped --set grouping.profile=conf", "stopped before the first round; nothing was saved"),
        ("plan fedseq --set grouping.profile=clf", "stopped"),
        ("group --assign icg/conf", "stopped"),
    ],
)
def test_ctrl_c_while_clients_compute_profiles(program, tmp_path, monkeypatch, words, message):
    monkeypatch.setattr(ProgressLines, "on_profiling_progress", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    assign = [] if words.startswith("group") else ["--set", "grouping.assign=icg"]
    ended = program(*words.split(" "), *assign, "--clients", "20", "--workers", "2", "--set", "grouping.epochs=1")
    assert ended.code == 130
    assert ended.err.endswith(f"fedrelay: {message}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_second_ctrl_c_stops_at_once(warm_python, tmp_path):
    process = warm_python.start("-m", "fedrelay", *SLOW, "--workers", "2", "--out", "slow", folder=tmp_path)
    program = psutil.Process(process.pid)
    try:
        # A worker that is training has started after the handler was installed.
        wait_until(lambda: any(child.cpu_times().user > 0.2 for child in program.children()), process)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: "stopping after this round" in process.err, process)
        time.sleep(SAME_PRESS + 0.1)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    finally:
        process.kill()
    err = process.err
    assert "Traceback" not in err
    assert "stopped at once" in err
    assert err.endswith("fedrelay resume slow\n")


def test_a_closed_pipe_is_no_error_worth_a_traceback(tmp_path):
    command = f"{shlex.quote(sys.executable)} -m fedrelay methods | head -1"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_gets_one_message(program):
    with suppress(OSError), Path("/dev/full").open("w") as full, redirect_stdout(full):
        ended = program("plan", "fedseq", "--clients", "10")
    assert ended.code == 1
    assert ended.err == "fedrelay: [Errno 28] No space left on device\n"


def test_an_old_terminal_shows_what_it_can(program):
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with redirect_stdout(terminal):
        assert program("plan", "fedseq", "--clients", "10").code == 0
    assert b" ? " in terminal.buffer.getvalue()


def test_the_entry_point():
    (entry,) = entry_points(group="console_scripts", name="fedrelay")
    assert entry.load() is main
