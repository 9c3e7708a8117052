"""The connection to a Ray cluster: what is asked of an address, whose connection it is, and what failures mean."""

from __future__ import annotations

import os
import socket
import sys
import threading
from types import SimpleNamespace

import pytest

import fedrelay
from fedrelay.engines.ray import cluster as clusters
from fedrelay.engines.ray.cluster import Cluster, connect, is_ray, translate_error
from fedrelay.errors import DivergedError, EngineError


class RayError(Exception):
    pass


class Refused(RayError):
    pass


class RayDouble:
    """As much of Ray as a connection needs, and a list of what was asked of it."""

    exceptions = SimpleNamespace(RayError=RayError, AuthenticationError=Refused)

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.node = self.job = 0
        self.connected_to: str | None = None
        self.resources = {"CPU": 2.0}
        self.trouble: Exception | None = None
        self.knocks: list[str] = []
        self._raylet = SimpleNamespace(GcsClient=lambda address: self.knocks.append(address))

    def is_initialized(self):
        return self.connected_to is not None

    def init(self, address, **options):
        if self.trouble is not None:
            raise self.trouble
        assert not options["log_to_driver"]
        self.asked.append(("init", address))
        self.connected_to = "127.0.0.1:1234" if address in ("local", "auto") else address
        self.job += 1

    def shutdown(self):
        self.asked.append("shutdown")
        self.connected_to = None

    def cluster_resources(self):
        return self.resources

    def get_runtime_context(self):
        numbers = {"get_node_id": lambda: str(self.node), "get_job_id": lambda: str(self.job)}
        return SimpleNamespace(gcs_address=self.connected_to, **numbers)


@pytest.fixture
def ray(monkeypatch):
    """Ray's double, in a cluster that answers."""
    double = RayDouble()
    monkeypatch.setattr(clusters, "_last", None)
    monkeypatch.setattr(clusters, "_import_ray", lambda: double)
    monkeypatch.setattr(clusters, "is_ray", lambda address: address != "127.0.0.1:9")
    return double


@pytest.fixture
def server():
    """Somebody who listens, and says what the test lets it say."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        says = SimpleNamespace(address=f"127.0.0.1:{listening.getsockname()[1]}", answer=b"")

        def serve():
            connection, _ = listening.accept()
            with connection:
                connection.recv(100)
                connection.sendall(says.answer)

        serving = threading.Thread(target=serve, daemon=True)
        serving.start()
        yield says
        serving.join(10)  # one that has not heard yet would find nothing to listen on


@pytest.mark.parametrize(
    ("answer", "ray_it_is"),
    [(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]), True), (b"HTTP/1.1 400 Bad Request\r\n\r\n", False), (b"", False)],
    ids=["http2", "http1", "nothing"],
)
def test_who_listens_at_an_address(server, answer, ray_it_is):
    server.answer = answer
    assert is_ray(server.address) is ray_it_is


def test_behind_certificates_it_is_enough_that_somebody_listens(server, monkeypatch):
    monkeypatch.setenv("RAY_USE_TLS", "1")
    assert is_ray(server.address)


@pytest.mark.parametrize("address", ["127.0.0.1:9", "nowhere.invalid:6379", "127.0.0.1:70000"])
def test_nobody_listens(address):
    assert not is_ray(address)


@pytest.mark.parametrize("address", ["here", "ray://127.0.0.1:10001", "127.0.0.1:", ":6379", "127.0.0.1:port"])
def test_an_address_that_cannot_be(ray, address):
    with pytest.raises(
        EngineError, match=rf"engine\.address: must be HOST:PORT of .*, or auto for .*, got '{address}'$"
    ):
        connect(address)
    assert not ray.asked


def test_an_address_where_nobody_answers(ray):
    with pytest.raises(
        EngineError, match=r"^engine\.address: no Ray cluster answers at 127\.0\.0\.1:9; start one with: "
    ):
        connect("127.0.0.1:9")
    assert not ray.asked


def test_a_cluster_with_a_token(ray, capfd):
    def refuse(address):
        os.write(2, b"Unauthenticated\n")
        raise Refused(address)

    ray._raylet.GcsClient = refuse
    with pytest.raises(
        EngineError, match=r"requires a token; copy ~/\.ray/auth_token from .* set RAY_AUTH_MODE=token$"
    ):
        connect("127.0.0.1:6379")
    assert (ray.asked, capfd.readouterr().err) == ([], "")


def test_somebody_else_speaks_the_same_protocol(ray, capfd):
    def misunderstand(address):
        os.write(2, b"Received http2 header with status: 404\n")
        raise RayError(address)

    ray._raylet.GcsClient = misunderstand
    with pytest.raises(EngineError, match=r"^engine\.address: no Ray cluster answers at 127\.0\.0\.1:6379; start one"):
        connect("127.0.0.1:6379")
    assert (ray.asked, capfd.readouterr().err) == ([], "")


def test_other_versions_are_named_in_one_line(ray):
    ray.trouble = RuntimeError(
        "Version mismatch: The cluster was started with:\n    Ray: 2.9.0\nThis process:\n    Ray: 2.60.0\n"
    )
    with pytest.raises(EngineError) as error:
        connect("127.0.0.1:6379")
    assert str(error.value) == (
        "no connection to the Ray cluster at 127.0.0.1:6379: "
        "Version mismatch: The cluster was started with: Ray: 2.9.0 This process: Ray: 2.60.0"
    )


def test_a_cluster_that_does_not_start_here(ray):
    ray.trouble = ValueError()
    with pytest.raises(EngineError, match=r"^Ray did not start on this machine: ValueError$"):
        connect(None)


def test_a_cluster_without_cores(ray):
    ray.resources = {}
    with pytest.raises(EngineError, match=r"^the Ray cluster at 127\.0\.0\.1:1234 has no CPU$"):
        connect(None)


def test_one_connection_serves_all_and_is_changed_for_another_address(ray):
    first = connect(None)
    assert connect(None) is first
    assert connect("127.0.0.1:1234") is first  # the same by its address
    other = connect("127.0.0.1:6379")
    assert (other.address, connect("127.0.0.1:6379")) == ("127.0.0.1:6379", other)
    assert ray.asked == ["shutdown", ("init", "local"), "shutdown", ("init", "127.0.0.1:6379")]
    assert ray.knocks == ["127.0.0.1:6379"]


@pytest.mark.parametrize("theirs", ["127.0.0.1:6379", "127.0.0.1:7777"], ids=["the same cluster", "another"])
def test_a_connection_of_the_users_own_is_used_and_left_alone(ray, theirs):
    ours_before = connect("127.0.0.1:6379")
    ray.shutdown()
    ray.init(theirs, log_to_driver=False)
    del ray.asked[:]
    found = connect(None)
    assert found is not ours_before
    assert [connect(address).address for address in (None, "auto", theirs)] == [theirs] * 3
    with pytest.raises(EngineError, match=r"connected to the Ray cluster at .*; call ray\.shutdown\(\) before using"):
        connect("127.0.0.1:1")
    assert not ray.asked


def test_a_connection_of_the_users_own_to_a_cluster_that_is_gone(ray):
    ray.init("127.0.0.1:9", log_to_driver=False)
    with pytest.raises(EngineError, match=r"127\.0\.0\.1:9 that this process is connected to is gone; call ray\.shutd"):
        connect(None)


def test_without_ray_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError) as error:
        connect(None)
    assert str(error.value) == "engine.name=ray: needs Ray; install it with: pip install 'fedrelay[ray]'"


def test_options_of_ray_unless_the_user_sets_them(monkeypatch):
    for name in clusters.SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "1")
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    clusters._import_ray()
    told = dict(os.environ)
    assert (told["RAY_task_oom_retries"], told["RAY_USAGE_STATS_ENABLED"]) == ("2", "1")


class Waiting(RayDouble):
    """Things get ready in the order given, one look each."""

    def __init__(self, *ready: list[str]) -> None:
        super().__init__()
        self.ready = list(ready)
        self.connected_to = "127.0.0.1:6379"

    def wait(self, refs, num_returns, timeout, fetch_local):
        done = self.ready.pop(0)
        self.asked.append((num_returns, fetch_local))
        return done, [ref for ref in refs if ref not in done]

    def get(self, refs):
        if "bad" in refs:
            raise RayError("no luck")
        return [ref.upper() for ref in refs]


def test_what_was_waited_for_comes_in_the_order_asked(monkeypatch):
    monkeypatch.setattr(clusters, "is_ray", lambda address: True)
    ray = Waiting(["c"], [], ["b", "a"])
    assert Cluster(ray, None).get(["a", "b", "c"]) == ["A", "B", "C"]
    assert ray.asked == [(3, True), (2, True), (2, True)]


def test_a_failure_is_not_kept_back_until_all_are_there(monkeypatch):
    monkeypatch.setattr(clusters, "is_ray", lambda address: True)
    monkeypatch.setattr(clusters, "translate_error", lambda errors, error: EngineError(f"in our words: {error}"))
    with pytest.raises(EngineError, match=r"^in our words: no luck$"):
        Cluster(Waiting(["bad"]), None).get(["slow", "bad"])


def test_the_first_that_is_done(monkeypatch):
    monkeypatch.setattr(clusters, "is_ray", lambda address: True)
    ray = Waiting([], ["b"])
    assert Cluster(ray, None).wait_for_first(["a", "b", "c"]) == (["b"], ["a", "c"])
    assert ray.asked == [(1, False), (1, False)]


def test_a_cluster_that_is_gone_while_waiting(monkeypatch):
    monkeypatch.setattr(clusters, "is_ray", lambda address: False)
    monkeypatch.setattr(clusters, "RESPONSE_TIMEOUT", 0.01)
    with pytest.raises(EngineError, match=r"^the Ray cluster at 127\.0\.0\.1:6379 is gone$"):
        Cluster(Waiting([]), None).wait_for_first(["a"])


def test_a_cluster_without_machines_is_waited_for_and_said_so_once(monkeypatch, caplog):
    monkeypatch.setattr(clusters, "is_ray", lambda address: True)
    ray = Waiting([], [], ["a"])
    ray.resources = {}
    assert Cluster(ray, None).wait_for_first(["a"]) == (["a"], [])
    assert [record.message for record in caplog.records] == [
        "the Ray cluster at 127.0.0.1:6379 has no CPU left; waiting for machines to join it"
    ]


def failures():
    """What Ray says, and what is made of it."""
    from ray import exceptions as theirs

    def task(cause):
        return theirs.RayTaskError("run_work_item", "", cause)

    crash, gone = (
        theirs.WorkerCrashedError(),
        r"^a worker process of the Ray cluster died 3 times in a row on the same task",
    )
    missing = RuntimeError("The remote function failed to import on the worker. This may be because …:\n\nTraceback")
    return {
        "worker": (crash, gone),
        "worker of the task before": (task(crash), gone),
        "memory": (
            theirs.OutOfMemoryError("1 worker(s) were killed\n" * 30),
            r"ran low on memory; use a smaller train\.b",
        ),
        "store": (
            theirs.ObjectStoreFullError("full"),
            r"no room left .*; start Ray with a larger --object-store-memory$",
        ),
        "disk": (theirs.OutOfDiskError("full"), r"no room left"),
        "other": (theirs.RaySystemError("odd\nand so on"), r"^the Ray cluster failed: [^\n]+$"),
        "code": (task(missing), r"^a machine of the Ray cluster cannot import fedrelay; install it on all of them$"),
        "task": (task(KeyError("x")), r"^a worker failed: KeyError: 'x'$"),
        "ours": (task(EngineError("round 1: no luck")), r"^round 1: no luck$"),
    }


KINDS = ["worker", "worker of the task before", "memory", "store", "disk", "other", "code", "task", "ours"]


@pytest.mark.parametrize("kind", KINDS)
def test_failures_of_ray_in_one_line(kind):
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed", exc_type=ImportError)
    error, message = failures()[kind]
    found = translate_error(ray.exceptions, error)
    assert isinstance(found, EngineError)
    with pytest.raises(EngineError, match=message):
        raise found
    assert "\n" not in str(found)


def test_a_model_that_diverged_stays_what_it_is():
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed", exc_type=ImportError)
    error = DivergedError("round 1: …")
    assert translate_error(ray.exceptions, ray.exceptions.RayTaskError("run_work_item", "", error)) is error


def test_an_address_is_asked_before_anything_is_written(ray, tmp_path):
    with pytest.raises(EngineError, match=r"^engine\.address: no Ray cluster answers at 127\.0\.0\.1:9; .*--port 9$"):
        fedrelay.run("fedavg", data="digits", engine={"name": "ray", "address": "127.0.0.1:9"}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_cluster_that_fails_while_it_is_looked_at():
    ray = Waiting()
    ray.cluster_resources = lambda: (_ for _ in ()).throw(RayError("gone"))
    ray.exceptions = exceptions_of_ray()
    with pytest.raises(EngineError, match=r"^the Ray cluster failed: gone$"):
        Cluster(ray, None).cpus  # noqa: B018


def exceptions_of_ray():
    """Kinds of failures, all of them the same here."""
    kinds = ("RayTaskError", "OutOfMemoryError", "WorkerCrashedError", "NodeDiedError", "ObjectStoreFullError")
    others = {name: type(name, (RayError,), {}) for name in (*kinds, "OutOfDiskError")}
    return SimpleNamespace(RayError=RayError, **others)
