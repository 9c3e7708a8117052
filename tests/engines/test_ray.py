"""The Ray engine on a real cluster of this machine: the same bits as the local engine, whatever is lost on the way."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import fedrelay
from fedrelay.engines import cluster as clusters
from fedrelay.engines.base import Departure
from fedrelay.engines.cluster import connect, ours
from fedrelay.engines.crew import InlineCrew
from fedrelay.engines.local import LocalEngine
from fedrelay.engines.ray import RayCrew, start_ray
from fedrelay.errors import DivergedError, EngineError, SpecError
from fedrelay.local.terms.control import Control
from fedrelay.local.trainer import Job
from fedrelay.models.layout import Layout
from fedrelay.routes.plan import RoundPlan, Route
from fedrelay.runner import Silent
from fedrelay.spec import Train

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed", exc_type=ImportError)

PLAN = RoundPlan(1, (Route((0, 1, 2, 3)), Route((4,)), Route((5, 0)), Route((2, 2, 2))), tapped=((0, 2), (3, 0)))


@pytest.fixture(scope="module")
def head():
    """The head of a cluster, with one core, and one more node; all tests of this file share them."""
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    # A node that does not answer is taken for lost after seconds instead of many.
    notice = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    arguments = {"num_cpus": 1, "include_dashboard": False, "_system_config": notice}
    found = Cluster(initialize_head=True, head_node_args=arguments)
    found.add_node(num_cpus=1)
    yield found
    ray.shutdown()
    found.shutdown()


@pytest.fixture
def cluster(head):
    return connect(head.address)


def job_of(federation, module, lanes=1, **train):
    terms = (Control(),)
    return Job(module, Layout.of(module), federation, Train(**{"batch_size": 2, **train}), terms, 3, lanes)


def outcome(engine, plan=PLAN, rounds=2):
    """All tensors and reports of a few rounds, and what the clients keep afterwards."""
    found, weights = [], engine.job.layout.flatten(engine.job.module)
    for _ in range(rounds):
        for arrival in engine.travel(plan, Departure(weights)):
            tensors = [arrival.weights, *arrival.baggage.values(), *arrival.sightings.values()]
            found.append((arrival.clients, arrival.hops, [tensor.tolist() for tensor in tensors]))
            weights = arrival.weights.clone()
        engine.keep()
    kept = {client: {name: t.tolist() for name, t in engine.keepsakes.get(client).items()} for client in range(6)}
    assert any(kept.values())
    return found, kept, str(engine.evaluate(weights))


def local(job):
    return LocalEngine(job, InlineCrew(job))


APART = RoundPlan(1, (Route((0, 1, 0)), Route((2, 3)), Route((4, 4, 5))))
"""Routes that share nobody, so that each goes its way without waiting for others."""


@pytest.mark.parametrize("plan", [PLAN, APART], ids=["waves", "apart"])
@pytest.mark.parametrize(("lanes", "workers", "leg"), [(1, 0, 1), (2, 1, 2)])
def test_the_same_bits_as_on_one_machine(toy, linear, cluster, plan, lanes, workers, leg):
    job = job_of(toy, linear, lanes)
    crew = RayCrew(job, cluster, workers)
    crew.longest_leg = leg
    assert outcome(LocalEngine(job, crew), plan) == outcome(local(job), plan)


SMALL_RUN = {"data": "digits", "clients": 20, "alpha": 0, "rounds": 2, "fraction": 0.3, "batch_size": 8}


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("fedseq", {}),
        ("fedavg", {"model": "cnn-s"}),
        ("spfl+scaffold", {"fraction": 0.2}),
        ("fedseqinter", {"rounds": 3}),
        ("fedseq", {"grouping": {"profile": "clf", "assign": "kmeans"}}),
        ("fedavg-first+fedseq", {"rounds": 3, "warmup": {"rounds": 1}}),
        (
            "fedseq+scaffold",
            {
                "faults": [{"what": "nan", "rate": 0.2}, {"what": "dropout", "rate": 0.2}],
                "guard": {"on_divergence": "skip", "norm": 2.0},
                "eval": {"forgetting": 1},
            },
        ),
    ],
    ids=["fedseq", "fedavg", "waves", "slots", "profile", "phases", "faults"],
)
def test_whole_runs_end_with_the_same_bits(head, method, more):
    settings = {**SMALL_RUN, **more}
    here = fedrelay.run(method, **settings, engine={"workers": 1})
    there = fedrelay.run(method, **settings, engine={"name": "ray", "address": head.address})
    assert torch.equal(here.weights, there.weights)
    assert (here.history, here.mishaps) == (there.history, there.mishaps)


class Mortal(nn.Module):
    """A model large enough to lie in the object store, which leaves a note where it is trained and may die of it."""

    def __init__(self, notes: Path, deadly: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4000), nn.Tanh(), nn.Linear(4000, 3))
        self.notes, self.deadly, self.home = str(notes), deadly, os.getpid()

    def forward(self, x):
        if self.training and os.getpid() != self.home:
            import ray

            time.sleep(0.02)
            first = not any(Path(self.notes).iterdir())
            (Path(self.notes) / ray.get_runtime_context().get_node_id()).touch()
            if self.deadly and first:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.layers(x)


def test_a_hop_whose_worker_died_is_done_again(toy, cluster, tmp_path):
    job = job_of(toy, Mortal(tmp_path, deadly=True))
    found = outcome(LocalEngine(job, RayCrew(job, cluster)), APART, 1)
    assert list(tmp_path.iterdir())
    assert found == outcome(local(job), APART, 1)


def test_a_node_is_lost_in_the_middle(toy, head, cluster, tmp_path):
    node = next(iter(head.worker_nodes), None) or head.add_node(num_cpus=1)
    plan = RoundPlan(1, (Route((0, 1, 2) * 4), Route((3, 4, 5) * 4)))
    job = job_of(toy, Mortal(tmp_path, deadly=False))
    crew = RayCrew(job, cluster)

    def lose() -> None:
        while not (tmp_path / node.node_id).exists():
            time.sleep(0.01)
        time.sleep(0.5)
        head.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=lose)
    killer.start()
    found = outcome(LocalEngine(job, crew), plan, 1)
    assert not killer.is_alive()
    killer.join()
    assert found == outcome(local(job), plan, 1)
    assert cluster.cpus == 1


def test_deaths_of_workers_in_a_row_end_the_run():
    crash = ray.exceptions.WorkerCrashedError()  # real ones take a new worker each
    for error in (crash, ray.exceptions.RayTaskError("run_task", "", crash)):
        assert "died 3 times in a row on the same task; is there enough memory?" in str(ours(ray.exceptions, error))


class Broken(nn.Linear):
    """Raises while training."""

    def forward(self, x):
        if self.training:
            raise ValueError("no such luck")
        return super().forward(x)


def test_failures_arrive_as_they_are(toy, linear, cluster):
    job = job_of(toy, Broken(4, 3))
    with pytest.raises(EngineError, match=r"^round 1: training on client \d failed: ValueError: no such luck$"):
        outcome(LocalEngine(job, RayCrew(job, cluster)))
    wild = job_of(toy, linear, lr=1e38)
    with pytest.raises(DivergedError, match=r"^round 1: the model left client \d \(route \d, hop \d\) with "):
        outcome(LocalEngine(wild, RayCrew(wild, cluster)))


def test_the_first_ctrl_c_finishes_the_round(head, tmp_path):
    class PressCtrlC(Silent):
        def round_done(self, round, row):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGTERM)
    settings = {**SMALL_RUN, "engine": {"name": "ray", "address": head.address}, "out": tmp_path / "run"}
    with pytest.raises(fedrelay.Interrupted) as stop:
        fedrelay.run("fedseq", **settings, observer=PressCtrlC())
    assert stop.value.result.rounds == 1
    assert signal.getsignal(signal.SIGTERM) is before
    resumed = fedrelay.resume(tmp_path / "run")
    assert torch.equal(resumed.weights, fedrelay.run("fedseq", **SMALL_RUN).weights)


def test_one_connection_for_all_engines(toy, linear, head):
    job = job_of(toy, linear)
    first, second = (start_ray(job, 0, head.address) for _ in range(2))
    first.close()
    assert first.crew.cluster is second.crew.cluster
    assert outcome(second) == outcome(local(job))


def test_a_connection_of_the_users_own_is_used(cluster, monkeypatch):
    monkeypatch.setattr(clusters, "_here", None)
    for address in (None, "auto", cluster.address):
        assert connect(address).address == cluster.address
    with pytest.raises(EngineError, match=r"connected to the Ray cluster at .*; call ray\.shutdown\(\) before it is"):
        connect("127.0.0.1:9")


@pytest.mark.parametrize("address", ["127.0.0.1:9", "nowhere.invalid:6379"])
def test_an_address_where_nobody_answers(cluster, address):
    began = time.monotonic()
    with pytest.raises(EngineError, match=rf"engine\.address: no Ray cluster answers at {address}; start one"):
        connect(address)
    assert time.monotonic() - began < 10
    assert connect(cluster.asked) is cluster


@pytest.mark.parametrize("address", ["here", "ray://127.0.0.1:10001", "127.0.0.1:", ":6379"])
def test_an_address_that_cannot_be(address):
    with pytest.raises(EngineError, match=r"engine\.address: must be HOST:PORT of the cluster's head node"):
        connect(address)


def test_without_ray_the_message_names_the_extra(toy, linear, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        EngineError, match=r"engine\.name=ray: needs Ray; install it with: pip install 'fedrelay\[ray\]'"
    ):
        start_ray(job_of(toy, linear), 0, None)


def test_what_it_cannot_do_is_refused(toy, linear):
    with pytest.raises(SpecError, match=r"train\.device: the ray engine computes on cpu, got 'cuda'"):
        start_ray(job_of(toy, linear, device="cuda"), 0, None)
    with pytest.raises(SpecError, match=r"engine\.address: has no effect with the local engine"):
        fedrelay.run("fedavg", engine={"address": "127.0.0.1:6379"})


def test_a_cluster_that_is_gone_ends_the_run_with_advice(head, tmp_path, monkeypatch):
    """The last test of the file: nothing is left afterwards."""
    monkeypatch.setattr(clusters, "PATIENCE", 1.0)
    monkeypatch.setattr(clusters, "HEARTBEAT", 0.5)

    class Kill(Silent):
        def round_done(self, round, row):
            for _, process in head.head_node.live_processes():
                process.kill()

    settings = {**SMALL_RUN, "engine": {"name": "ray", "address": head.address}, "out": tmp_path / "run"}
    with pytest.raises(EngineError, match=r"Ray cluster.*; continue from the last checkpoint with: fedrelay resume "):
        fedrelay.run("fedseq", **settings, observer=Kill())
