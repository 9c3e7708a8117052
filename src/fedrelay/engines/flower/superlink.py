"""The SuperLink as a child of ours: started with TLS and keys, told about nodes as their keys appear, ended with us."""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from fedrelay.engines.flower.identity import (
    CA,
    SECRET,
    SERVER,
    SERVER_KEY,
    PublicKey,
    authority,
    check_server_folder,
    public_keys,
)
from fedrelay.errors import EngineError

log = logging.getLogger(__name__)

PATIENCE = 120.0
"""Seconds until it listens; it takes three on an idle machine."""

DEATH_SIGNAL = 1

SPENT = (
    "its key was shut out before, and Flower takes it back only when the SuperLink is started anew without that "
    "--database; or make another key"
)


class SuperLink:
    """A running SuperLink that knows the keys of a folder."""

    def __init__(self, folder: Path, host: str, port: int, database: Path | None = None) -> None:
        from fedrelay.engines.flower.wire import answers

        self.folder, self.address = folder, f"{host}:{port}"
        self.local = f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
        check_server_folder(folder)
        self.authority = authority(folder / CA)
        self.admitted: dict[str, PublicKey] | None = None
        if answers(self.local, self.authority):
            raise EngineError(f"{self.local}: a SuperLink listens there already")
        self.log = (folder / "superlink.log").open("ab")
        self.process = subprocess.Popen(
            command(folder, host, port, database),
            stdout=self.log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"},
            preexec_fn=_die_with_parent,
            umask=0o077,  # a database holds models
            start_new_session=True,  # Ctrl-C reaches us; we end the child
        )
        self._until_it_listens(answers)

    def __enter__(self) -> SuperLink:
        """Running."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ended."""
        self.close()

    def register(self) -> list[str]:
        """Let in the nodes whose keys are in the folder, and no others; gives a line for each that is new or gone."""
        from fedrelay.engines.flower.wire import admit

        keys = public_keys(self.folder)
        if keys == self.admitted:
            return []
        spent, out = admit(self.local, self.authority, keys)
        before, self.admitted = self.admitted or {}, keys
        changed = [name for name, key in keys.items() if before.get(name) != key]
        gone = [name for name, key in before.items() if key not in keys.values()]
        lines = [f"{name} may come in" for name in changed if name not in spent]
        lines += [f"{name} stays out: {SPENT}" for name in changed if name in spent]
        lines += [f"the former key of {name} is shut out" for name in gone]
        return lines + ([f"keys that are in no file are shut out: {out - len(gone)}"] if out > len(gone) else [])

    def ended(self) -> int | None:
        """Its exit code, if it has ended."""
        return self.process.poll()

    def close(self) -> None:
        """End it."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()

    def _until_it_listens(self, answers: Callable[[str, bytes], bool]) -> None:
        began = time.monotonic()
        while not answers(self.local, self.authority):
            if self.process.poll() is not None or time.monotonic() - began > PATIENCE:
                self.close()
                raise EngineError(
                    f"the SuperLink does not listen on {self.address}; {self.folder / 'superlink.log'} says why. "
                    f"Is the port taken, or the certificate not for {self.local.rpartition(':')[0]}?"
                )
            time.sleep(0.2)


def command(folder: Path, host: str, port: int, database: Path | None) -> list[str]:
    """How it is started: TLS, known nodes only, no code of others."""
    beside = Path(sys.executable).parent / "flower-superlink"
    program = str(beside) if beside.is_file() else shutil.which("flower-superlink")
    if program is None:
        raise EngineError("flower-superlink is not installed; install it with: pip install 'fedrelay[flower]'")
    return [
        program,
        "--isolation=process",
        f"--host={host}",
        f"--port={port}",
        f"--ssl-certfile={folder / SERVER}",
        f"--ssl-keyfile={folder / SERVER_KEY}",
        f"--ssl-ca-certfile={folder / CA}",
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        f"--superexec-auth-secret-file={folder / SECRET}",
        *([f"--database={database}"] if database is not None else []),
    ]


def _die_with_parent() -> None:
    """On Linux, a child whose parent was killed goes too; otherwise it would hold the port."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGTERM)
