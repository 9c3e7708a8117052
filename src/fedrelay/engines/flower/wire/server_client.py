"""The server's side: questions out to nodes, answers in, as many at once as there are nodes."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import suppress

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message as FlowerMessage
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.message_pb2 import ObjectTree
from flwr.proto.runtime_pb2 import GetNodesRequest, PullAppMessagesRequest, PushAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.primitives.asymmetric import public_key_to_bytes

from fedrelay.engines.flower.messages import Message, one_line
from fedrelay.engines.flower.server.connection import Unreachable, no_answer
from fedrelay.engines.flower.wire.encoding import IncompleteMessage, fetch, from_flower, push, to_flower
from fedrelay.engines.flower.wire.node_client import BEAT as NODE_BEAT
from fedrelay.engines.flower.wire.session import RunTaken, Session
from fedrelay.engines.flower.wire.superlink_api import reaching, status_of, unreachable

log = logging.getLogger(__name__)

LOOK = 1.0
"""Seconds for which the list of nodes is good, and between two attempts to reach a SuperLink."""

AT_ONCE = 32
"""So many answers are fetched at the same time."""

GLANCE = 0.1
"""Seconds to wait for the next of them to be whole."""

SLACK, PACE = 10.0, 5e6
"""A question lives longer than its answer is waited for: by seconds, and by one for so many bytes of its own."""

CHANCE = random.SystemRandom()
"""Of no consequence for results: it says when to ask again."""

QUESTION_EXPIRED, ANSWER_EXPIRED, NODE_GONE = 3, 4, 5
"""Flower's codes."""


class FlowerConnection:
    """A run at a SuperLink, and another one whenever that is lost."""

    def __init__(
        self,
        address: str,
        authority: bytes,
        secret: bytes,
        keys: dict[str, ec.EllipticCurvePublicKey],
        *,
        wait: float = 60.0,
    ) -> None:
        self.address, self.authority, self.secret, self.wait = address, authority, secret, wait
        self.names = {public_key_to_bytes(key): name for name, key in keys.items()}
        self.looked: float
        self.seen: dict[str, int]
        self.pool = futures.ThreadPoolExecutor(AT_ONCE)
        self._begin(self._opened())
        self._warn_of_others()

    def present(self) -> set[str]:
        """The names of all nodes that are online."""
        if time.monotonic() - self.looked > LOOK:
            with reaching(self.address):
                nodes = self.session.stub.GetNodes(GetNodesRequest()).nodes
            known = [node for node in nodes if node.public_key in self.names]
            self.seen = {self.names[node.public_key]: node.node_id for node in known}
            self.looked = time.monotonic()
        return set(self.seen)

    def send(self, node: str, message: Message, seconds: float) -> str | None:
        """Send a parcel, on whose answer somebody will wait for so many seconds."""
        if node not in self.present():
            return None
        session, life = self.session, seconds + SLACK + message.bytes / PACE
        sent = session.message(to_flower(message), self.seen[node], life)
        bare = message_to_proto(remove_content_from_message(sent))
        with reaching(self.address):
            found = session.stub.PushMessages(
                PushAppMessagesRequest(messages_list=[bare], message_object_trees=[get_object_tree(sent)])
            )
            if not found.message_ids or not found.message_ids[0]:
                return None
            push(session.stub, session.node, session.run, found.session_id, sent, set(found.objects_to_push))
        number = str(found.message_ids[0])
        self.seconds[number] = seconds
        return number

    def collect(self, numbers: Sequence[str], largest: int) -> Iterator[tuple[str, Message | str | None]]:
        """Answers that are whole; those that begin to come are fetched meanwhile, each by itself."""
        announced = self._announced([number for number in numbers if number not in self.arriving])
        for number, tree in announced.items():
            seconds = self.seconds.pop(number)
            self.arriving[number] = self.pool.submit(self._fetched, self.session, tree, largest, seconds)
        yield from ((number, None) for number in announced)
        coming = {number: self.arriving[number] for number in numbers if number in self.arriving}
        if coming:
            futures.wait(coming.values(), GLANCE, futures.FIRST_COMPLETED)
        for number, answer in coming.items():
            if answer.done():
                with reaching(self.address):
                    found = answer.result()
                del self.arriving[number]
                yield number, found

    def reconnect(self) -> None:
        """Another run, as soon as the SuperLink answers."""
        lost = self.session
        self._begin(self._opened())
        lost.close(well=False)

    def close(self, *, well: bool = True) -> None:
        """Say that the run is over."""
        self.session.close(well=well)
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, session: Session) -> None:
        """Nothing is under way in a run that was just opened."""
        self.session = session
        self.looked, self.seen = float("-inf"), {}
        self.seconds: dict[str, float] = {}
        self.arriving: dict[str, futures.Future[Message | str]] = {}

    def _opened(self) -> Session:
        """A run as soon as there is a SuperLink; what waiting does not cure is said at once."""
        began, told = time.monotonic(), False
        while True:
            try:
                return Session(self.address, self.authority, self.secret)
            except RunTaken:
                trouble = Unreachable(
                    f"the SuperLink at {self.address} gives our runs to somebody else; it serves one `fedrelay run` "
                    "at a time"
                )
                hopeless = False
            except httpx.HTTPError as error:
                trouble = unreachable(self.address, error, "does not accept the secret of the folder")
                hopeless = 400 <= status_of(error) < 500 or "CERTIFICATE_VERIFY_FAILED" in str(error)
            if hopeless or time.monotonic() - began > self.wait:
                raise trouble
            if not told:
                log.warning("%s; trying again for %g s", trouble, self.wait)
                told = True
            time.sleep(LOOK * CHANCE.uniform(1, 2))  # servers that disturb each other get out of step

    def _warn_of_others(self) -> None:
        with suppress(httpx.HTTPError):
            if others := self.session.others():
                log.warning(
                    "the SuperLink at %s serves other runs too (%d that are there, or died less than a minute ago): "
                    "nodes answer all in turn, so answers come late; better one run at a time",
                    self.address,
                    others,
                )

    def _announced(self, numbers: Sequence[str]) -> dict[str, ObjectTree]:
        """Which of these have an answer that has begun to come."""
        if not numbers:
            return {}
        with reaching(self.address):
            found = self.session.stub.PullMessages(PullAppMessagesRequest(message_ids=list(numbers)))
        pairs = zip(found.messages_list, found.message_object_trees, strict=True)
        replies = {str(proto.metadata.reply_to_message_id): tree for proto, tree in pairs}
        return {number: tree for number, tree in replies.items() if number in numbers}

    @staticmethod
    def _fetched(session: Session, tree: ObjectTree, largest: int, seconds: float) -> Message | str:
        """An answer, or in a few words why there is none; failures of the network are not the node's."""
        try:
            message = fetch(session.stub, session.node, session.run, tree, largest, seconds)
            return _error(message, seconds) if message.has_error() else from_flower(message, largest)
        except httpx.HTTPError:
            raise
        except IncompleteMessage as error:
            return f"no whole answer: {error}"
        except Exception as error:  # whatever a node sends, it must not end the run
            return f"a bad answer: cannot be read ({one_line(f'{type(error).__name__}: {error}', 100)})"


def _error(message: FlowerMessage, seconds: float) -> str:
    """What a node or the SuperLink says in place of an answer."""
    match message.error.code:
        case code if code in (QUESTION_EXPIRED, ANSWER_EXPIRED):
            return no_answer(seconds)
        case code if code == NODE_GONE:
            return f"gone: no sign of life for {2 * NODE_BEAT:g} s"
        case code:
            return f"failed: {one_line(str(message.error.reason or '')) or f'error {code} of Flower'}"
