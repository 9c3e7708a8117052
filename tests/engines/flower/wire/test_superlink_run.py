"""Which run is ours: a SuperLink gives the next run to any server that asks."""

# ruff: noqa: N802  # the methods of stand-ins are called what Flower calls them

from __future__ import annotations

from types import SimpleNamespace

import httpx
import pytest

pytest.importorskip("flwr", reason="the extra 'flower' is not installed")

from flwr.app import Message as FlowerMessage
from tests.engines.flower.wire.stand_ins import plain_message, status

from fedrelay.engines.flower.wire import superlink_run
from fedrelay.engines.flower.wire.flower_messages import to_flower
from fedrelay.engines.flower.wire.superlink_run import RunAlreadyTaken, SuperLinkRun


class FakeSuperLink:
    """Starts run 7, and gives away the runs in `waiting`, oldest first."""

    def __init__(self, waiting=(), failure=None):
        self.waiting, self.failure, self.log = list(waiting), failure, []

    def made(self, kind, address, authority, component, *more):
        token = getattr(more[-1], "_token", "") if more else ""
        return FakeClient(self, token)


class FakeClient:
    def __init__(self, superlink, token=""):
        self.superlink, self.token = superlink, token

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Nothing to do."""

    def StartRun(self, request):
        self.superlink.log.append("start 7")
        return SimpleNamespace(run_id=7)

    def StopRun(self, request):
        self.superlink.log.append(f"stop {request.run_id}")

    def ListRuns(self, request):
        runs = self.superlink.runs.items()
        return SimpleNamespace(run_dict={run: SimpleNamespace(status=SimpleNamespace(status=now)) for run, now in runs})

    def AcquireTask(self, request):
        if self.superlink.failure is not None:
            raise self.superlink.failure
        run = self.superlink.waiting.pop(0) if self.superlink.waiting else 0
        return SimpleNamespace(task=SimpleNamespace(run_id=run), token=f"token {run}" if run else "")

    def PullTaskInput(self, request):
        self.superlink.log.append(f"begin with {self.token}")
        return SimpleNamespace(task_id=70, context=SimpleNamespace(node_id=1))

    def PushTaskOutput(self, request):
        self.superlink.log.append(f"{request.sub_status} with {self.token}")


@pytest.fixture
def opened(monkeypatch):
    sessions = []

    def make(found):
        monkeypatch.setattr(superlink_run, "client", found.made)
        monkeypatch.setattr(superlink_run, "control", lambda address, authority, secret: FakeClient(found))
        sessions.append(SuperLinkRun("link:1", b"", b"secret"))
        return sessions[-1]

    yield make
    for each in sessions:
        each.over.set()


def test_another_run_that_waits_is_ended(opened, caplog):
    found = FakeSuperLink(waiting=[5, 7])
    assert opened(found).run == 7
    assert found.log == ["start 7", "failed with token 5", "begin with token 7"]
    assert "had another run waiting" in caplog.text


def test_a_run_that_another_server_took_is_noticed(opened):
    found = FakeSuperLink(waiting=[5])
    with pytest.raises(RunAlreadyTaken):
        opened(found)
    assert found.log == ["start 7", "failed with token 5"]


def test_a_run_that_cannot_be_claimed_is_not_left_behind(opened):
    found = FakeSuperLink(failure=status(401))
    with pytest.raises(httpx.HTTPStatusError):
        opened(found)
    assert found.log == ["start 7", "stop 7"]


def test_other_runs_under_way_are_counted(opened):
    found = FakeSuperLink(waiting=[7])
    found.runs = {3: "finished", 4: "running", 5: "starting", 6: "pending", 7: "running"}
    assert opened(found).other_runs() == 2


def test_messages_name_their_run_themselves(opened):
    """Nothing is taken from what Flower keeps for the whole process: there may be several sessions."""
    message = opened(FakeSuperLink(waiting=[7])).message(to_flower(plain_message()), 5, 6.0)
    about = message.metadata
    assert isinstance(message, FlowerMessage)
    assert (about.run_id, about.src_node_id, about.dst_node_id, about.src_task_id, about.ttl) == (7, 1, 5, 70, 6.0)
