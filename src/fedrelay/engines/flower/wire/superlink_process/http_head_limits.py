"""Limits of what comes before the body of a request: its line and its headers.

Uvicorn's quick parser has none, so a stranger could fill the memory with headers that never end, or keep connections
open without ever asking for anything.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class LimitedHttpProtocol(HttpToolsProtocol):
    """A connection that is closed if the head of a request is too long or takes too long."""

    largest_head = 65_536
    """Bytes of a head. Ours have less than two thousand."""

    head_seconds = 20.0
    """Seconds for a head, from the start of the connection or from its first byte."""

    _in_head = True
    """Whether the next byte belongs to a head."""

    _bytes_of_head = _requests_read = 0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        before = self._requests_read
        super().data_received(data)
        if not self._in_head or self._requests_read != before or self.transport.is_closing():
            return
        self._bytes_of_head += len(data)
        if self._bytes_of_head > self.largest_head:
            self.transport.abort()
        elif self._timer is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._bytes_of_head = True, 0
        self._requests_read += 1
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.head_seconds, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
