"""Python processes that start in milliseconds: copies of one that has imported what takes seconds.

For tests of what only processes do: die, get signals, hold locks, import plug-ins, talk to each other. Each has a
folder, an environment and an end of its own, and runs what an interpreter would be given: `-m module`, `-c code` or a
script.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import IO, Any, NoReturn

PRELOADED = (
    "fedrelay.api",
    "fedrelay.cli.app",
    "fedrelay.experiment.method_registration",
    "fedrelay.report.page_sections",
    "fedrelay.report.terminal.run_tables",
    "fedrelay.runtime.round_loop",
)
LONGEST_REQUEST = 1 << 17
PATIENCE = 300.0
"""Seconds on a busy machine; only used up if something is wrong."""


class WarmProcess:
    """A process of its own; what it says goes to two files, which may be the same."""

    def __init__(self, python: WarmPython, pid: int, out: Path, err: Path) -> None:
        self.python, self.pid, self.files = python, pid, (out, err)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self.python.ask(self.pid)
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout, self.out, self.err)
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:  # until then its number is nobody else's
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    @property
    def out(self) -> str:
        return self.files[0].read_text()

    @property
    def err(self) -> str:
        return self.files[1].read_text()

    def says(self, words: str) -> None:
        """Wait until it has said so."""
        deadline = time.monotonic() + PATIENCE
        while words not in self.out:
            assert self.poll() is None, (self.out, self.err)
            assert time.monotonic() < deadline, (self.out, self.err)
            time.sleep(0.005)


class WarmPython:
    """The process that is copied; it ends when it is closed, or with the process that started it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.said = tempfile.TemporaryDirectory()
        self.numbers = count()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)

    def ask(self, request: object, files: tuple[IO[bytes], ...] = ()) -> Any:
        with self.lock:
            socket.send_fds(self.socket, [json.dumps(request).encode()], [file.fileno() for file in files])
            answer = self.socket.recv(100)
        assert answer, "the process that is copied has ended"
        return json.loads(answer)

    def preload(self, *names: str) -> None:
        """Import modules that several processes to come would import, each for itself."""
        self.ask(names)

    def start(
        self, *words: object, folder: Path, environment: Mapping[str, str] | None = None, log: Path | None = None
    ) -> WarmProcess:
        """A process with these words after `python`; if `log` is given, it says everything there."""
        number = next(self.numbers)
        out, err = (log or Path(self.said.name, f"{number}.{name}") for name in ("out", "err"))
        request = {"words": [str(word) for word in words], "folder": str(folder)}
        with out.open("ab") as first, err.open("ab") as second:
            pid = self.ask({**request, "environment": dict(environment or os.environ)}, (first, second))
        return WarmProcess(self, pid, out, err)

    def run(self, *words: object, folder: Path, environment: Mapping[str, str] | None = None) -> WarmProcess:
        """The same, when it has ended."""
        process = self.start(*words, folder=folder, environment=environment)
        try:
            process.wait()
        finally:
            process.kill()
        return process

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)  # workers that the tests forked may have copies of it
        self.socket.close()
        self.process.wait(PATIENCE)
        self.said.cleanup()


def serve(requests: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Start and look after copies; return in each copy, with what it shall do and the files for what it says."""
    while True:
        message, files, _, _ = socket.recv_fds(requests, LONGEST_REQUEST, 2)
        if not message:
            os._exit(0)
        request = json.loads(message)
        if isinstance(request, int):
            pid, status = os.waitpid(request, os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif isinstance(request, list):
            answer = import_modules(request)
        elif not (answer := os.fork()):
            requests.close()
            return request, files
        for file in files:
            os.close(file)
        requests.send(json.dumps(answer).encode())


def import_modules(names: Iterable[str]) -> None:
    """Import modules for all copies to come."""
    for name in names:
        import_module(name)
    gc.freeze()  # what is never looked at is never copied


def become(request: dict[str, Any], files: list[int]) -> None:
    """What an interpreter does that was started with these words."""
    for standard, file in enumerate((os.open(os.devnull, os.O_RDONLY), *files)):
        os.dup2(file, standard)
        os.close(file)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    words: list[str] = request["words"]
    searched = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.path[:1] = {"-m": [str(Path.cwd())], "-c": [""]}.get(words[0], [str(Path(words[0]).parent)]) + searched
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


def leave(code: object) -> NoReturn:
    """End as an interpreter does, but without tearing down what was imported, which takes a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    with suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    import_module("fedrelay.experiment.method_catalogue").import_built_in_parts()
    import_modules(PRELOADED)
    what = serve(socket.socket(fileno=int(sys.argv[1])))
    try:
        become(*what)
    except SystemExit as end:
        leave(end.code)
    except Exception:
        sys.excepthook(*sys.exc_info())
        leave(1)
    leave(None)
