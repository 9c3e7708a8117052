"""One run at a SuperLink, from its start to its end: what Flower calls the task of a ServerApp."""

from __future__ import annotations

import hashlib
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
    PullTaskInputRequest,
    PullTaskInputResponse,
    PushTaskOutputRequest,
    SendTaskHeartbeatRequest,
)
from flwr.supercore.fab import Fab
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor, SuperExecAuthHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient

from fedrelay.engines.flower.wire.encoding import numbered
from fedrelay.engines.flower.wire.superlink_api import client, control, reason_of

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

BEAT = 15.0
"""Seconds between signs of life; a run without any for a minute counts as dead."""


class RunTaken(Exception):
    """Somebody else took the run that we began: a SuperLink gives runs to whoever asks, and cannot be asked for one."""


class Session:
    """Open as long as it lives; gives signs of life from a thread of its own."""

    def __init__(self, address: str, authority: bytes, secret: bytes) -> None:
        self.address, self.authority = address, authority
        with control(address, authority) as office:
            self.run = int(office.StartRun(StartRunRequest(fab=app())).run_id)
            try:
                self.stub = self._stub(self._claimed(secret))
                begun = self._begun()
            except httpx.HTTPError:
                with suppress(httpx.HTTPError):
                    office.StopRun(StopRunRequest(run_id=self.run))  # nobody would ever do so
                raise
        self.task, self.node = begun.task_id, Node(node_id=begun.context.node_id)
        self.over = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def message(self, content: RecordDict, to: int, seconds: float) -> FlowerMessage:
        """A message of this run that is delivered within so many seconds or not at all."""
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
        return numbered(make_message(about, content))

    def others(self) -> int:
        """How many other runs are under way at the SuperLink, or were not a minute ago."""
        with control(self.address, self.authority) as office:
            runs = office.ListRuns(ListRunsRequest(limit=50)).run_dict
        return sum(run.status.status in ("starting", "running") for number, run in runs.items() if number != self.run)

    def close(self, *, well: bool) -> None:
        """Say that the run is over, so that nodes get no more of its messages; one who is gone need not know."""
        self.over.set()
        try:
            self.stub.PushTaskOutput(PushTaskOutputRequest(sub_status="completed" if well else "failed", details=""))
            with control(self.address, self.authority) as office:  # who looks at a run that is over has it cleared away
                office.ListRuns(ListRunsRequest(run_id=self.run))
        except httpx.HTTPError as error:
            log.debug("the end of the run could not be told: %s", reason_of(error))
        self.stub.close()

    def _claimed(self, secret: bytes) -> str:
        """The token of our run. Runs of others in the way are ended: who began one notices, and begins anew."""
        proof = SuperExecAuthHttpInterceptor(
            master_secret=secret, protected_methods=frozenset({"/flwr.proto.Runtime/AcquireTask"})
        )
        wanted = AcquireTaskRequest(supported_task_types=["flwr-serverapp"])
        with client(RuntimeHttpClient, self.address, self.authority, "SuperExec", proof) as superexec:
            while (found := superexec.AcquireTask(wanted)).token:
                if found.task.run_id == self.run:
                    return str(found.token)
                log.warning(
                    "the SuperLink at %s had a run of somebody else waiting, a second `fedrelay run` or one that was "
                    "killed while it started; it was ended",
                    self.address,
                )
                with self._stub(found.token) as stray:
                    stray.PushTaskOutput(PushTaskOutputRequest(sub_status="failed", details="taken by another server"))
        raise RunTaken

    def _begun(self) -> PullTaskInputResponse:
        try:
            return self.stub.PullTaskInput(PullTaskInputRequest())
        except httpx.HTTPError:
            self.stub.close()
            raise

    def _stub(self, token: str) -> RuntimeHttpClient:
        proof = RuntimeTokenHttpInterceptor(token)
        return client(RuntimeHttpClient, self.address, self.authority, "flwr-serverapp", proof)

    def _beat(self) -> None:
        while not self.over.wait(BEAT):
            try:
                self.stub.SendTaskHeartbeat(SendTaskHeartbeatRequest())
            except (httpx.HTTPError, ValueError, RuntimeError) as error:  # the client may be closed meanwhile
                log.debug("no sign of life given: %s", reason_of(error))


def app() -> Any:
    """The app without code, packed."""
    with warnings.catch_warnings():  # of what Flower itself uses
        warnings.simplefilter("ignore", DeprecationWarning)
        fab, _ = build_fab_from_files(APP)
    return fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {}))
