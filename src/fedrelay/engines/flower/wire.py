"""Messages through a Flower SuperLink. Everything that knows Flower from inside is in this file.

The server side is what Flower calls a ServerApp process, the node side a SuperNode; both speak to an unchanged
SuperLink in Flower's own protocol, over TLS. Flower's own SuperNode would start a process for every message. What is
used here is no public interface of Flower, so its version is pinned in pyproject.toml.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import ssl
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")

import httpx
import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto, message_to_proto
from flwr.proto.control_pb2 import ListNodesRequest, RegisterNodeRequest, StartRunRequest
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, ObjectTree
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    GetNodesRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushAppMessagesRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.control.control_http_client import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree, iterate_object_tree
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects, push_objects
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from fedrelay.engines.flower.identity import PrivateKey
from fedrelay.engines.flower.parcel import Parcel, one_line
from fedrelay.engines.flower.post import Unreachable

log = logging.getLogger(__name__)

APP = {
    "pyproject.toml": b"""[project]
name = "fedrelay-run"
version = "0.1.0"
license = "Apache-2.0"
dependencies = ["flwr>=1.41"]
[tool.flwr.app]
publisher = "fedrelay"
[tool.flwr.app.components]
serverapp = "fedrelay_run:app"
clientapp = "fedrelay_run:app"
""",
    "fedrelay_run.py": b"",
}
"""An app without code: a SuperLink starts no run without one."""

SERVERS_NODE = 1
TASK_BEAT, NODE_BEAT = 15.0, 10.0
"""Seconds between signs of life; a node that is silent for twice as long counts as gone."""

PATIENCE = 10.0
"""Seconds to wait for the rest of a message that was announced."""

RETURN = 20.0
"""Seconds that nodes get to come back after their SuperLink."""

LOOK = 1.0
"""Seconds for which the list of nodes is good."""

HEADER, ARRAYS = "header", "arrays"
FAILED = 101
UNAVAILABLE = 5
"""Flower's code for a node that is gone."""

Letter = Message
"""A message as Flower has it."""

T = TypeVar("T")


class Forgotten(Exception):
    """The SuperLink does not know us, or not any more."""


class Refused(Exception):
    """The SuperLink does not want us."""


def client(kind: type[T], address: str, authority: bytes, component: str, *more: Any) -> T:
    """A client of one of the SuperLink's interfaces; it never retries by itself."""
    interceptors = [RuntimeVersionHttpInterceptor(component_name=component), *more]
    made: T = kind.from_server_address(  # type: ignore[attr-defined]
        server_address=address, insecure=False, root_certificates=authority, interceptors=interceptors
    )
    return made


def reason_of(error: httpx.HTTPError) -> str:
    """What went wrong on the way, in one line."""
    if isinstance(error, httpx.HTTPStatusError):
        return one_line(f"status {error.response.status_code}: {error.response.text}", 200)
    return one_line(f"{type(error).__name__}: {error}", 200)


def as_message(parcel: Parcel) -> RecordDict:
    """A parcel as Flower sends it: arrays as arrays, all else as one JSON text."""
    arrays = ArrayRecord({name: Array(array) for name, array in parcel.arrays.items()})
    return RecordDict({HEADER: ConfigRecord({"json": json.dumps(dict(parcel.header))}), ARRAYS: arrays})


def as_parcel(message: Message) -> Parcel:
    """The way back; arrays are read without pickle."""
    header = json.loads(str(message.content[HEADER]["json"]))
    if not isinstance(header, dict):
        raise ValueError("the header is no mapping")
    arrays = message.content.array_records.get(ARRAYS) or ArrayRecord()
    found = {str(name): array.numpy() for name, array in arrays.items()}
    if not all(type(array) is np.ndarray for array in found.values()):  # bytes of an archive give something else
        raise ValueError("something that is no array")
    return Parcel(header, found)


def _numbered(message: Message) -> Message:
    message.metadata.__dict__["_message_id"] = message.object_id
    return message


def _push(stub: Any, node: Node, run: int, session: str, message: Message, wanted: set[str]) -> None:
    send = make_push_object_fn_protobuf(stub.PushObject, node, run, session)
    push_objects(get_all_nested_objects(message), send, object_ids_to_push=wanted)


def _fetch(stub: Any, node: Node, run: int, tree: ObjectTree, largest: int) -> Message:
    """All parts of a message that was announced; more bytes than allowed end it."""
    fetch, left = make_pull_object_fn_protobuf(stub.PullObject, node, run), [largest]

    def counted(object_id: str) -> bytes:
        content = fetch(object_id)
        left[0] -= len(content)
        if left[0] < 0:
            raise ValueError(f"more than {largest} bytes")
        return content

    names = [each.object_id for each in iterate_object_tree(tree)]
    if len(names) > 64 + largest // 10**6:
        raise ValueError("too many parts")
    contents = pull_objects(names, counted, initial_backoff=0.03, backoff_cap=0.3, max_time=PATIENCE)
    stub.ConfirmMessageReceived(ConfirmMessageReceivedRequest(node=node, run_id=run, message_object_id=tree.object_id))
    message = inflate_object_from_contents(tree.object_id, contents)
    if not isinstance(message, Message):
        raise ValueError("it is no message")
    message.metadata.__dict__["_message_id"] = tree.object_id
    return message


def register(address: str, authority: bytes, keys: Sequence[ec.EllipticCurvePublicKey]) -> int:
    """Tell a SuperLink which nodes it may let in; gives the number of new ones."""
    new = 0
    with client(ControlHttpClient, address, authority, "flwr-cli") as control:
        for key in keys:
            try:
                control.RegisterNode(RegisterNodeRequest(public_key=public_key_to_bytes(key)))
                new += 1
            except httpx.HTTPStatusError as error:
                if error.response.status_code != 412:  # it knows this one already
                    raise
    return new


def answers(address: str, authority: bytes) -> bool:
    """Whether a SuperLink listens there, with a certificate of this authority."""
    context = ssl.create_default_context(cadata=authority.decode())
    try:
        httpx.get(f"https://{address}/", verify=context, timeout=2.0)
    except httpx.HTTPError:
        return False
    return True


def last_seen(address: str, authority: bytes, keys: dict[str, ec.EllipticCurvePublicKey]) -> dict[str, float]:
    """Name → seconds since a sign of life, of all nodes that were ever there."""
    names = {public_key_to_bytes(key): name for name, key in keys.items()}
    with client(ControlHttpClient, address, authority, "flwr-cli") as control:
        nodes = control.ListNodes(ListNodesRequest()).nodes_info
    seen = {names[node.public_key]: node for node in nodes if node.public_key in names and node.online_until}
    # A sign of life is good for twice the time between two.
    return {name: time.time() - (node.online_until - 2 * node.heartbeat_interval) for name, node in seen.items()}


class FlowerPost:
    """The server's side: one run at a SuperLink, from start to end."""

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
        self.node = Node(node_id=SERVERS_NODE)
        self.over = threading.Event()
        self.seen: dict[str, int] = {}
        self.looked = 0.0
        self._open_patiently()
        threading.Thread(target=self._beat, daemon=True).start()

    def present(self) -> set[str]:
        """The names of all nodes that are online."""
        if time.monotonic() - self.looked > LOOK:
            try:
                nodes = self.stub.GetNodes(GetNodesRequest()).nodes
            except httpx.HTTPError:
                self._open_patiently()
                nodes = self.stub.GetNodes(GetNodesRequest()).nodes
            known = [node for node in nodes if node.public_key in self.names]
            self.seen = {self.names[node.public_key]: node.node_id for node in known}
            self.looked = time.monotonic()
        return set(self.seen)

    def send(self, node: str, parcel: Parcel, seconds: float) -> str | None:
        """Send a parcel; whoever gets it later than that does not get it at all."""
        if node not in self.present():
            return None
        message = _numbered(Message(as_message(parcel), dst_node_id=self.seen[node], message_type="query", ttl=seconds))
        bare = message_to_proto(remove_content_from_message(message))
        with self._reaching():
            found = self.stub.PushMessages(
                PushAppMessagesRequest(messages_list=[bare], message_object_trees=[get_object_tree(message)])
            )
            if not found.message_ids or not found.message_ids[0]:
                return None
            _push(self.stub, self.node, self.run, found.session_id, message, set(found.objects_to_push))
        return str(found.message_ids[0])

    def collect(self, numbers: Sequence[str], largest: int) -> Iterator[tuple[str, Parcel | str]]:
        """Answers that have come."""
        with self._reaching():
            found = self.stub.PullMessages(PullAppMessagesRequest(message_ids=list(numbers)))
        for proto, tree in zip(found.messages_list, found.message_object_trees, strict=True):
            number = str(proto.metadata.reply_to_message_id)
            if number in numbers:
                yield number, self._opened(tree, largest)

    def reconnect(self) -> None:
        """A new run, as soon as the SuperLink answers; then wait a little for the nodes that were there."""
        log.warning("the SuperLink at %s is gone; waiting for it", self.address)
        there, began = set(self.seen), time.monotonic()
        self._open_patiently()
        while not there <= self.present() and time.monotonic() - began < min(self.wait, RETURN):
            time.sleep(LOOK)

    def close(self, *, well: bool = True) -> None:
        """Say that the run is over; a SuperLink that is gone need not know."""
        self.over.set()
        try:
            self.stub.PushTaskOutput(PushTaskOutputRequest(sub_status="completed" if well else "failed", details=""))
        except httpx.HTTPError as error:
            log.debug("the end of the run could not be told: %s", reason_of(error))
        self.stub.close()

    def _opened(self, tree: ObjectTree, largest: int) -> Parcel | str:
        try:
            message = _fetch(self.stub, self.node, self.run, tree, largest)
            if not message.has_error():
                return as_parcel(message)
            code, reason = message.error.code, one_line(str(message.error.reason or ""))
            return "gone" if code == UNAVAILABLE else f"failed: {reason or f'error {code} of Flower'}"
        except Exception as error:  # whatever a node sends, it must not end the run
            return f"a bad answer: cannot be read ({one_line(f'{type(error).__name__}: {error}', 100)})"

    def _open_patiently(self) -> None:
        began = time.monotonic()
        while True:
            try:
                return self._open()
            except httpx.HTTPStatusError as error:
                what = "does not accept the secret of the folder" if _status(error) == 401 else "starts no run"
                raise Unreachable(f"the SuperLink at {self.address} {what} ({reason_of(error)})") from None
            except httpx.HTTPError as error:
                hopeless = "CERTIFICATE_VERIFY_FAILED" in str(error)
                if hopeless or time.monotonic() - began > self.wait:
                    raise _unreachable(self.address, error) from None
                time.sleep(LOOK)

    def _open(self) -> None:
        with warnings.catch_warnings():  # of what Flower itself uses
            warnings.simplefilter("ignore", DeprecationWarning)
            fab, _ = build_fab_from_files(APP)
        app = fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
        with client(ControlHttpClient, self.address, self.authority, "flwr-cli") as control:
            self.run = control.StartRun(StartRunRequest(fab=app)).run_id
        proof = SuperExecAuthHttpInterceptor(
            master_secret=self.secret, protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"})
        )
        with client(RuntimeHttpClient, self.address, self.authority, "SuperExec", proof) as superexec:
            wanted = AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
            while (found := superexec.AcquireTask(wanted)).task.run_id != self.run:
                if not found.token:
                    raise Unreachable(f"the SuperLink at {self.address} has given our run to somebody else")
        token = RuntimeTokenHttpInterceptor(found.token)
        self.stub = client(RuntimeHttpClient, self.address, self.authority, "flwr-serverapp", token)
        begun = self.stub.PullTaskInput(PullTaskInputRequest())
        TaskIdentity.task_id, TaskIdentity.run_id = begun.task_id, begun.run.run_id
        TaskIdentity.node_id = begun.context.node_id

    def _reaching(self) -> _Reaching:
        return _Reaching(self.address)

    def _beat(self) -> None:
        while not self.over.wait(TASK_BEAT):
            try:
                self.stub.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except httpx.HTTPError as error:
                log.debug("no heartbeat: %s", reason_of(error))


class _Reaching:
    """Says in our words that a SuperLink cannot be reached."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __enter__(self) -> None:
        """Nothing yet."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, httpx.HTTPError):
            return
        raise _unreachable(self.address, error) from None


def _unreachable(address: str, error: httpx.HTTPError) -> Unreachable:
    return Unreachable(f"the SuperLink at {address} cannot be reached ({reason_of(error)})")


def _status(error: httpx.HTTPError) -> int:
    return error.response.status_code if isinstance(error, httpx.HTTPStatusError) else 0


class Door:
    """A node's side: it comes in, takes questions and hands out answers."""

    def __init__(self, address: str, authority: bytes, key: PrivateKey, memo: Path) -> None:
        self.public = public_key_to_bytes(key.public_key())
        proof = NodeAuthHttpInterceptor(key, key.public_key())
        self.stub = client(FleetHttpClient, address, authority, "SuperNode", proof)
        self.memo = memo
        self.node: Node | None = None
        self.reached = time.monotonic()
        """When the SuperLink answered last."""
        self.over = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def enter(self) -> None:
        """Come in. A node that was killed still counts as being there, so the one that was goes out first."""
        self._leave_as_before()
        request = ActivateNodeRequest(public_key=self.public, heartbeat_interval=NODE_BEAT)
        self.node = Node(node_id=self._asked(self.stub.ActivateNode, request).node_id)
        self.memo.write_text(str(self.node.node_id))

    def receive(self) -> Message | None:
        """The next question, if there is one; one that never arrived whole is dropped."""
        found = self._asked(self.stub.PullMessages, PullMessagesRequest(node=self.node))
        if not found.messages_list:
            return None
        run = found.messages_list[0].metadata.run_id
        try:
            return _fetch(self.stub, self._me, run, found.message_object_trees[0], 2**40)
        except httpx.HTTPError:
            raise
        except Exception as error:
            log.warning("a message did not arrive whole: %s", one_line(f"{type(error).__name__}: {error}"))
            return None

    def reply(self, message: Message, answer: Parcel | str) -> None:
        """Answer a question; a text says what went wrong."""
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 0, message.metadata.run_id, self._me.node_id
        if isinstance(answer, str):
            reply = _numbered(Message(Error(code=FAILED, reason=one_line(answer)), reply_to=message))
        else:
            reply = _numbered(Message(as_message(answer), reply_to=message))
        bare = message_to_proto(remove_content_from_message(reply) if reply.has_content() else reply)
        request = PushMessagesRequest(
            node=self.node,
            messages_list=[bare],
            message_object_trees=[get_object_tree(reply)],
            clientapp_runtime_list=[0.0],
        )
        found = self._asked(self.stub.PushMessages, request)
        _push(self.stub, self._me, message.metadata.run_id, found.session_id, reply, set(found.objects_to_push))

    def leave(self) -> None:
        """Go out."""
        self.over.set()
        self._leave_as_before()
        self.stub.close()

    @property
    def _me(self) -> Node:
        assert self.node is not None
        return self.node

    def _leave_as_before(self) -> None:
        if self.memo.is_file():
            try:
                self.stub.DeactivateNode(DeactivateNodeRequest(node_id=int(self.memo.read_text())))
            except (httpx.HTTPError, ValueError) as error:
                log.debug("was not there before: %s", error)

    def _asked(self, method: Callable[[Any], Any], request: Any) -> Any:
        try:
            answer = method(request)
            self.reached = time.monotonic()
            return answer
        except httpx.HTTPStatusError as error:
            self.reached = time.monotonic()
            if error.response.status_code in (401, 403, 404):
                raise Forgotten(reason_of(error)) from None
            if error.response.status_code == 412:
                raise Refused(reason_of(error)) from None
            raise

    def _beat(self) -> None:
        while not self.over.wait(0.7 * NODE_BEAT):
            if self.node is not None:
                try:
                    self.stub.SendNodeHeartbeat(SendNodeHeartbeatRequest(node=self.node, heartbeat_interval=NODE_BEAT))
                except httpx.HTTPError as error:
                    log.debug("no heartbeat: %s", reason_of(error))
