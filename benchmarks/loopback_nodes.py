"""A real federation on this machine, for benchmarks: a SuperLink and a process for each node, on the loopback address.

Every process is ended by its own id. If the benchmark is killed, the SuperLink ends with it, and nodes a minute later.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from fedrelay.cli import main as fedrelay

PATIENCE = 300.0
"""Seconds until a node is ready, on a busy machine."""

BENCHMARKS = Path(__file__).parent

Program = Callable[[Sequence[str]], int]
"""What is given the words of a command line, and returns an exit code."""


@dataclass(frozen=True)
class LoopbackNodes:
    """A running federation."""

    engine: Mapping[str, Any]
    """The settings of the engine that finds it."""

    processes: Mapping[str, int]
    """Node → the id of its process."""

    superlink: int
    """The id of the SuperLink's process."""


@contextmanager
def loopback_nodes(
    folder: Path,
    clients: Mapping[str, Path],
    options: Sequence[str],
    test: str | Path,
    program: Program = fedrelay,
) -> Iterator[LoopbackNodes]:
    """Start a SuperLink and a node for each client, and end them.

    Args:
        folder: Where keys, certificates and logs are written.
        clients: Name of a node → the folder in which it runs.
        options: Options of `fedrelay node`. A function `MODULE:FUNCTION` may be in a script of this folder.
        test: The test samples at the server.
        program: What runs as `fedrelay` at a node.
    """
    from fedrelay.engines.flower.superlink import SuperLink

    server = folder.resolve() / "server"
    _command("certificates", server)
    for name in clients:
        key = _key(server, name)
        _command("key", key)
        shutil.copy(f"{key}.pub", server / "nodes" / f"{name}.pub")
    with ExitStack() as stack:
        link = stack.enter_context(SuperLink(server, "127.0.0.1", _free_port()))
        link.register()
        nodes = {
            name: stack.enter_context(_node(name, place, server, link.address, options, program))
            for name, place in clients.items()
        }
        for name, process in nodes.items():
            _await_ready(name, process, server)
        engine = {"name": "flower", "superlink": link.address, "folder": server, "test": test, "wait": PATIENCE}
        processes = {name: process.pid for name, process in nodes.items() if process.pid is not None}
        yield LoopbackNodes(engine, processes, link.process.pid)


def _command(*words: object) -> None:
    if fedrelay([*map(str, words), "-q"]):
        raise SystemExit(f"fedrelay {' '.join(map(str, words))} failed")


def _key(server: Path, name: str) -> Path:
    return server.parent / f"{name}.key"


def _log(server: Path, name: str) -> Path:
    return server.parent / f"{name}.log"


@contextmanager
def _node(
    name: str, place: Path, server: Path, address: str, options: Sequence[str], program: Program
) -> Iterator[BaseProcess]:
    """A node's process, a copy of this one."""
    trust = ("--key", str(_key(server, name)), "--ca", str(server / "ca.pem"), "--superlink", address)
    words = ("node", *options, *trust, "--patience", "60")
    process = multiprocessing.get_context("fork").Process(
        target=_serve, args=(program, words, place, _log(server, name))
    )
    process.start()
    try:
        yield process
    finally:
        process.terminate()
        process.join(20)
        process.kill()
        process.join()


def _serve(program: Program, words: Sequence[str], place: Path, log: Path) -> None:
    """What a node's process does. It computes with one thread, as workers of the other engines do."""
    with log.open("wb") as file:
        for standard in (sys.stdout, sys.stderr):
            standard.flush()
            os.dup2(file.fileno(), standard.fileno())
    os.chdir(place)
    sys.path.insert(0, str(BENCHMARKS))
    torch.set_num_threads(1)
    sys.exit(program(words))


def _await_ready(name: str, process: BaseProcess, server: Path) -> None:
    log, began = _log(server, name), time.monotonic()
    while "ready" not in log.read_text():
        if process.exitcode is not None or time.monotonic() - began > PATIENCE:
            raise SystemExit(f"node {name} did not start: {log.read_text()}")
        time.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
