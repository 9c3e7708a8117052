"""The Ray cluster that this process works with: one at a time, started here or found at an address.

Ray is chatty, waits for minutes for a cluster that is not there, takes over SIGTERM, and ends the process a minute
after its cluster is gone. Here it is kept quiet, and a cluster that is not there, or no longer, is one clear message.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import textwrap
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedrelay.engines.local.engine import cores
from fedrelay.engines.local.executor import MOST_DEATHS
from fedrelay.engines.quiet import errors_only
from fedrelay.errors import EngineError, FedRelayError

log = logging.getLogger(__name__)

Ref = Any
"""A `ray.ObjectRef`: something that lies in the cluster, or will."""

PATIENCE = 10.0
"""Seconds for which a cluster may not answer before it is taken for gone."""

HEARTBEAT = 2.0
"""Seconds between two looks at a cluster for which we wait: Ray itself would wait for one that is gone."""

SETTINGS = {
    "RAY_task_oom_retries": str(MOST_DEATHS - 1),  # otherwise a task that needs too much memory is tried for ever
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # events of the cluster, which Ray would print to stdout
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # those of tasks that were given up with their round
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""How Ray should behave where the user does not say otherwise; it reads them when a connection is made."""

_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client of HTTP/2, which Ray speaks, says hello: the preface and empty settings, frame type 4."""


class Cluster:
    """A connection to a cluster. Failures of tasks and of the cluster arrive as errors of ours."""

    def __init__(self, ray: Any, asked: str | None) -> None:
        self.ray = ray
        self.asked = asked
        self.address: str = ray.get_runtime_context().gcs_address
        self.connection = _connection(ray)
        self.deserted = False

    @property
    def cpus(self) -> int:
        """How many tasks it can do at the same time."""
        with self._translated():
            return int(self.ray.cluster_resources().get("CPU", 0))

    def put(self, value: Any) -> Ref:
        """Lay something down for all."""
        with self._translated():
            return self.ray.put(value)

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """Wait for things and fetch them; what went wrong with one of them is not kept back until all are there."""
        found, missing = dict[Ref, Any](), list(refs)
        while missing:
            done, missing = self._wait(missing, len(missing), fetch=True)
            with self._translated():
                found |= zip(done, self.ray.get(done), strict=True)
        return [found[ref] for ref in refs]

    def first(self, refs: Sequence[Ref]) -> tuple[list[Ref], list[Ref]]:
        """Wait until something is done; what is, and what is not."""
        done, others = list[Ref](), list(refs)
        while not done:
            done, others = self._wait(others, 1, fetch=False)
        return done, others

    def _wait(self, refs: list[Ref], enough: int, fetch: bool) -> tuple[list[Ref], list[Ref]]:
        """What is done by the time enough is, or by the next look at the cluster, and the others."""
        with self._translated():
            done, others = self.ray.wait(refs, num_returns=enough, timeout=HEARTBEAT, fetch_local=fetch)
        if len(done) < enough:
            self._check()
        return done, others

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self.ray.exceptions.RayError as error:
            raise ours(self.ray.exceptions, error) from None

    def _check(self) -> None:
        """See that the cluster is still there, and that somebody in it can compute; others may join."""
        deadline = time.monotonic() + PATIENCE
        while not answers(self.address):
            if time.monotonic() > deadline:
                raise EngineError(f"the Ray cluster at {self.address} is gone")
            time.sleep(PATIENCE / 10)
        deserted = self.cpus == 0
        if deserted and not self.deserted:
            log.warning("the Ray cluster at %s has no CPU left; waiting for machines to join it", self.address)
        self.deserted = deserted


_here: Cluster | None = None
"""The connection that was made here last; the user may have closed it, or made another, in the meantime."""

_connecting = threading.Lock()


def connect(address: str | None) -> Cluster:
    """The cluster at an address, or without one a cluster on this machine.

    A process has one connection, which serves all its engines, one after another; what was started here ends with it.
    A connection that the user made is used and left alone.
    """
    with _connecting:
        return _connected(address)


def _connected(address: str | None) -> Cluster:
    global _here
    ray = _ray()
    if ray.is_initialized():
        if _here is None or _here.connection != _connection(ray):
            return _suitable(Cluster(ray, None), address)
        if address in (_here.asked, _here.address) and answers(_here.address):
            return _here
    check_address(address)
    ray.shutdown()
    start = {"address": address} if address else {"address": "local", "num_cpus": cores(), "include_dashboard": False}
    with _own_signals(), errors_only("ray"):
        try:
            ray.init(**start, log_to_driver=False, configure_logging=False)
        except (Exception, SystemExit) as error:
            what = f"no connection to the Ray cluster at {address}" if address else "Ray did not start on this machine"
            raise EngineError(f"{what}: {textwrap.shorten(str(error), 400) or type(error).__name__}") from None
    _here = Cluster(ray, address)
    return _suitable(_here, address)


def _connection(ray: Any) -> tuple[str, str]:
    """What no other connection has: the machine's part in its cluster, and the number of this process there."""
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


def answers(address: str) -> bool:
    """Whether something that speaks Ray's protocol listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=HEARTBEAT) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":  # whoever it is will not talk to us without certificates
                return True
            connection.sendall(_GREETING)
            return connection.recv(9)[3:4] == b"\x04"
    except (OSError, ValueError, OverflowError):
        return False


def _ray() -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise EngineError("engine.name=ray: needs Ray; install it with: pip install 'fedrelay[ray]'") from None
    return ray


def check_address(address: str | None) -> None:
    """Ask once whether there is a cluster: Ray itself would ask for twenty seconds and complain of each of them."""
    if address in (None, "auto"):  # what is started here need not be asked; of auto, Ray itself knows at once
        return
    ray = _ray()
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdecimal():
        raise EngineError(
            f"engine.address: must be HOST:PORT of the cluster's head node, as `ray start --head` says it, or auto for "
            f"the cluster of which this machine is part, got {address!r}"
        )
    nobody = EngineError(
        f"engine.address: no Ray cluster answers at {address}; start one with: ray start --head --port {port}"
    )
    if not answers(address):
        raise nobody
    try:
        with _silent_stderr():
            ray._raylet.GcsClient(address=address)
    except getattr(ray.exceptions, "AuthenticationError", ()):  # older versions know no tokens
        raise EngineError(
            f"engine.address: the Ray cluster at {address} asks for its token; copy ~/.ray/auth_token from its head "
            "node to this machine and set RAY_AUTH_MODE=token"
        ) from None
    except ray.exceptions.RayError:  # it speaks the protocol, but is somebody else
        raise nobody from None


def _suitable(cluster: Cluster, address: str | None) -> Cluster:
    if address not in (None, "auto", cluster.asked, cluster.address):
        raise EngineError(
            f"engine.address: this process is connected to the Ray cluster at {cluster.address}; "
            f"call ray.shutdown() before it is to use {address}"
        )
    if not answers(cluster.address):
        raise EngineError(
            f"the Ray cluster at {cluster.address}, to which this process is connected, is gone; call ray.shutdown()"
        )
    if not cluster.cpus:
        raise EngineError(f"the Ray cluster at {cluster.address} has no CPU to compute with")
    return cluster


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray sets a handler for SIGTERM; ours stays."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """What Ray writes past Python goes nowhere."""
    kept = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def ours(errors: Any, error: Exception) -> FedRelayError:
    """What a failure of Ray means."""
    while isinstance(error, errors.RayTaskError) and error.cause is not None:
        error = error.cause
    if isinstance(error, FedRelayError):
        return error
    if isinstance(error, errors.OutOfMemoryError):
        return EngineError(
            "Ray ended the same task time and again because its machine ran low on memory; "
            "use a smaller train.batch_size or engine.lanes, fewer engine.workers, or machines with more memory"
        )
    if isinstance(error, errors.WorkerCrashedError | errors.NodeDiedError):
        return EngineError(
            f"a worker process of the Ray cluster died {MOST_DEATHS} times in a row on the same task; "
            "is there enough memory?"
        )
    if isinstance(error, errors.ObjectStoreFullError | errors.OutOfDiskError):
        return EngineError(
            "a machine of the Ray cluster has no room left for data and models, neither in its object store nor on "
            "its disk; start Ray with a larger --object-store-memory"
        )
    if isinstance(error, errors.RayError):
        return EngineError(f"the Ray cluster failed: {_first_line(error)}")
    if "failed to import on the worker" in str(error):  # Ray's words for a task whose code is not there
        return EngineError("a machine of the Ray cluster cannot import fedrelay; install it on all of them")
    return EngineError(f"a worker failed: {type(error).__name__}: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
