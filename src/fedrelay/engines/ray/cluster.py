"""The Ray cluster that this process is connected to: one at a time, started here or found at an address.

Ray prints a lot, waits for minutes for a cluster that does not exist, replaces the SIGTERM handler, and ends the
process a minute after its cluster is gone. Here it is kept quiet, and a missing cluster gives one clear message.
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

from fedrelay.engines.local.executor import MAX_DEATHS, RAY_CLUSTERS
from fedrelay.engines.local.simulation_engine import cores
from fedrelay.engines.quiet_logging import errors_only
from fedrelay.errors import EngineError, FedRelayError

log = logging.getLogger(__name__)

Ref = Any
"""A `ray.ObjectRef`: an object in the cluster, or a future one."""

RESPONSE_TIMEOUT = 10.0
"""Seconds without a response after which a cluster counts as gone."""

CHECK_INTERVAL = 2.0
"""Seconds between two checks of the cluster while waiting for it: Ray itself would wait for one that is gone."""

SETTINGS = {
    "RAY_task_oom_retries": str(MAX_DEATHS - 1),  # otherwise Ray retries a task that needs too much memory forever
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # cluster events, which Ray would print to stdout
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # errors of tasks that were abandoned with their round
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Environment variables for Ray, unless the user has set them. Ray reads them when it connects."""

_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The start of an HTTP/2 connection, Ray's protocol: the preface and an empty settings frame (type 4)."""


class Cluster:
    """A connection to a cluster. Failures of tasks and of the cluster are raised as FedRelayErrors."""

    def __init__(self, ray: Any, requested: str | None) -> None:
        self.ray = ray
        self.requested = requested
        self.address: str = ray.get_runtime_context().gcs_address
        self.connection = _connection(ray)
        self.without_cpus = False
        RAY_CLUSTERS.add(self.address)

    @property
    def cpus(self) -> int:
        """The number of tasks that can run at the same time."""
        with self._translated():
            return int(self.ray.cluster_resources().get("CPU", 0))

    def put(self, value: Any) -> Ref:
        """Put a value into the object store."""
        with self._translated():
            return self.ray.put(value)

    def get(self, refs: Sequence[Ref]) -> list[Any]:
        """Wait for values and fetch them. An error is raised as soon as one of them fails."""
        found, missing = dict[Ref, Any](), list(refs)
        while missing:
            done, missing = self._wait(missing, len(missing), fetch=True)
            with self._translated():
                found |= zip(done, self.ray.get(done), strict=True)
        return [found[ref] for ref in refs]

    def wait_for_first(self, refs: Sequence[Ref]) -> tuple[list[Ref], list[Ref]]:
        """Wait until at least one value is there; returns (those that are, the others)."""
        done, others = list[Ref](), list(refs)
        while not done:
            done, others = self._wait(others, 1, fetch=False)
        return done, others

    def _wait(self, refs: list[Ref], enough: int, fetch: bool) -> tuple[list[Ref], list[Ref]]:
        """Wait until `enough` values are there, or until the next check; returns (those that are, the others)."""
        with self._translated():
            done, others = self.ray.wait(refs, num_returns=enough, timeout=CHECK_INTERVAL, fetch_local=fetch)
        if len(done) < enough:
            self._check()
        return done, others

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self.ray.exceptions.RayError as error:
            raise translate_error(self.ray.exceptions, error) from None

    def _check(self) -> None:
        """Raise an error if the cluster is gone; warn if it has no CPU left (machines may join it)."""
        deadline = time.monotonic() + RESPONSE_TIMEOUT
        while not is_ray(self.address):
            if time.monotonic() > deadline:
                raise EngineError(f"the Ray cluster at {self.address} is gone")
            time.sleep(RESPONSE_TIMEOUT / 10)
        without_cpus = self.cpus == 0
        if without_cpus and not self.without_cpus:
            log.warning("the Ray cluster at %s has no CPU left; waiting for machines to join it", self.address)
        self.without_cpus = without_cpus


_last: Cluster | None = None
"""The last connection made here. Since then, the user may have closed it or made another one."""

_connecting = threading.Lock()


def connect(address: str | None) -> Cluster:
    """Connect to the cluster at an address, or start one on this machine if there is no address.

    A process has one connection, which all its engines use, one after another. A cluster that was started here ends
    with the process. A connection that the user made is used and not closed.
    """
    with _connecting:
        return _connect(address)


def _connect(address: str | None) -> Cluster:
    global _last
    ray = _import_ray()
    if ray.is_initialized():
        if _last is None or _last.connection != _connection(ray):
            return _checked(Cluster(ray, None), address)
        if address in (_last.requested, _last.address) and is_ray(_last.address):
            return _last
    check_address(address)
    ray.shutdown()
    start = {"address": address} if address else {"address": "local", "num_cpus": cores(), "include_dashboard": False}
    with _keep_sigterm_handler(), errors_only("ray"):
        try:
            ray.init(**start, log_to_driver=False, configure_logging=False)
        except (Exception, SystemExit) as error:
            what = f"no connection to the Ray cluster at {address}" if address else "Ray did not start on this machine"
            raise EngineError(f"{what}: {textwrap.shorten(str(error), 400) or type(error).__name__}") from None
    _last = Cluster(ray, address)
    return _checked(_last, address)


def _connection(ray: Any) -> tuple[str, str]:
    """Identifies a connection: the ids of the machine and of this process in the cluster."""
    context = ray.get_runtime_context()
    return context.get_node_id(), context.get_job_id()


def is_ray(address: str) -> bool:
    """Whether something that speaks Ray's protocol listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CHECK_INTERVAL) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":  # without certificates we cannot ask further
                return True
            connection.sendall(_HTTP2_PREFACE)
            return connection.recv(9)[3:4] == b"\x04"
    except (OSError, ValueError, OverflowError):
        return False


def _import_ray() -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise EngineError("engine.name=ray: needs Ray; install it with: pip install 'fedrelay[ray]'") from None
    return ray


def check_address(address: str | None) -> None:
    """Raise an EngineError if there is no cluster: Ray itself would retry for twenty seconds and print each failure."""
    if address in (None, "auto"):  # a cluster started here needs no check; for auto, Ray itself knows at once
        return
    ray = _import_ray()
    host, _, port = address.rpartition(":")
    if not host or "/" in address or not port.isdecimal():
        raise EngineError(
            f"engine.address: must be HOST:PORT of the cluster's head node, as printed by `ray start --head`, or "
            f"auto for the cluster that this machine belongs to, got {address!r}"
        )
    not_found = EngineError(
        f"engine.address: no Ray cluster answers at {address}; start one with: ray start --head --port {port}"
    )
    if not is_ray(address):
        raise not_found
    try:
        with _silent_stderr():
            ray._raylet.GcsClient(address=address)
    except getattr(ray.exceptions, "AuthenticationError", ()):  # older versions have no tokens
        raise EngineError(
            f"engine.address: the Ray cluster at {address} requires a token; copy ~/.ray/auth_token from its head "
            "node to this machine and set RAY_AUTH_MODE=token"
        ) from None
    except ray.exceptions.RayError:  # it speaks HTTP/2, but is not Ray
        raise not_found from None


def _checked(cluster: Cluster, address: str | None) -> Cluster:
    if address not in (None, "auto", cluster.requested, cluster.address):
        raise EngineError(
            f"engine.address: this process is connected to the Ray cluster at {cluster.address}; "
            f"call ray.shutdown() before using {address}"
        )
    if not is_ray(cluster.address):
        raise EngineError(
            f"the Ray cluster at {cluster.address} that this process is connected to is gone; call ray.shutdown()"
        )
    if not cluster.cpus:
        raise EngineError(f"the Ray cluster at {cluster.address} has no CPU")
    return cluster


@contextmanager
def _keep_sigterm_handler() -> Iterator[None]:
    """Restore our SIGTERM handler, which Ray replaces."""
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
    """Discard what Ray's native code writes to stderr."""
    saved = os.dup(2)
    try:
        with Path(os.devnull).open("wb") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def translate_error(errors: Any, error: Exception) -> FedRelayError:
    """The FedRelayError for a failure of Ray; `errors` is `ray.exceptions`."""
    while isinstance(error, errors.RayTaskError) and error.cause is not None:
        error = error.cause
    if isinstance(error, FedRelayError):
        return error
    if isinstance(error, errors.OutOfMemoryError):
        return EngineError(
            "Ray stopped the same task several times because its machine ran low on memory; "
            "use a smaller train.batch_size or engine.lanes, fewer engine.workers, or machines with more memory"
        )
    if isinstance(error, errors.WorkerCrashedError | errors.NodeDiedError):
        return EngineError(
            f"a worker process of the Ray cluster died {MAX_DEATHS} times in a row on the same task; "
            "is there enough memory?"
        )
    if isinstance(error, errors.ObjectStoreFullError | errors.OutOfDiskError):
        return EngineError(
            "a machine of the Ray cluster has no room left for data and models, neither in its object store nor on "
            "its disk; start Ray with a larger --object-store-memory"
        )
    if isinstance(error, errors.RayError):
        return EngineError(f"the Ray cluster failed: {_first_line(error)}")
    if "failed to import on the worker" in str(error):  # Ray's message for missing code
        return EngineError("a machine of the Ray cluster cannot import fedrelay; install it on all of them")
    return EngineError(f"a worker failed: {type(error).__name__}: {_first_line(error)}")


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
