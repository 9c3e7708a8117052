"""A TCP proxy on the loopback address that misbehaves on demand. TLS goes through it untouched."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Literal

Direction = Literal["up", "down"]
"""Up: from who connects; down: back to them."""

PIECE = 16_384


class FaultyLink:
    """Passes connections on to an address.

    Attributes:
        held: Directions in which nothing moves. Connections stay open: neither side is told.
        delay: Seconds that every piece takes, in both directions.
        refusing: Whether new connections are closed at once.
        cut_after: Bytes down after which a connection is cut, once.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.target = host, int(port)
        self.held: set[Direction] = set()
        self.delay, self.refusing, self.cut_after = 0.0, False, None
        self.passed = {"up": 0, "down": 0}
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections."""
        pairs, self.pairs = self.pairs, []
        for each in (side for pair in pairs for side in pair):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def close(self) -> None:
        self.listening.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listening.accept()
            except OSError:
                return
            if self.refusing:
                near.close()
                continue
            far = socket.create_connection(self.target)
            self.pairs.append((near, far))
            for direction, source, sink in (("up", near, far), ("down", far, near)):
                threading.Thread(target=self._pass_on, args=(direction, source, sink), daemon=True).start()

    def _pass_on(self, direction: Direction, source: socket.socket, sink: socket.socket) -> None:
        count = 0
        with suppress(OSError):
            while piece := source.recv(PIECE):
                time.sleep(self.delay)
                while direction in self.held:
                    time.sleep(0.01)
                count += len(piece)
                if direction == "down" and self.cut_after is not None and count > self.cut_after:
                    self.cut_after = None
                    break
                sink.sendall(piece)
                self.passed[direction] += len(piece)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
