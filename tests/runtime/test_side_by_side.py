"""Worker processes of whole runs end with the process that started them, even if it was killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from fedrelay.runtime.side_by_side import side_by_side

LONG_WORK = """
import os, time
from pathlib import Path

def work(name):
    Path(f"{name}.pid").write_text(str(os.getpid()))
    time.sleep(100)
"""

PARENT = """
from fedrelay.runtime.side_by_side import side_by_side
from long_work import work

list(side_by_side(work, ["one", "two"], 2))
"""


def ended(pid: int) -> bool:
    state = Path(f"/proc/{pid}/stat")
    return not state.exists() or state.read_text().rsplit(")", 1)[1].split()[0] == "Z"


def until(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_workers_do_not_outlive_a_parent_that_was_killed(warm_python, tmp_path):
    (tmp_path / "long_work.py").write_text(LONG_WORK)
    process = warm_python.start("-c", PARENT, folder=tmp_path)
    files = [tmp_path / "one.pid", tmp_path / "two.pid"]
    until(lambda: process.poll() is not None or all(file.exists() and file.read_text() for file in files))
    assert process.poll() is None, process.err
    workers = [int(file.read_text()) for file in files]
    process.kill()
    assert process.wait() == -signal.SIGKILL, process.err
    try:
        until(lambda: all(map(ended, workers)), 10.0)
    finally:
        for worker in workers:
            if not ended(worker):
                os.kill(worker, signal.SIGKILL)


def refuse(item):
    raise ValueError(item)


def test_an_error_interrupts_the_workers_and_no_other_process():
    other = multiprocessing.get_context("fork").Process(target=time.sleep, args=(100,))
    other.start()
    try:
        with pytest.raises(ValueError, match="one"):
            list(side_by_side(refuse, ["one"], 1))
        other.join(0.2)
        assert other.is_alive()
    finally:
        other.kill()
        other.join()
