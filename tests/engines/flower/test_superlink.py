"""A SuperLink admits exactly the nodes whose keys are in the folder, also when the folder changes."""

from __future__ import annotations

import socket
import sys
from contextlib import closing, nullcontext
from itertools import chain, repeat

import numpy as np
import pytest

from fedrelay.errors import EngineError, SpecError

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

import httpx
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    UnregisterNodeRequest,
)
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedrelay.engines.flower import superlink
from fedrelay.engines.flower.credentials import CA, SECRET, make_node_key, make_server_folder, private_key, read
from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.superlink import SuperLink
from fedrelay.engines.flower.wire.node_side_connection import NodeNotRecognized, NodeSideConnection, RegistrationRefused
from fedrelay.engines.flower.wire.server_side_connection import ServerSideConnection
from fedrelay.engines.flower.wire.superlink_calls import ControlTokenHttpInterceptor, admit, client


@pytest.fixture(scope="module")
def link(tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    make_server_folder(folder, ["127.0.0.1"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with SuperLink(folder, "127.0.0.1", port) as running:
        yield running


@pytest.fixture
def make_client(link, tmp_path):
    """Makes a client with the private key of this name."""
    opened = []

    def client(name: str) -> NodeSideConnection:
        found = NodeSideConnection(
            link.local, read(link.folder / CA, "ca"), private_key(tmp_path / name), tmp_path / f"{name}.id"
        )
        opened.append(found)
        return found

    yield client
    for each in opened:
        each.close()


def test_keys_count_and_not_names(link, make_client, tmp_path):
    place = link.folder / "nodes" / "clinic.pub"
    first, second = (make_node_key(tmp_path / name).read_bytes() for name in ("first", "second"))
    assert link.register() == []

    place.write_bytes(first)
    assert link.register() == ["clinic is admitted"]
    assert link.register() == []
    old = make_client("first")
    old.register()
    with pytest.raises(RegistrationRefused):
        make_client("second").register()

    place.write_bytes(second)  # the clinic has another key now
    assert link.register() == ["clinic is admitted", "the former key of clinic is removed"]
    make_client("second").register()
    with pytest.raises(NodeNotRecognized):
        old.receive()
    with pytest.raises(RegistrationRefused):
        old.register()

    place.write_bytes(b"half a k")  # admitted nodes stay
    with pytest.raises(SpecError, match="cannot be read as a public key"):
        link.register()

    place.unlink()
    assert link.register() == ["the former key of clinic is removed"]
    with pytest.raises(RegistrationRefused):
        make_client("second").register()

    place.write_bytes(first)
    [line] = link.register()
    assert line.startswith("clinic is not admitted: its key was removed before")


def test_who_has_only_the_public_certificate_can_control_nothing(link, make_client, tmp_path):
    """A stranger knows the address and ca.pem, and tries everything that would hurt a run."""
    key = make_node_key(tmp_path / "victim")
    key.rename(link.folder / "nodes" / "victim.pub")
    link.register()
    victim = make_client("victim")
    victim.register()
    stranger = public_key_to_bytes(private_key(tmp_path / "victim").public_key())
    requests = [
        ("ListNodes", ListNodesRequest()),
        ("UnregisterNode", UnregisterNodeRequest(node_id=victim.node.node_id)),
        ("RegisterNode", RegisterNodeRequest(public_key=stranger)),
        ("StartRun", StartRunRequest()),
        ("StopRun", StopRunRequest(run_id=1)),
        ("ListRuns", ListRunsRequest()),
    ]
    guesses = [(), (ControlTokenHttpInterceptor(b"guessed"),)]
    for more in guesses:
        with client(ControlHttpClient, link.local, link.authority, "flwr-cli", *more) as api:
            for name, request in requests:
                with pytest.raises(httpx.HTTPStatusError, match="401"):
                    getattr(api, name)(request)
    assert victim.receive() is None  # still known


@pytest.fixture
def sleeping(tmp_path, monkeypatch):
    """Starts SuperLinks that only sleep. The processes in the set beside it do not accept the key of node a again."""
    make_server_folder(tmp_path, ["127.0.0.1"])
    removed: set[int] = set()
    monkeypatch.setattr(superlink, "command", lambda *_: [sys.executable, "-c", "import time; time.sleep(60)"])
    monkeypatch.setattr(superlink, "answers_strangers", lambda *_: False)

    def start(database=None):
        listening = chain([False], repeat(True))
        monkeypatch.setattr(superlink, "listens", lambda *_: next(listening))
        found = SuperLink(tmp_path, "127.0.0.1", 9, database)
        monkeypatch.setattr(superlink, "admit", lambda *_: ({"a"} if found.process.pid in removed else set(), 0))
        return found, removed

    make_node_key(tmp_path / "a.key").rename(tmp_path / "nodes" / "a.pub")
    return start


def test_a_node_that_was_removed_by_somebody_else_is_admitted_again(sleeping, tmp_path):
    """It takes the secret. Flower does not accept the key again, so the SuperLink is restarted; the log says why."""
    found, removed = sleeping()
    with found:
        assert found.register() == ["a is admitted"]
        before = found.process
        removed.add(before.pid)
        assert found.register() == [
            f"a: removed by somebody else who knows {tmp_path / SECRET}; replace it. "
            "The SuperLink was restarted to admit it again"
        ]
        assert before.poll() is not None
        assert found.ended() is None
        assert found.register() == []


def test_a_database_remembers_who_was_removed(sleeping, tmp_path):
    found, removed = sleeping(tmp_path / "database")
    with found:
        found.register()
        removed.add(found.process.pid)
        [line] = found.register()
        assert "Not admitted again: its key was removed before" in line
        assert found.register() == []


def test_keys_that_others_registered_are_removed(link, make_client, tmp_path):
    make_node_key(tmp_path / "stranger").rename(tmp_path / "stranger.old")
    known = private_key(tmp_path / "stranger").public_key()
    link.register()
    admit(link.local, link.authority, link.secret, {**link.admitted, "stranger": known})
    make_client("stranger").register()
    assert link.register() == ["keys that are in no file were removed: 1"]
    with pytest.raises(RegistrationRefused):
        make_client("stranger").register()


def test_a_superlink_that_answers_strangers_is_stopped(sleeping, monkeypatch):
    """As it would with a version of Flower that does not ask the plug-in."""
    monkeypatch.setattr(superlink, "answers_strangers", lambda *_: True)
    with pytest.raises(EngineError, match="was stopped: it can be controlled without the secret"):
        sleeping()


@pytest.mark.parametrize("problem", [EngineError("status 500"), RuntimeError("no answer"), KeyboardInterrupt()])
def test_a_superlink_that_cannot_be_checked_is_stopped(sleeping, monkeypatch, problem):
    started = []

    def fail(*_):
        raise problem

    start = superlink.SuperLink._start
    monkeypatch.setattr(superlink.SuperLink, "_start", lambda self: started.append(start(self)) or started[0])
    monkeypatch.setattr(superlink, "answers_strangers", fail)
    expected = KeyboardInterrupt if isinstance(problem, KeyboardInterrupt) else EngineError
    with pytest.raises(expected, match=r"could not be checked \((status 500|no answer)\)|^$"):
        sleeping()
    assert started[0].poll() is not None


def test_a_message_that_is_too_large_is_refused_in_a_reply(link, tmp_path):
    """The node says so, and the server hears it at once instead of waiting."""
    key = make_node_key(tmp_path / "small")
    key.rename(link.folder / "nodes" / "small.pub")
    link.register()
    client = NodeSideConnection(
        link.local, link.authority, private_key(tmp_path / "small"), tmp_path / "id", largest=10_000
    )
    client.register()
    secret = read(link.folder / SECRET, "secret")
    keys = {"small": private_key(tmp_path / "small").public_key()}
    with closing(ServerSideConnection(link.local, link.authority, secret, keys, wait=20)) as connection:
        large = connection.send("small", Message({"kind": "describe"}, {"models": np.zeros(10_000, np.float32)}), 60)
        message, reason = client.receive()
        assert reason.reason.startswith("the request has more than 10000 bytes")
        client.reply(message, reason)
        replies = []
        while not replies:
            replies = [each for each in connection.receive([large], 10_000) if each[1] is not None]
    told = "unsigned failure: the request is larger than the node accepts; see fedrelay node --largest-message"
    assert replies == [(large, told)]
    client.close()


def test_a_bad_key_is_an_error_at_the_start_and_a_note_later(tmp_path, monkeypatch, capsys):
    """The command: keys that cannot be read end it at the start; afterwards those who are in stay."""
    from fedrelay.cli import deploy, main

    calls = []

    class Running:
        address = "127.0.0.1:1"

        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def ended(self):
            return None

        def register(self):
            calls.append(1)
            if len(calls) == 1:
                return ["a may come in"]
            raise SpecError("b.pub: cannot be read")

    class Hasty:
        def wait(self, seconds):
            return len(calls) == 4

    monkeypatch.setattr("fedrelay.engines.flower.superlink.SuperLink", Running)
    monkeypatch.setattr(deploy, "_until_stopped", lambda: nullcontext(Hasty()))
    make_server_folder(tmp_path, ["127.0.0.1"])
    assert main(["superlink", str(tmp_path)]) == 0
    said = capsys.readouterr().err
    assert said.count("a may come in") == said.count("b.pub: cannot be read") == 1


def test_what_a_superlink_writes_is_its_owners_alone(tmp_path, monkeypatch):
    """Its database holds models."""
    make_server_folder(tmp_path, ["127.0.0.1"])
    program = [sys.executable, "-c", f"open({str(tmp_path / 'database')!r}, 'w')"]
    monkeypatch.setattr(superlink, "command", lambda *_: program)
    with pytest.raises(EngineError, match="does not listen"):
        SuperLink(tmp_path, "127.0.0.1", 9)
    assert (tmp_path / "database").stat().st_mode & 0o777 == 0o600
