"""One run at a SuperLink, from start to end: what Flower calls the task of a ServerApp."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
import warnings
from contextlib import suppress
from typing import Any

import httpx
from flwr.app import Message as FlowerMessage
from flwr.app import RecordDict
from flwr.app.message import make_message
from flwr.app.metadata import Metadata
from flwr.cli.build import build_fab_from_files
from flwr.common.serde import fab_to_proto
from flwr.proto.control_pb2 import ListRunsRequest, StartRunRequest, StopRunRequest
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import (
    AcquireTaskRequest,
    PullAppMessagesRequest,
    PullTaskInputRequest,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from google.protobuf.wrappers_pb2 import StringValue

from fedrelay.engines.flower.printable_text import one_line
from fedrelay.engines.flower.server.connection_interface import SignOfLife
from fedrelay.engines.flower.wire.message_waiter import UNKNOWN_PATH, MessageWaiter
from fedrelay.engines.flower.wire.superlink_calls import client, control, reason_of
from fedrelay.engines.flower.wire.superlink_process.protocol import SERVER_LOOKS, SERVER_WAITS

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
"""An app without code: a SuperLink does not start a run without one."""

HEARTBEAT = 15.0
"""Seconds between heartbeats. A run without one for a minute is ended."""


class RunAlreadyTaken(Exception):
    """Another server took the run that we started: a SuperLink gives the next run to any server that asks."""


class SuperLinkRun:
    """A run that is open. A thread sends its heartbeats."""

    def __init__(self, address: str, authority: bytes, secret: bytes) -> None:
        self.address, self.authority, self.secret = address, authority, secret
        with control(address, authority, secret) as api:
            self.run = int(api.StartRun(StartRunRequest(fab=app())).run_id)
            try:
                self.stub = self._stub(self._claim())
                try:
                    task = self.stub.PullTaskInput(PullTaskInputRequest())
                except httpx.HTTPError:
                    self.stub.close()
                    raise
            except httpx.HTTPError:
                with suppress(httpx.HTTPError):
                    api.StopRun(StopRunRequest(run_id=self.run))  # nobody else would
                raise
        self.task, self.node = task.task_id, Node(node_id=task.context.node_id)
        self.replies = MessageWaiter(self.stub, SERVER_WAITS)
        self.requests_sent = 0
        self.shows_progress = True
        """Whether the SuperLink knows how far nodes are, as far as we know."""
        self.over = threading.Event()
        threading.Thread(target=self._send_heartbeats, daemon=True).start()

    def message(self, content: RecordDict, to: int, seconds: float) -> FlowerMessage:
        """A message of this run that expires after `seconds`; it has no id yet."""
        about = Metadata(
            run_id=self.run,
            message_id="",
            src_node_id=self.node.node_id,
            dst_node_id=to,
            reply_to_message_id="",
            group_id="",
            created_at=time.time(),
            ttl=seconds,
            message_type="query",
            src_task_id=self.task,
        )
        about.delivered_at = ""
        return make_message(about, content)

    def progress_of_nodes(self) -> dict[str, SignOfLife]:
        """Receiver → what a node said last about a hop. It is not signed: it decides only how long to wait."""
        try:
            told = self.stub._unary_unary(
                path=SERVER_LOOKS,
                rpc_method=SERVER_LOOKS,
                request=PullAppMessagesRequest(),
                response_type=StringValue,
                timeout=HEARTBEAT,
            )
            reports = json.loads(told.value)
            found = {node: (float(age), one_line(str(text))) for node, (age, text) in reports.items()}
            return {node: SignOfLife(max(0.0, age), text) for node, (age, text) in found.items()}
        except httpx.HTTPStatusError as error:
            if error.response.status_code not in UNKNOWN_PATH:
                raise
            self.shows_progress = False
        except (ValueError, TypeError, AttributeError, RecursionError):
            log.warning("the SuperLink at %s says nothing readable about the progress of nodes", self.address)
        return {}

    def other_runs(self) -> int:
        """How many other runs the SuperLink has, including any that died less than a minute ago."""
        with control(self.address, self.authority, self.secret) as api:
            runs = api.ListRuns(ListRunsRequest(limit=50)).run_dict
        return sum(run.status.status in ("starting", "running") for number, run in runs.items() if number != self.run)

    def close(self, *, success: bool) -> None:
        """End the run, so that nodes get no more of its messages."""
        self.over.set()
        try:
            self.stub.PushTaskOutput(PushTaskOutputRequest(sub_status="completed" if success else "failed", details=""))
            with control(self.address, self.authority, self.secret) as api:  # this makes the SuperLink clean up
                api.ListRuns(ListRunsRequest(run_id=self.run))
        except httpx.HTTPError as error:
            log.debug("the end of the run was not reported: %s", reason_of(error))
        self.stub.close()

    def _claim(self) -> str:
        """The token of our run. Other runs that wait are ended; their servers notice and start new ones."""
        proof = SuperExecAuthHttpInterceptor(
            master_secret=self.secret, protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"})
        )
        wanted = AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
        with client(RuntimeHttpClient, self.address, self.authority, "SuperExec", proof) as superexec:
            while (found := superexec.AcquireTask(wanted)).token:
                if found.task.run_id == self.run:
                    return str(found.token)
                log.warning(
                    "the SuperLink at %s had another run waiting, of a second `fedrelay run` or of one that was killed "
                    "while it started; that run was ended",
                    self.address,
                )
                with self._stub(found.token) as stray:
                    stray.PushTaskOutput(PushTaskOutputRequest(sub_status="failed", details="taken by another server"))
        raise RunAlreadyTaken

    def _stub(self, token: str) -> RuntimeHttpClient:
        proof = RuntimeTokenHttpInterceptor(token)
        return client(RuntimeHttpClient, self.address, self.authority, "flwr-serverapp", proof)

    def _send_heartbeats(self) -> None:
        while not self.over.wait(HEARTBEAT):
            try:
                self.stub.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except (httpx.HTTPError, ValueError, RuntimeError) as error:  # the client may be closed meanwhile
                log.debug("no heartbeat sent: %s", reason_of(error))


_PACKING = threading.Lock()
"""Several threads that ignore warnings at once undo each other's filters."""


def app() -> Any:
    """The app without code, as Flower packs it."""
    with _PACKING, warnings.catch_warnings():  # about what Flower itself uses
        warnings.simplefilter("ignore", DeprecationWarning)
        fab, _ = build_fab_from_files(APP)
    return fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
