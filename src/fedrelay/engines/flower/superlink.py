"""Runs a SuperLink as a child process, with TLS, and keeps its list of nodes equal to the keys in the folder.

Only who knows the server's secret can control it. If a node was removed there all the same, by somebody who knows the
secret, the SuperLink is restarted: Flower accepts a removed key in no other way.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
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
    server_secret,
)
from fedrelay.engines.flower.printable_text import one_line
from fedrelay.engines.flower.wire import superlink_process
from fedrelay.engines.flower.wire.superlink_calls import admit, answers_strangers, listens
from fedrelay.engines.flower.wire.superlink_process.log_rotation import open_log
from fedrelay.errors import EngineError

log = logging.getLogger(__name__)

LOG = "superlink.log"
"""Flower's own log, in the server's folder."""

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
        self.folder, self.host, self.port, self.database = folder, host, port, database
        self.address = f"{host}:{port}"
        self.local = f"{'127.0.0.1' if host == '0.0.0.0' else host}:{port}"
        check_server_folder(folder)
        self.authority, self.secret = authority(folder / CA), server_secret(folder)
        self.admitted: dict[str, PublicKey] = {}
        self.refused: set[str] = set()
        if listens(self.local, self.authority):
            raise EngineError(f"{self.local}: a SuperLink already listens there")
        self.log = folder / LOG
        self.process = self._start()
        self._await_listening()

    def __enter__(self) -> SuperLink:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def register(self) -> list[str]:
        """Admit exactly the nodes whose keys are in the folder. Returns a line for each change."""
        keys, before, refused_before = public_keys(self.folder), self.admitted, self.refused
        self.refused, removed = admit(self.local, self.authority, self.secret, keys)
        self.admitted = keys
        changed = [name for name, key in keys.items() if before.get(name) != key]
        gone = [name for name, key in before.items() if key not in keys.values()]
        lines = [f"{name} is admitted" for name in changed if name not in self.refused]
        lines += [f"{name} is not admitted: {REMOVED_KEY}" for name in changed if name in self.refused]
        lines += [f"the former key of {name} is removed" for name in gone]
        if removed > len(gone):
            lines.append(f"keys that are in no file were removed: {removed - len(gone)}")
        shut_out = sorted(self.refused - refused_before - set(changed))
        return lines + (self._admit_again(shut_out) if shut_out else [])

    def _admit_again(self, names: Sequence[str]) -> list[str]:
        """Admit nodes that somebody else has removed."""
        what = f"{', '.join(names)}: removed by somebody else who knows {self.folder / SECRET}; replace it"
        if self.database is not None:
            return [f"{what}. Not admitted again: {REMOVED_KEY}"]
        self.close()
        self.process = self._start()
        self._await_listening()
        self.refused, _ = admit(self.local, self.authority, self.secret, self.admitted)
        return [f"{what}. The SuperLink was restarted to admit {'it' if len(names) == 1 else 'them'} again"]

    def ended(self) -> int | None:
        return self.process.poll()

    def _start(self) -> subprocess.Popen[bytes]:
        output = open_log(self.log)
        try:
            return subprocess.Popen(
                command(self.folder, self.host, self.port, self.database),
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env={**os.environ, "FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"},
                preexec_fn=_die_with_parent if os.name == "posix" else None,
                umask=0o077 if os.name == "posix" else -1,  # a database holds models
                start_new_session=True,  # Ctrl-C reaches only us; we end the child
            )
        finally:
            os.close(output)  # the child has its own

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _await_listening(self) -> None:
        """Wait until it listens, and make sure that it refuses strangers. Whatever fails, it does not stay up."""
        try:
            self._wait_for_port()
            self._check_strangers()
        except BaseException:
            self.close()
            raise

    def _wait_for_port(self) -> None:
        began = time.monotonic()
        while not listens(self.local, self.authority):
            if self.process.poll() is not None or time.monotonic() - began > PATIENCE:
                raise EngineError(
                    f"the SuperLink does not listen on {self.address}; {self.log} says why. "
                    f"Is the port taken, or the certificate not for {self.local.rpartition(':')[0]}?"
                )
            time.sleep(0.2)

    def _check_strangers(self) -> None:
        try:
            answered = answers_strangers(self.local, self.authority)
        except Exception as error:
            raise EngineError(
                f"the SuperLink on {self.address} was stopped: whether it can be controlled without the secret could "
                f"not be checked ({one_line(str(error), 200)}); start it again"
            ) from None
        if answered:
            raise EngineError(
                f"the SuperLink on {self.address} was stopped: it can be controlled without the secret; is this "
                "version of Flower supported? Install one that is with: pip install 'fedrelay[flower]'"
            )


def command(folder: Path, host: str, port: int, database: Path | None) -> list[str]:
    """The command line: TLS, known nodes only, a Control interface with a token, no installation of other code."""
    return [
        sys.executable,
        "-P",  # the folder that it is started in has no place among modules
        "-m",
        superlink_process.__name__,
        str(folder / SECRET),
        str(folder / LOG),
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
    """On Linux, end the child when its parent is killed; otherwise it would keep the port.

    At once: asked to stop, it waits for open connections, and nodes that keep theirs would not notice its successor.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DEATH_SIGNAL, signal.SIGKILL)
