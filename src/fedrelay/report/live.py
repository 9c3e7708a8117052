"""A running experiment in the browser: a small server that is reached from this machine alone.

It serves two things, the page and its document, and looks at the folders again whenever it is asked. Nothing of a
request ever becomes a path. Requests that name another host are refused, so that no web page from elsewhere can read
along under a name of its own.
"""

from __future__ import annotations

import errno
import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fedrelay.errors import FedRelayError, SpecError
from fedrelay.report.document import Document, document
from fedrelay.report.webpage import as_data, webpage
from fedrelay.runtime.store import Records, beyond_the_first

LOOPBACK = "127.0.0.1"
NAMES = (LOOPBACK, "localhost")
"""How this machine may be called by those who ask."""


def stamp(paths: Sequence[Path]) -> list[tuple[str, int, int, bool]]:
    """What tells whether there is anything new: the files of runs, and whether somebody works on them."""
    found = []
    for file in (file for path in paths for place in ("", "*/*/") for file in path.glob(f"{place}[!.]*.json*")):
        try:
            state = file.stat()
        except OSError:  # replaced at this moment
            continue
        busy = file.name == "run.json" and Records(file.parent).under_way
        found.append((str(file), state.st_mtime_ns, state.st_size, busy))
    return sorted(found)


def absent(paths: Sequence[Path]) -> list[Path]:
    """The folders that are not there yet, or in which a run is just being created."""
    return [path for path in paths if not path.exists() or (path.is_dir() and not beyond_the_first(path))]


def so_far(paths: Sequence[Path]) -> Document:
    """The document of the folders that are there, and which ones are still awaited."""
    awaited = absent(paths)
    found = document([path for path in paths if path not in awaited])
    waiting = ", ".join(map(str, awaited))
    title = found["title"] if len(awaited) < len(paths) else f"Waiting for {waiting}"
    return {**found, "title": title, "awaited": list(map(str, awaited))}


@dataclass(frozen=True)
class Told:
    """What the page is told: a document as text, which is made once however often somebody asks."""

    document: Mapping[str, Any]

    @cached_property
    def content(self) -> bytes:
        """As it is sent."""
        return as_data(self.document).encode()

    @cached_property
    def mark(self) -> str:
        """What tells it from others."""
        return _mark(self.content)


def _mark(content: bytes) -> str:
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


class Live(ThreadingHTTPServer):
    """Serves a page that follows runs; it outlives them until it is closed."""

    daemon_threads = True

    def __init__(self, paths: Sequence[Path], port: int, look: Callable[[Sequence[Path]], Document] = so_far) -> None:
        self.paths, self._look, self._looking = tuple(paths), look, threading.Lock()
        self._seen = stamp(self.paths)
        self.latest = Told(look(paths))
        try:
            super().__init__((LOOPBACK, port), _Answers)
        except OverflowError:
            raise SpecError(f"--port: must be between 0 and 65535, got {port}") from None
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise SpecError(
                    f"--port: {port} is in use by another program; choose another one, or 0 for any"
                ) from None
            raise SpecError(f"--port: {port} cannot be used ({error.strerror})") from None

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{LOOPBACK}:{self.server_port}/"

    def current(self) -> Told:
        """The document as of now; or what is wrong at this moment, such as a run that is being replaced."""
        with self._looking:
            now = stamp(self.paths)
            if now != self._seen:
                try:
                    self.latest = Told(self._look(self.paths))
                except FedRelayError as error:
                    return Told({"error": str(error)})
                self._seen = now
            return self.latest

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no error."""


class _Answers(BaseHTTPRequestHandler):
    server: Live
    server_version, sys_version = "fedrelay", ""
    timeout = 30

    def do_GET(self) -> None:
        """The page or its document, nothing else."""
        if self.headers.get("Host", "") not in {f"{name}:{self.server.server_port}" for name in NAMES}:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"this page is for this machine alone\n")
        elif self.path == "/":
            self._answer(HTTPStatus.OK, "text/html", webpage(self.server.latest.document, live=True).encode())
        elif self.path == "/document.json":
            told = self.server.current()
            self._answer(HTTPStatus.OK, "application/json", told.content, told.mark)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"there is nothing here\n")

    def do_HEAD(self) -> None:
        """The same without its content."""
        self.do_GET()

    def _answer(self, status: HTTPStatus, kind: str, content: bytes, mark: str | None = None) -> None:
        mark = mark or _mark(content)
        if status == HTTPStatus.OK and self.headers.get("If-None-Match") == mark:
            status, content = HTTPStatus.NOT_MODIFIED, b""
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "ETag": mark,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are nobody's business."""
