"""A SuperLink admits exactly the nodes whose keys are in the folder, also when the folder changes."""

from __future__ import annotations

import datetime
import socket
import ssl
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from itertools import chain, repeat
from pathlib import Path

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
from flwr.supercore import date
from flwr.supercore.auth import superexec
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode import node_auth_http_interceptor
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedrelay.engines.flower import superlink
from fedrelay.engines.flower.credentials import CA, SECRET, make_node_key, make_server_folder, private_key, read
from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.server.connection_interface import SuperLinkUnreachable
from fedrelay.engines.flower.superlink import SuperLink
from fedrelay.engines.flower.wire import server_side_connection
from fedrelay.engines.flower.wire.node_side_connection import (
    ClocksDisagree,
    NodeNotRecognized,
    NodeSideConnection,
    RegistrationRefused,
)
from fedrelay.engines.flower.wire.server_side_connection import ServerSideConnection
from fedrelay.engines.flower.wire.superlink_calls import ControlTokenHttpInterceptor, admit, client
from fedrelay.engines.flower.wire.superlink_process.protocol import (
    NODE_FETCHES,
    NODE_SENDS,
    NODE_WAITS,
    SERVER_FETCHES,
    SERVER_SENDS,
    SERVER_WAITS,
)


@pytest.fixture(scope="module")
def link(start_superlink):
    with start_superlink() as running:
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


def test_who_waits_is_told_at_once(link, make_client, tmp_path, monkeypatch):
    """Whole messages of a node and a server; nobody polls."""
    make_node_key(tmp_path / "waiting").rename(link.folder / "nodes" / "waiting.pub")
    link.register()
    node = make_client("waiting")
    node.register()
    monkeypatch.setattr(server_side_connection, "LISTENING", 20.0)
    keys = {"waiting": private_key(tmp_path / "waiting").public_key()}
    secret = read(link.folder / SECRET, "secret")
    with closing(ServerSideConnection(link.local, link.authority, secret, keys, wait=20)) as connection:
        node.wait_for_request(20)  # the first time there may be older messages
        connection.wait_for_replies(20)
        assert node.receive() is None
        with ThreadPoolExecutor() as pool:
            began = time.monotonic()
            told = pool.submit(node.wait_for_request, 20)
            number = connection.send("waiting", Message({"kind": "hop"}, {"models": np.ones(250_000)}), 60)
            told.result()
            message, request = node.receive()
            assert request.arrays["models"].sum() == 250_000
            told = pool.submit(connection.wait_for_replies, 20)
            node.reply(message, Message({"kind": "hop"}, {"models": 2 * request.arrays["models"]}))
            told.result()
        [(answered, reply)] = connection.receive([number], 10**7)
        assert time.monotonic() - began < 15  # not the twenty seconds of a wait
        assert answered == number
        assert reply.arrays["models"].sum() == 500_000


def test_only_who_may_fetch_messages_may_wait_for_them(link, make_client, tmp_path):
    for name in ("nosy", "busy"):
        make_node_key(tmp_path / name).rename(link.folder / "nodes" / f"{name}.pub")
    link.register()
    nosy, busy = make_client("nosy"), make_client("busy")
    nosy.register()
    busy.register()
    nosy.node = busy.node
    with pytest.raises(NodeNotRecognized, match="401"):
        nosy.wait_for_request(0)
    with pytest.raises(NodeNotRecognized, match="401"):
        nosy.receive()
    trusting = ssl.create_default_context(cadata=link.authority.decode())
    with httpx.Client(base_url=f"https://{link.local}", verify=trusting) as stranger:
        for path in (NODE_WAITS, NODE_FETCHES, NODE_SENDS, SERVER_WAITS, SERVER_FETCHES, SERVER_SENDS):
            for headers in ({}, {TASK_TOKEN_HEADER: "guessed"}):
                reply = stranger.post(f"{path}?known=0&seconds=20", headers=headers)
                assert (path, reply.status_code) == (path, 401)


@pytest.fixture
def set_clock(monkeypatch):
    """Sets the clock of this process, not that of the SuperLink, ahead by these seconds."""
    real_time, real_now = time.time, date.now

    def set_ahead(seconds):
        monkeypatch.setattr(time, "time", lambda: real_time() + seconds)
        for module in (node_auth_http_interceptor, superexec):
            monkeypatch.setattr(module, "now", lambda: real_now() + datetime.timedelta(seconds=seconds))

    return set_ahead


def test_clocks_that_disagree_are_named(link, make_client, tmp_path, set_clock):
    """Flower only says 401 or 500."""
    make_node_key(tmp_path / "late").rename(link.folder / "nodes" / "late.pub")
    link.register()
    node = make_client("late")
    node.register()
    keys = {"late": private_key(tmp_path / "late").public_key()}
    secret = read(link.folder / SECRET, "secret")
    with closing(ServerSideConnection(link.local, link.authority, secret, keys, wait=0)) as connection:
        set_clock(-60)
        with pytest.raises(SuperLinkUnreachable, match=r"the clock of this machine is \d\d s behind the SuperLink's"):
            connection.send("late", Message({"kind": "describe"}), 10)
        set_clock(60)
        with pytest.raises(ClocksDisagree, match=r"the clock of this machine is 6\d s ahead of the SuperLink's: set"):
            node.register()
        with pytest.raises(SuperLinkUnreachable, match=r"the clock of this machine is 6\d s ahead of the SuperLink's"):
            ServerSideConnection(link.local, link.authority, secret, keys, wait=0)
        set_clock(0)
    node.register()


LARGE_UPLOADS = "/v1/fleet/push-object", "/v1/runtime/push-object", "/v1/control/start-run", NODE_SENDS, SERVER_SENDS


@pytest.mark.parametrize("path", LARGE_UPLOADS)
def test_a_large_request_of_a_stranger_is_refused_before_it_is_sent(path, link, tmp_path):
    """Neither without a proof, nor with that of a key that nobody has registered."""
    make_node_key(tmp_path / "unknown")
    proofs = httpx.Request("POST", f"https://{link.local}{path}")
    signer = NodeAuthHttpInterceptor(key := private_key(tmp_path / "unknown"), key.public_key())
    signer.intercept(ProtobufRequestContext("", ListNodesRequest(), proofs), lambda context: httpx.Response(200))
    trusting = ssl.create_default_context(cadata=link.authority.decode())
    for headers in ({}, {**proofs.headers, TASK_TOKEN_HEADER: "guessed"}):
        lines = [f"{name}: {value}" for name, value in {"host": "link", **headers, "content-length": "5000000"}.items()]
        with socket.create_connection(("127.0.0.1", link.port), 20) as plain:
            secure = trusting.wrap_socket(plain, server_hostname="127.0.0.1")
            secure.sendall("\r\n".join([f"POST {path} HTTP/1.1", *lines, "", ""]).encode())
            assert secure.recv(1000).startswith(b"HTTP/1.1 401")
            secure.close()


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


PARENT = """
import subprocess, sys, time
from fedrelay.engines.flower.superlink import _die_with_parent
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", stubborn], preexec_fn=_die_with_parent, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells children")
def test_a_superlink_whose_parent_is_killed_ends_at_once():
    """A process that does not end when it is asked to: it waits for connections that nodes keep."""
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE) as parent:
        child = Path("/proc") / parent.stdout.readline().decode().strip()
        assert is_running(child)
        parent.kill()
    began = time.monotonic()
    while is_running(child):
        assert time.monotonic() - began < 20
        time.sleep(0.01)


def is_running(process):
    try:
        return "(zombie)" not in (process / "status").read_text()
    except OSError:
        return False


def test_what_a_superlink_writes_is_its_owners_alone(tmp_path, monkeypatch):
    """Its database holds models, and its log says who asked when."""
    make_server_folder(tmp_path, ["127.0.0.1"])
    (tmp_path / "superlink.log").touch(0o644)  # of an earlier version
    program = [sys.executable, "-c", f"open({str(tmp_path / 'database')!r}, 'w')"]
    monkeypatch.setattr(superlink, "command", lambda *_: program)
    with pytest.raises(EngineError, match="does not listen"):
        SuperLink(tmp_path, "127.0.0.1", 9)
    for written in ("database", "superlink.log"):
        assert (tmp_path / written).stat().st_mode & 0o777 == 0o600


def test_it_needs_no_pytorch():
    code = "import sys, fedrelay.engines.flower.superlink; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
