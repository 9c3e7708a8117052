"""Links that are cut, silent, slow or one-sided, between real sockets: nothing is lost, and nothing is done twice."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import ExitStack, closing
from functools import partial

import httpx
import numpy as np
import pytest
import torch

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from tests.engines.flower.faulty_link import FaultyLink

import fedrelay as fr
from fedrelay.data.node_samples import owner_federation
from fedrelay.data.open_federation import open_federation
from fedrelay.engines.flower.credentials import private_key, public_keys
from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.node import serve_loop
from fedrelay.engines.flower.node.service import NodeService
from fedrelay.engines.flower.request_signatures import RequestVerifier
from fedrelay.engines.flower.sealing import NodeIdentity
from fedrelay.engines.flower.wire import flower_messages, message_waiter
from fedrelay.engines.flower.wire.node_side_connection import NodeSideConnection
from fedrelay.engines.flower.wire.server_side_connection import ServerSideConnection
from fedrelay.experiment.spec import DataSettings

NAMES = ("a", "b", "c")
MODEL = Message({"kind": "hop"}, {"models": np.arange(250_000, dtype=np.float32)})
PATIENCE = 60.0

# Connections that are cut leave sockets to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def link(start_superlink):
    with start_superlink(*NAMES) as running:
        yield running


@pytest.fixture
def faulty(link):
    """A link to the SuperLink."""
    with closing(FaultyLink(link.local)) as found:
        yield found


@pytest.fixture
def open_node(link, tmp_path):
    """Opens the connection of a node."""
    with ExitStack() as stack:

        def make(name, address=link.local):
            key = private_key(link.folder / f"{name}.key")
            found = NodeSideConnection(address, link.authority, key, tmp_path / f"{name}.id")
            return stack.enter_context(closing(found))

        yield make


@pytest.fixture
def open_server(link):
    """Opens the connection of a server."""
    with ExitStack() as stack:

        def make(address=link.local):
            found = ServerSideConnection(address, link.authority, link.secret, public_keys(link.folder), wait=20)
            return stack.enter_context(closing(found))

        yield make


def until(poll):
    """Poll until something is found."""
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends:
        if found := poll():
            return found
    raise AssertionError("nothing came")


def reply_to(connection, number):
    """The reply to a request."""
    return until(lambda: [each for _, each in connection.receive([number], 10**7) if each is not None])[0]


def test_a_request_that_is_cut_off_comes_again(open_server, open_node, faulty):
    """Flower's SuperLink hands out a message once; the request would be lost, and the server would wait in vain."""
    server, node = open_server(), open_node("a", faulty.address)
    node.register()
    number = server.send("a", MODEL, 60.0)
    faulty.cut_after = 400_000
    message, request = until(node.receive)
    assert faulty.cut_after is None  # it was cut
    assert np.array_equal(request.arrays["models"], MODEL.arrays["models"])
    node.reply(message, MODEL)
    assert reply_to(server, number).bytes == MODEL.bytes
    assert node.receive() is None  # it came once


def test_a_reply_that_is_cut_off_comes_again(open_server, open_node, faulty):
    """The server needs no new run, so other nodes' work in flight is not lost."""
    server, node = open_server(faulty.address), open_node("a")
    node.register()
    number, run = server.send("a", MODEL, 60.0), server.superlink_run
    message, _ = until(node.receive)
    node.reply(message, MODEL)
    faulty.cut_after = 400_000
    assert reply_to(server, number).bytes == MODEL.bytes
    assert faulty.cut_after is None
    assert server.superlink_run is run


def test_a_node_that_dies_gets_its_request_again(open_server, open_node):
    server, node = open_server(), open_node("a")
    node.register()
    number = server.send("a", Message({"kind": "hop"}), 60.0)
    assert until(node.receive)[1].header == {"kind": "hop"}
    node.over.set()  # no more heartbeats: it is dead
    again = open_node("a")
    again.register()
    message, request = until(again.receive)
    assert request.header == {"kind": "hop"}
    again.reply(message, MODEL)
    assert reply_to(server, number).bytes == MODEL.bytes


def test_a_slow_link_is_only_slow(open_server, open_node, faulty):
    server, node = open_server(), open_node("a", faulty.address)
    node.register()
    faulty.delay = 0.01
    began = time.monotonic()
    number = server.send("a", MODEL, 60.0)
    message, request = until(node.receive)
    node.reply(message, request)
    assert np.array_equal(reply_to(server, number).arrays["models"], MODEL.arrays["models"])
    assert time.monotonic() - began > 0.5


@pytest.fixture
def hasty(monkeypatch):
    """A silent link counts as dead after a second, not after many."""
    for module, name, seconds in (
        (message_waiter, "GRACE", 0.5),
        (flower_messages, "BLIP", 0.5),
        (serve_loop, "LISTENING", 0.3),
        (serve_loop, "PAUSE", 0.1),
    ):
        monkeypatch.setattr(module, name, seconds)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_silent_link_is_noticed(direction, open_node, faulty, hasty):
    """Half open: both sides believe that they are connected."""
    node = open_node("a", faulty.address)
    node.register()
    node.wait_for_request(0.1)
    faulty.held.add(direction)
    with pytest.raises(httpx.TimeoutException):
        node.wait_for_request(0.1)
    faulty.held.clear()
    faulty.cut()
    node.register()
    assert node.next_request(0.1) is None


class Nodes:
    """Three nodes with digits, each in a thread of its own, which come through a link each."""

    def __init__(self, link, folder, stack):
        self.data = open_federation(DataSettings(name="digits", clients=len(NAMES), alpha=0.3), 3)
        self.links = {name: stack.enter_context(closing(FaultyLink(link.local))) for name in NAMES}
        self.hops = []
        self.during = lambda name, request: None
        over = threading.Event()
        np.savez(folder / "test.npz", x=self.data.test.x.numpy(), y=self.data.test.y.numpy())
        self.engine = {"name": "flower", "superlink": link.local, "folder": link.folder, "test": folder / "test.npz"}
        self.engine["wait"] = PATIENCE
        for client, name in enumerate(NAMES):
            (folder / name).mkdir()
            key = private_key(link.folder / f"{name}.key")
            service = self.service(client, name, folder / name, key, link.authority)
            connection = NodeSideConnection(self.links[name].address, link.authority, key, folder / name / "id")
            serve = partial(serve_loop.serve, over=over, patience=PATIENCE, say=lambda line: None)
            words = (connection, service, self.links[name].address, folder / "ca.pem", folder / name)
            thread = threading.Thread(target=serve, args=words)
            thread.start()
            stack.callback(thread.join)
        stack.callback(over.set)

    def service(self, client, name, folder, key, authority):
        x, y = self.data.train_samples(client)
        own = owner_federation({"x": x.numpy(), "y": y.numpy()}, classes=10)
        identity, requests = NodeIdentity.load(key, folder), RequestVerifier(authority, key.public_key())
        found = NodeService(own, folder, identity=identity, requests=requests)
        respond = found.respond

        def noted(request):
            reply = respond(request)
            if request.header["kind"] == "hop":
                self.hops.append((name, request.header["hop"][0]))
                self.during(name, request)
            return reply

        found.respond = noted
        return found


@pytest.fixture
def nodes(link, tmp_path, hasty):
    with ExitStack() as stack:
        yield Nodes(link, tmp_path, stack)


@pytest.mark.slow
def test_partitions_end_with_the_same_weights(nodes, caplog, monkeypatch):
    """Links are cut and fall silent while hops are under way; hops that were lost are asked for again.

    What ends a silence is what the server does, not the time that it takes.
    """
    settings = {"data": "digits", "engine": nodes.engine, "rounds": 3, "batch_size": 64, "seed": 3, "fraction": 1.0}
    settings |= {"recovery.policy": "retry", "recovery.retries": 20, "recovery.timeout": 6.0}
    settings |= {"grouping.max_clients": 3, "grouping.min_samples": 5000}
    caplog.set_level(logging.ERROR)
    undisturbed = fr.run("fedseq+scaffold", **settings)
    nodes.hops.clear()
    silenced = []
    send = ServerSideConnection.send

    def send_and_release(connection, node, message, seconds):
        """Once the server has asked a silenced node again, it can be reached again."""
        number = send(connection, node, message, seconds)
        if node in silenced:
            silenced.remove(node)
            nodes.links[node].held.clear()
            nodes.links[node].cut()
        return number

    def disturb(name, request):
        """After the hop, before its reply leaves."""
        link, round = nodes.links[name], request.header["hop"][0]
        if nodes.hops.count((name, round)) > 1:
            return
        if (round, name) == (1, "a"):
            link.cut()
        if (round, name) == (2, "b"):
            link.held |= {"up", "down"}
            silenced.append(name)
        if (round, name) == (3, "c"):
            link.held.add("down")  # its reply leaves if it is still connected, and it does not learn that it arrived
            silenced.append(name)

    nodes.during = disturb
    monkeypatch.setattr(ServerSideConnection, "send", send_and_release)
    found = fr.run("fedseq+scaffold", **settings)
    nodes.links["c"].held.clear()
    assert "b" not in silenced
    assert torch.equal(found.weights, undisturbed.weights), found.fault_events
    assert len(nodes.hops) > 9  # the hop that was lost in silence was trained again
