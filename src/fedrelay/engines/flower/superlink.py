"""Runs a SuperLink as a child process, with TLS, and keeps its list of nodes equal to the keys in the folder."""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from fedrelay.engines.flower.credentials import (
    CA,
    SECRET,
    SERVER,
    SERVER_KEY,
    PublicKey,
    authority,
    check_server_folder,
    public_keys,
)
from fedrelay.engines.flower.wire.superlink_calls import admit, listens
from fedrelay.errors import EngineError

log = logging.getLogger(__name__)

PATIENCE = 120.0
"""Seconds to wait until it listens; on an idle machine it takes three."""

DEATH_SIGNAL = 1

REMOVED_KEY = (
    "its key was removed before, and Flower accepts it again only after a restart of the SuperLink without that "
    "--database; or make another key"
)


class SuperLink:
    """A running SuperLink."""

    def __init__(self, folder: Path, host: str, port: int, database: Path | None = None) -> None:
        self.folder, self.address = folder, f"{host}:{port}"
        self.local = f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
        check_server_folder(folder)
        self.authority = authority(folder / CA)
        self.admitted: dict[str, PublicKey] | None = None
        if listens(self.local, self.authority):
            raise EngineError(f"{self.local}: a SuperLink already listens there")
        self.log = (folder / "superlink.log").open("ab")
        self.process = subprocess.Popen(
            command(folder, host, port, database),
            stdout=self.log,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"},
            preexec_fn=_die_with_parent,
            umask=0o077,  # a database holds models
            start_new_session=True,  # Ctrl-C reaches only us; we end the child
        )
        self._await_listening()

    def __enter__(self) -> SuperLink:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def register(self) -> list[str]:
        """Admit exactly the nodes whose keys are in the folder. Returns a line for each change."""
        keys = public_keys(self.folder)
        if keys == self.admitted:
            return []
        refused, removed = admit(self.local, self.authority, keys)
        before, self.admitted = self.admitted or {}, keys
        changed = [name for name, key in keys.items() if before.get(name) != key]
        gone = [name for name, key in before.items() if key not in keys.values()]
        lines = [f"{name} is admitted" for name in changed if name not in refused]
        lines += [f"{name} is not admitted: {REMOVED_KEY}" for name in changed if name in refused]
        lines += [f"the former key of {name} is removed" for name in gone]
        if removed > len(gone):
            lines.append(f"keys that are in no file were removed: {removed - len(gone)}")
        return lines

    def ended(self) -> int | None:
        return self.process.poll()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()

    def _await_listening(self) -> None:
        began = time.monotonic()
        while not listens(self.local, self.authority):
            if self.process.poll() is not None or time.monotonic() - began > PATIENCE:
                self.close()
                raise EngineError(
                    f"the SuperLink does not listen on {self.address}; {self.folder / 'superlink.log'} says why. "
                    f"Is the port taken, or the certificate not for {self.local.rpartition(':')[0]}?"
                )
            time.sleep(0.2)


def command(folder: Path, host: str, port: int, database: Path | None) -> list[str]:
    """The command line: TLS, known nodes only, no installation of other code."""
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
    """On Linux, end the child when its parent is killed; otherwise it would keep the port."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGTERM)
