"""A reverse proxy that passes on what nodes need and nothing else, as docs/deploy.md advises."""

from __future__ import annotations

import ssl
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import numpy as np
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from fedrelay.engines.flower.credentials import (
    CA,
    SECRET,
    SERVER,
    SERVER_KEY,
    private_key,
    read,
)
from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.server.connection_interface import SuperLinkUnreachable
from fedrelay.engines.flower.wire.node_side_connection import NodeSideConnection
from fedrelay.engines.flower.wire.server_side_connection import ServerSideConnection
from fedrelay.engines.flower.wire.superlink_calls import admit

PASSED = "/v1/fleet/"


@pytest.fixture(scope="module")
def link(start_superlink):
    with start_superlink("a") as running:
        yield running


@pytest.fixture(scope="module")
def proxy(link):
    """Its address, and the paths that it was asked for."""
    trusting = ssl.create_default_context(cafile=link.folder / CA)
    behind = httpx.Client(base_url=f"https://{link.local}", verify=trusting, timeout=30)
    paths: list[str] = []

    class Passing(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            paths.append(self.path)
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            status, headers, body = 403, {}, b""
            if self.path.startswith(PASSED):
                kept = {name: value for name, value in self.headers.items() if name.lower() != "host"}
                reply = behind.post(self.path, content=content, headers=kept)
                status, body = reply.status_code, reply.content
                headers = {"Content-Type": reply.headers.get("content-type", "")}
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Passing)
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(link.folder / SERVER, link.folder / SERVER_KEY)
    server.socket = shown.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", paths
    finally:
        server.shutdown()
        server.server_close()
        behind.close()


def test_a_node_works_through_it(link, proxy, tmp_path):
    address, paths = proxy
    key = private_key(link.folder / "a.key")
    secret = read(link.folder / SECRET, "the secret")
    client = NodeSideConnection(address, link.authority, key, tmp_path / "id")
    client.register()
    model = np.arange(2_000_000, dtype=np.float32)  # more than one piece of Flower's
    with closing(
        ServerSideConnection(link.local, link.authority, secret, {"a": key.public_key()}, wait=20)
    ) as connection:
        number = connection.send("a", Message({"kind": "describe"}, {"models": model}), 60)
        found = None
        while found is None:
            found = client.receive()
        message, request = found
        assert np.array_equal(request.arrays["models"], model)
        client.reply(message, Message({"kind": "describe"}, {"models": model + 1}))
        replies = []
        while not replies:
            replies = [each for each in connection.receive([number], 10**8) if each[1] is not None]
    client.close()
    assert np.array_equal(replies[0][1].arrays["models"], model + 1)
    assert {path for path in paths if path.startswith(PASSED)} == set(paths)


def test_everything_else_is_refused(link, proxy):
    address, paths = proxy
    key = private_key(link.folder / "a.key").public_key()
    with pytest.raises(SuperLinkUnreachable, match="status 403"):
        admit(address, link.authority, link.secret, {"a": key})
    with pytest.raises(SuperLinkUnreachable, match="status 403"):
        ServerSideConnection(address, link.authority, read(link.folder / SECRET, "the secret"), {"a": key}, wait=0)
    assert {path.split("/")[2] for path in paths if not path.startswith(PASSED)} == {"control"}
