"""Contenders as child processes that leave nothing behind, whatever they start and however they end."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

TIME_LIMIT = 900.0
MARK = "FEDRELAY_PEERS_FAMILY"
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",
}
"""No telemetry, loopback only, and one thread per process: with more, small models only get slower."""


class ContenderError(Exception):
    """A contender failed; the message says how."""


def measure(command: Sequence[str]) -> dict[str, Any]:
    """Run a contender's script to its end and give back the line of JSON it printed."""
    family = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="peers-", ignore_cleanup_errors=True) as folder:
        own = {MARK: family, "RAY_TMPDIR": folder, "FLWR_HOME": folder, "TMPDIR": folder}
        # A session of its own: Ctrl-C reaches this process alone, which then ends the whole family.
        child = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, **QUIET, **own},
            start_new_session=True,
        )
        try:
            out, errors = child.communicate(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            raise ContenderError(f"not done after {TIME_LIMIT:.0f} s") from None
        finally:
            end_family(family)
            child.wait()
    if child.returncode:
        raise ContenderError(f"exit code {child.returncode}: {reason_in(errors)}")
    return result_in(out)


def measure_in_copy(script: Path, words: Sequence[str]) -> dict[str, Any]:
    """The same for one of our own scripts, in a copy of this process, which imports nothing again.

    For smoke runs: a copy has the memory and the random state of this process, so its times mean nothing.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as output:
        context = multiprocessing.get_context("fork")
        copy = context.Process(target=_run_script, args=(script, words, folder, output.fileno()))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # other threads: the copy takes none of their locks
            copy.start()
        copy.join(TIME_LIMIT)
        if copy.exitcode is None:
            copy.kill()
            raise ContenderError(f"not done after {TIME_LIMIT:.0f} s")
        output.seek(0)
        said = output.read()
    if copy.exitcode:
        raise ContenderError(f"exit code {copy.exitcode}: {reason_in(said)}")
    return result_in(said)


def _run_script(script: Path, words: Sequence[str], folder: str, output: int) -> None:
    sys.stdout = sys.stderr = os.fdopen(os.dup(output), "w", buffering=1)
    os.chdir(folder)
    os.environ.update(QUIET)
    torch.set_num_threads(1)  # threads of the process that was copied do not exist here
    sys.argv = [str(script), *words]
    sys.path[:] = [str(script.parent), *(path for path in sys.path if Path(path) != script.parents[1])]
    runpy.run_path(str(script), run_name="__main__")


def result_in(output: str) -> dict[str, Any]:
    """The last line of an output that is a measurement; peers print other things as well."""
    for line in reversed(output.splitlines()):
        with contextlib.suppress(json.JSONDecodeError):
            found = json.loads(line)
            if isinstance(found, dict) and "seconds" in found:
                return found
    raise ContenderError(f"printed no measurement, but {reason_in(output)!r}")


def end_family(family: str) -> None:
    """Kill every process that carries the family's mark, also those that left its session."""
    quiet = 0
    while quiet < 2:  # a process that is just being started has no environment for a moment
        found = relatives(family)
        quiet = 0 if found else quiet + 1
        for process in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)


def relatives(family: str) -> list[int]:
    """The processes that inherited the family's mark."""
    mark = f"{MARK}={family}".encode()
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # gone meanwhile, or somebody else's
            if mark in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def reason_in(output: str) -> str:
    """The last line that names an error, or else the last that says something."""
    lines = [line.strip() for line in output.splitlines() if any(letter.isalpha() for letter in line)]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return (errors or lines or ["nothing"])[-1]
