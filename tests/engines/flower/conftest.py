"""A federation without a network: the connection hands requests straight to the node services."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedrelay.data.federation import Federation
from fedrelay.data.own_samples import owner_federation
from fedrelay.engines.flower.engine import FlowerEngine
from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.node.service import NodeService
from fedrelay.engines.flower.server.remote_federation import RemoteFederation
from fedrelay.errors import FedRelayError


@pytest.fixture
def stand_still(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The clock of a module: seconds pass when somebody sleeps, and no other way."""

    def stopped(module: Any, now: float = 0.0) -> Any:
        found = SimpleNamespace(now=now)

        def sleep(seconds: float) -> None:
            found.now += seconds

        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: found.now, sleep=sleep))
        return found

    return stopped


Spoil = Callable[[Message, Message | str], "Message | str | None"]
"""What becomes of an answer to a question; None: it never comes."""


class FakeConnection:
    """Every node answers as soon as somebody looks; `spoil` says what goes wrong at a node."""

    def __init__(self, services: dict[str, NodeService]) -> None:
        self.services = services
        self.away: set[str] = set()
        self.spoil: dict[str, Spoil] = {}
        self.boxes: dict[str, tuple[str, Message]] = {}
        self.log: list[tuple[str, str]] = []
        self.most = 0
        self.closed = self.reconnected = 0

    def online(self) -> set[str]:
        return set(self.services) - self.away

    def send(self, node: str, message: Message, seconds: float) -> str | None:
        if node in self.away:
            return None
        json.dumps(dict(message.header))
        assert all(array.dtype.kind in "fi" for array in message.arrays.values())
        self.log.append((node, str(message.header["kind"])))
        number = str(len(self.log))
        self.boxes[number] = (node, message)
        self.most = max(self.most, len(self.boxes))
        return number

    def receive(self, ids: Sequence[str], largest: int) -> Iterator[tuple[str, Message | str]]:
        for number in ids:
            if number not in self.boxes:
                continue
            node, question = self.boxes.pop(number)
            answer = self._answer(node, question)
            if answer is not None:
                assert isinstance(answer, str) or answer.bytes <= largest
                yield number, answer

    def _answer(self, node: str, question: Message) -> Message | str | None:
        try:
            copy = Message(json.loads(json.dumps(dict(question.header))), question.arrays)
            answer: Message | str = self.services[node].answer(copy)
        except FedRelayError as error:
            answer = f"failed: {error}"
        return self.spoil[node](question, answer) if node in self.spoil else answer

    def reconnect(self) -> None:
        self.reconnected += 1
        self.boxes.clear()

    def close(self) -> None:
        self.closed += 1


class Village:
    """Nodes that hold what the clients of a federation hold."""

    def __init__(self, federation: Federation, folder: Path, *, test: bool = True, **options: Any) -> None:
        self.federation, self.folder, self.options = federation, folder, options
        self.names = tuple(f"n{client:02d}" for client in range(federation.clients))
        self.data = [self._samples(client) for client in range(federation.clients)]
        self.connection = FakeConnection({})
        self.restart()
        facts = tuple(service.facts() for service in self.connection.services.values())
        self.remote = RemoteFederation("village", self.names, facts, federation.test if test else None)

    def _samples(self, client: int):
        x, y = self.federation.samples(client)
        return owner_federation({"x": x.numpy(), "y": y.numpy()}, classes=self.federation.classes)

    def restart(self) -> None:
        """All nodes die and come back with what they have on disk."""
        for name, data in zip(self.names, self.data, strict=True):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
            self.connection.services[name] = NodeService(data, self.folder / name, **self.options)


def share_test_samples(found: Village) -> None:
    """Have three nodes judge, each on a third of the test samples."""
    test = found.federation.test
    for client, third in enumerate(np.array_split(np.arange(len(test.y)), 3)):
        x, y = (part.numpy() for part in found.federation.samples(client))
        tests = {"x_test": test.x[third].numpy(), "y_test": test.y[third].numpy()}
        found.data[client] = owner_federation({"x": x, "y": y, **tests}, classes=10)
    found.restart()
    found.remote = replace(found.remote, facts=tuple(service.facts() for service in found.connection.services.values()))


@pytest.fixture
def village(tmp_path) -> Callable[..., Village]:
    return lambda federation, **options: Village(federation, tmp_path / "nodes", **options)


@pytest.fixture
def through(monkeypatch) -> Callable[[Village], None]:
    """Have experiments run on a village instead of a SuperLink."""

    def install(village: Village) -> None:
        from fedrelay.engines.flower import start
        from fedrelay.engines.flower.server import dispatcher

        monkeypatch.setattr(
            dispatcher, "SENDING", math.inf
        )  # who is asked at the same look must not depend on the load
        monkeypatch.setattr(start, "open_remote", lambda experiment, plugins=(): village.remote)
        monkeypatch.setattr(
            start,
            "start_flower",
            lambda job, experiment, client_states: FlowerEngine(
                job, village.connection, experiment.recovery, client_states, wait=0.2, poll=0.001
            ),
        )

    return install
