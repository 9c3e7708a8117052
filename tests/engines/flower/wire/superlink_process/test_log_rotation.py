"""The log of a process: nobody else can read it, no line is lost, and it does not fill the disk."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fedrelay.engines.flower.wire.superlink_process.log_rotation import open_log

LINES = """
import os, sys
from pathlib import Path
from fedrelay.engines.flower.wire.superlink_process.log_rotation import rotate
for number in range(int(sys.argv[2])):
    os.write(1 + number % 2, b"%d\\n" % number)  # output and errors
    rotate(Path(sys.argv[1]), largest=100, older=3)
"""


def written(path, count):
    """What is in each file, the oldest first, after a process has written this many lines."""
    output = open_log(path)
    subprocess.run([sys.executable, "-c", LINES, path, str(count)], stdout=output, stderr=output, check=True)
    files = sorted(path.parent.glob("*"), reverse=True)
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600] * len(files)
    return {file.name: file.read_text().split() for file in files}


def test_no_line_is_lost(tmp_path):
    found = written(tmp_path / "log", 100)
    assert list(found) == ["log.2", "log.1", "log"]
    assert [int(line) for lines in found.values() for line in lines] == list(range(100))


def test_old_lines_are_dropped(tmp_path):
    found = written(tmp_path / "log", 1000)
    assert list(found) == ["log.3", "log.2", "log.1", "log"]
    kept = [int(line) for lines in found.values() for line in lines]
    assert kept == list(range(kept[0], 1000))
    assert all(len(" ".join(lines)) < 110 for lines in found.values())


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
def test_a_file_that_others_could_read_becomes_private(tmp_path):
    (tmp_path / "log").write_text("before\n")
    (tmp_path / "log").chmod(0o644)
    assert written(tmp_path / "log", 1) == {"log": ["before", "0"]}
