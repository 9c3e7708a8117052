"""Clocks that jump: seconds are measured by a clock that nobody can set."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

from tests.runtime.eight_clients import federation, network

import fedrelay as fr
from fedrelay.runtime.run_folder_reader import RunFolderReader

DAY = 86_400

WALL_CLOCK = {
    "files.py": "which of several files was used last, made to grow",
    "runtime/tracking.py": "when a metric was logged, for MLflow",
    "engines/flower/request_signatures.py": "until when a node may answer a request",
    "engines/flower/wire/superlink_process/request_limits.py": "what a SuperLink's clock says, for those who ask",
    "engines/flower/wire/superlink_process/redelivery.py": "when a message expires, by the SuperLink's clock",
    "engines/flower/node/client_state_files.py": "how many days a run has not continued",
    "engines/flower/server/client_state_versions.py": "ids, made to grow",
    "engines/flower/wire/clock_difference.py": "whether our clock and the SuperLink's agree",
    "engines/flower/wire/superlink_run.py": "when a message was created, for the SuperLink",
    "engines/flower/wire/superlink_calls.py": "when a node was seen last, by the SuperLink's clock; shown only",
}
"""File → why it asks what time it is."""


def test_a_run_does_not_notice_that_the_clock_jumps(tmp_path, monkeypatch):
    settings = {"data": federation(), "model": network(), "rounds": 3, "workers": 1, "checkpoint": {"seconds": 1000}}
    settings |= {"clock.profile": "log-normal", "recovery": {"timeout": 20}, "stop": {"max_wall": 600}}
    steady = fr.run("scaffold", **settings)
    now, jumps = time.time(), itertools.cycle((DAY, -DAY, 0))
    monkeypatch.setattr(time, "time", lambda: now + next(jumps))
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * (now + next(jumps))))
    jumping = fr.run("scaffold", out=tmp_path / "run", **settings)
    assert jumping.weights_sha256 == steady.weights_sha256
    assert (jumping.virtual_seconds, jumping.stopped, jumping.fault_events) == (steady.virtual_seconds, "", {})
    assert all(0 <= line["seconds"] < 60 for line in RunFolderReader.open(tmp_path / "run").lines("timings"))


def test_few_files_ask_what_time_it_is():
    source = Path(fr.__file__).parent
    asking = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\btime\.time(_ns)?\b|from time import", path.read_text())
    }
    assert asking == set(WALL_CLOCK)
