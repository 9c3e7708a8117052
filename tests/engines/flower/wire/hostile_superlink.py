"""A SuperLink on the loopback address, with the right certificate, that answers whatever it is told to."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterable
from contextlib import suppress

from fedrelay.engines.flower.credentials import SERVER, SERVER_KEY


class HostileSuperLink:
    """Answers every request with the same pieces, until they end or nobody reads them.

    Attributes:
        sent: Bytes of the last answer that were taken from it.
    """

    def __init__(self, folder, answer: Iterable[bytes]) -> None:
        self.answer, self.sent = answer, 0
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(folder / SERVER, folder / SERVER_KEY)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self.listening.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError), self.context.wrap_socket(connection, server_side=True) as secure:
            received = secure.makefile("rb")
            length = 0
            while (line := received.readline().lower()).strip():
                length = int(line.split(b":")[1]) if line.startswith(b"content-length:") else length
            received.read(length)  # unread bytes would reset the connection
            self.sent = 0
            for piece in self.answer:
                secure.sendall(piece)
                self.sent += len(piece)
