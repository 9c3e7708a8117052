"""A federation without a network: the connection hands requests straight to the node services."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedrelay.data.federation import Federation
from fedrelay.data.lazy_dataset_samples import LazyDatasetSamples
from fedrelay.data.node_samples import owner_federation
from fedrelay.data.node_torch_datasets import owner_datasets
from fedrelay.data.open_federation import open_federation
from fedrelay.engines.flower.engine import FlowerEngine
from fedrelay.engines.flower.messages import FAILED, Message
from fedrelay.engines.flower.node.service import NodeService
from fedrelay.engines.flower.server.dispatcher import Signatures
from fedrelay.engines.flower.server.remote_federation import RemoteFederation
from fedrelay.experiment.spec import DataSettings


@pytest.fixture
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Replaces the clock of a module: seconds pass only when it sleeps."""

    def stopped(module: Any, now: float = 0.0) -> Any:
        found = SimpleNamespace(now=now)

        def sleep(seconds: float) -> None:
            found.now += seconds

        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: found.now, sleep=sleep))
        return found

    return stopped


ReplyFault = Callable[[Message, Message | str], "Message | str | None"]
"""Takes a request and its reply. Returns what arrives instead; None: nothing arrives."""


class FakeConnection:
    """Nodes reply at the next poll, unless they are offline; `reply_faults` change what a node replies."""

    def __init__(self, services: dict[str, NodeService]) -> None:
        self.services = services
        self.offline: set[str] = set()
        self.reply_faults: dict[str, ReplyFault] = {}
        self.pending: dict[str, tuple[str, Message]] = {}
        self.log: list[tuple[str, str]] = []
        self.most = 0
        self.closed = self.reconnected = 0

    def online(self) -> set[str]:
        return set(self.services) - self.offline

    def send(self, node: str, message: Message, seconds: float) -> str | None:
        if node in self.offline:
            return None
        json.dumps(dict(message.header))
        assert all(array.dtype.kind in "fiub" for array in message.arrays.values())
        self.log.append((node, str(message.header["kind"])))
        number = str(len(self.log))
        self.pending[number] = (node, message)
        self.most = max(self.most, len(self.pending))
        return number

    def receive(self, ids: Sequence[str], largest: int) -> Iterator[tuple[str, Message | str]]:
        for number in ids:
            if number not in self.pending:
                continue
            node, request = self.pending.pop(number)
            reply = self._reply(node, request)
            if reply is not None:
                assert isinstance(reply, str) or reply.bytes <= largest
                yield number, reply

    def _reply(self, node: str, request: Message) -> Message | str | None:
        copy = Message(json.loads(json.dumps(dict(request.header))), request.arrays)
        reply: Message | str = self.services[node].respond(copy)
        if reply.header["kind"] == FAILED and self.services[node].identity is None:
            reply = f"failed: {reply.header['reason']}"
        return self.reply_faults[node](request, reply) if node in self.reply_faults else reply

    def signs_of_life(self) -> dict[str, Any]:
        return {}

    def wait_for_replies(self, pause: float) -> None:
        time.sleep(pause)

    def reconnect(self) -> None:
        self.reconnected += 1
        self.pending.clear()

    def close(self) -> None:
        self.closed += 1


class InProcessNodes:
    """Nodes that hold what the clients of a federation hold."""

    def __init__(
        self,
        federation: Federation,
        folder: Path,
        *,
        test: bool = True,
        signed: bool = False,
        sealed: bool = False,
        server: Path | None = None,
        **options: Any,
    ) -> None:
        """With the folder of a server, nodes answer its requests only."""
        self.federation, self.folder, self.server, self.options = federation, folder, server, options
        self.names = tuple(f"n{client:02d}" for client in range(federation.client_count))
        self.keys = {name: _node_key(name) for name in self.names} if signed or sealed else {}
        if sealed:
            options["roster"] = {name: key.public_key() for name, key in self.keys.items()}
        self.data = [self._samples(client) for client in range(federation.client_count)]
        self.connection = FakeConnection({})
        self.restart()
        facts = tuple(service.facts() for service in self.connection.services.values())
        self.remote = RemoteFederation("nodes", self.names, facts, federation.test if test else None)

    def _samples(self, client: int):
        if isinstance(own := self.federation.train_samples(client), LazyDatasetSamples):
            return owner_datasets(own.dataset, None, classes=self.federation.class_count or None)
        x, y = self.federation.train_samples(client)
        return owner_federation({"x": x.numpy(), "y": y.numpy()}, classes=self.federation.class_count)

    def restart(self) -> None:
        """All nodes die and come back with what they have on disk."""
        for name in self.names:
            self.restart_one(name)

    def restart_one(self, name: str) -> None:
        folder, data = self.folder / name, self.data[self.names.index(name)]
        folder.mkdir(parents=True, exist_ok=True)
        self.connection.services[name] = NodeService(
            data, folder, identity=self._identity(name), requests=self._verifier(name), **self.options
        )

    def _identity(self, name: str):
        if name not in self.keys:
            return None
        from fedrelay.engines.flower.sealing import NodeIdentity

        return NodeIdentity.load(self.keys[name], self.folder / name)

    def _verifier(self, name: str):
        if self.server is None:
            return None
        from fedrelay.engines.flower.request_signatures import RequestVerifier

        return RequestVerifier((self.server / "ca.pem").read_bytes(), self.keys[name].public_key())

    def audit(self, experiment: Any, client_states: Any):
        """The audit trail of a run, where there is a server's folder."""
        if self.server is None:
            return None
        from fedrelay.engines.flower.connect import open_audit
        from fedrelay.engines.flower.credentials import public_text

        for name, key in self.keys.items():
            (self.server / "nodes" / f"{name}.pub").write_text(public_text(key.public_key()))
        return open_audit(experiment, self.server, client_states)

    @property
    def signatures(self) -> Signatures | None:
        if not self.keys:
            return None
        from fedrelay.engines.flower.credentials import requests_certificate, requests_key
        from fedrelay.engines.flower.reply_signatures import ReplyVerifier
        from fedrelay.engines.flower.request_signatures import RequestSigner

        keys, server = {name: key.public_key() for name, key in self.keys.items()}, self.server
        signer = None if server is None else RequestSigner(requests_key(server), requests_certificate(server), keys)
        return Signatures(ReplyVerifier(keys).check, signer)


@cache
def _node_key(name: str):
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP384R1())


def share_test_samples(found: InProcessNodes) -> None:
    """Have three nodes evaluate models, each on a third of the test samples."""
    test = found.federation.test
    for client, third in enumerate(np.array_split(np.arange(len(test.y)), 3)):
        x, y = (part.numpy() for part in found.federation.train_samples(client))
        tests = {"x_test": test.x[third].numpy(), "y_test": test.y[third].numpy()}
        found.data[client] = owner_federation({"x": x, "y": y, **tests}, classes=10)
    found.restart()
    found.remote = replace(found.remote, facts=tuple(service.facts() for service in found.connection.services.values()))


@pytest.fixture
def make_nodes(tmp_path) -> Callable[..., InProcessNodes]:
    return lambda federation, **options: InProcessNodes(federation, tmp_path / "nodes", **options)


@pytest.fixture
def digit_nodes(make_nodes, use_nodes) -> Callable[..., InProcessNodes]:
    """Makes nodes with digits, and runs experiments on them."""

    def make(clients: int, *, alpha: float = 0.3, **options: Any) -> InProcessNodes:
        found = make_nodes(open_federation(DataSettings(name="digits", clients=clients, alpha=alpha), 3), **options)
        use_nodes(found)
        return found

    return make


@pytest.fixture(scope="session")
def start_superlink(tmp_path_factory) -> Callable[..., Any]:
    """Starts SuperLinks in processes of their own. The keys of these nodes are NAME.key in the server's folder."""
    from fedrelay.engines.flower.credentials import make_node_key, make_server_folder
    from fedrelay.engines.flower.superlink import SuperLink

    @contextmanager
    def start(*nodes: str) -> Iterator[SuperLink]:
        folder = tmp_path_factory.mktemp("server")
        make_server_folder(folder, ["127.0.0.1"])
        for name in nodes:
            make_node_key(folder / f"{name}.key").rename(folder / "nodes" / f"{name}.pub")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        with SuperLink(folder, "127.0.0.1", port) as running:
            if nodes:
                running.register()
            yield running

    return start


@pytest.fixture
def use_nodes(monkeypatch) -> Callable[[InProcessNodes], None]:
    """Run experiments on these nodes, without a SuperLink."""

    def install(nodes: InProcessNodes) -> None:
        from fedrelay.engines.flower import connect
        from fedrelay.engines.flower.server import dispatcher

        monkeypatch.setattr(dispatcher, "SENDING", math.inf)  # what is sent in one poll must not depend on the load
        monkeypatch.setattr(connect, "open_remote", lambda experiment, plugins=(): nodes.remote)
        monkeypatch.setattr(
            connect,
            "start_flower",
            lambda job, experiment, client_states: FlowerEngine(
                job,
                nodes.connection,
                experiment.recovery,
                client_states,
                wait=0.2,
                poll=0.001,
                signatures=nodes.signatures,
                withdrawn=experiment.withdrawn,
                audit=nodes.audit(experiment, client_states),
            ),
        )

    return install
