"""A server for `fedrelay watch`: shows runs live in the browser, on this machine only.

It serves the page and its document, and reads the folders again on every request. No part of a request becomes a path.
Requests for other host names are refused, so no other web page can read the document through its own name.
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
from fedrelay.report.report_content import Document, document
from fedrelay.report.web_page import as_json, web_page
from fedrelay.runtime.run_folder_reader import RunFolderReader, beyond_the_first

LOOPBACK = "127.0.0.1"
NAMES = (LOOPBACK, "localhost")
"""Accepted host names."""


FOLDERS_OF_RUNS = ("", "*/*/", "*/*/*/")
"""Where files of runs are: in a run folder, in a comparison, in a sweep."""


def folder_state(paths: Sequence[Path]) -> list[tuple[str, int, int, bool]]:
    """Names, times and sizes of the files of runs, and whether a process holds them; it changes when a run does."""
    found = []
    for file in (file for path in paths for place in FOLDERS_OF_RUNS for file in path.glob(f"{place}[!.]*.json*")):
        try:
            state = file.stat()
        except OSError:  # being replaced
            continue
        busy = file.name == "run.json" and RunFolderReader(file.parent).under_way
        found.append((str(file), state.st_mtime_ns, state.st_size, busy))
    return sorted(found)


def missing_folders(paths: Sequence[Path]) -> list[Path]:
    """Folders that do not exist yet, or in which a run is being created."""
    return [path for path in paths if not path.exists() or (path.is_dir() and not beyond_the_first(path))]


def current_document(paths: Sequence[Path]) -> Document:
    """The document of the existing folders, and the names of the missing ones."""
    missing = missing_folders(paths)
    found = document([path for path in paths if path not in missing])
    waiting = ", ".join(map(str, missing))
    title = found["title"] if len(missing) < len(paths) else f"Waiting for {waiting}"
    return {**found, "title": title, "missing": list(map(str, missing))}


@dataclass(frozen=True)
class DocumentSnapshot:
    """A document and its JSON, which is made once however many requests there are."""

    document: Mapping[str, Any]

    @cached_property
    def content(self) -> bytes:
        return as_json(self.document).encode()


class WatchServer(ThreadingHTTPServer):
    """Serves a live page of runs until it is closed."""

    daemon_threads = True

    def __init__(
        self, paths: Sequence[Path], port: int, look: Callable[[Sequence[Path]], Document] = current_document
    ) -> None:
        self.paths, self._look, self._lock = tuple(paths), look, threading.Lock()
        self._seen = folder_state(self.paths)
        self.latest = DocumentSnapshot(look(paths))
        try:
            super().__init__((LOOPBACK, port), _Handler)
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
        return f"http://{LOOPBACK}:{self.server_port}/"

    def current(self) -> DocumentSnapshot:
        """The current document, or the current error, such as a run that is being replaced."""
        with self._lock:
            now = folder_state(self.paths)
            if now != self._seen:
                try:
                    self.latest = DocumentSnapshot(self._look(self.paths))
                except FedRelayError as error:
                    return DocumentSnapshot({"error": str(error)})
                self._seen = now
            return self.latest

    def newest(self) -> Mapping[str, Any]:
        """The current document; while there is an error, the last one before it, which the page updates later."""
        found = self.current().document
        return self.latest.document if "error" in found else found

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that disconnect early."""


class _Handler(BaseHTTPRequestHandler):
    server: WatchServer
    server_version, sys_version = "fedrelay", ""
    timeout = 30

    def do_GET(self) -> None:
        if self.headers.get("Host", "") not in {f"{name}:{self.server.server_port}" for name in NAMES}:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "text/plain", b"this page is only for this machine\n")
        elif self.path == "/":
            self._answer(HTTPStatus.OK, "text/html", web_page(self.server.newest(), live=True).encode())
        elif self.path == "/document.json":
            self._answer(HTTPStatus.OK, "application/json", self.server.current().content)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"not found\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, status: HTTPStatus, kind: str, content: bytes) -> None:
        etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
        if status == HTTPStatus.OK and self.headers.get("If-None-Match") == etag:
            status, content = HTTPStatus.NOT_MODIFIED, b""
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(content)),
            "ETag": etag,
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
        """Log nothing."""
