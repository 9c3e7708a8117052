"""A web server on the loopback address, and raw connections to it."""

from __future__ import annotations

import socket
import threading
import time

import pytest


class Connection:
    """Sends bytes as they are, and reads what comes back."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)

    def send(self, *pieces):
        self.socket.sendall(b"".join(pieces))

    def status(self):
        """The status of the answer, or None if the connection was closed without one."""
        try:
            line = self.socket.recv(65_536).split(b" ")
        except ConnectionError:
            return None
        return int(line[1]) if len(line) > 1 else None

    def is_closed(self):
        """Wait until the other side has closed the connection."""
        try:
            while self.socket.recv(65_536):
                pass
        except ConnectionError:
            pass
        return True


@pytest.fixture
def serve():
    """Starts a web server with this app and protocol, and returns what connects to it."""
    import uvicorn

    running, connections = [], []

    def start(app, protocol="auto"):
        server = uvicorn.Server(uvicorn.Config(app, port=0, http=protocol, lifespan="off", ws="none", log_config=None))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        running.append((server, thread))
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]

        def connect():
            connections.append(Connection(port))
            return connections[-1]

        return connect

    yield start
    for each in connections:
        each.socket.close()
    for server, thread in running:
        server.should_exit = True
        thread.join()
