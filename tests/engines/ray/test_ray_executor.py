"""The Ray engine on a real cluster of this machine: the same bits as the local engine, whatever is lost on the way."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import nn

import fedrelay
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.executor import RAY_CLUSTERS, InlineExecutor
from fedrelay.engines.local.simulation_engine import SimulationEngine
from fedrelay.engines.ray import cluster as clusters
from fedrelay.engines.ray.cluster import connect
from fedrelay.engines.ray.ray_executor import RayExecutor, start_ray
from fedrelay.engines.ray.remote_work import run_work_item
from fedrelay.errors import DivergedError, EngineError, SpecError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.terms.control_variates import ControlVariates
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.execution_overlay import ExecutionOverlay
from fedrelay.routes.plan import RoundPlan, Route
from fedrelay.runtime.callback import Callback

ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed", exc_type=ImportError)

PLAN = RoundPlan(1, (Route((0, 1, 2, 3)), Route((4,)), Route((5, 0)), Route((2, 2, 2))))
OVERLAY = ExecutionOverlay(taps=((0, 2), (3, 0)))


@pytest.fixture(scope="module")
def head():
    """The head of a cluster, with one core, and one more node; all tests of this file share them."""
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    # A node that does not answer is taken for lost after seconds instead of many.
    notice = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
    arguments = {"num_cpus": 1, "include_dashboard": False, "_system_config": notice}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_task_oom_retry_delay_base_ms", "10")
        found = Cluster(initialize_head=True, head_node_args=arguments)
        found.add_node(num_cpus=1)
        yield found
        ray.shutdown()
        found.shutdown()


@pytest.fixture
def cluster(head):
    return connect(head.address)


def job_of(federation, module, lanes=1, **train):
    terms = (ControlVariates(),)
    return TrainingJob(
        module, FlatLayout.of(module), federation, TrainSettings(**{"batch_size": 2, **train}), terms, 3, lanes
    )


def outcome(engine, plan=PLAN, rounds=2):
    """All tensors and reports of a few rounds, and what the clients keep afterwards."""
    found, weights = [], engine.job.layout.flatten(engine.job.module)
    for _ in range(rounds):
        for arrival in engine.run_round(plan, OVERLAY if plan is PLAN else ExecutionOverlay(), RoundInputs(weights)):
            tensors = [arrival.weights, *arrival.payload.values(), *arrival.received_models.values()]
            found.append((arrival.clients, arrival.hops, [tensor.tolist() for tensor in tensors]))
            weights = arrival.weights.clone()
        engine.commit_client_state()
    kept = {client: {name: t.tolist() for name, t in engine.client_states.get(client).items()} for client in range(6)}
    assert any(kept.values())
    return found, kept, str(engine.evaluate(weights))


def local(job):
    return SimulationEngine(job, InlineExecutor(job))


APART = RoundPlan(1, (Route((0, 1, 0)), Route((2, 3)), Route((4, 4, 5))))
"""Routes without common clients, so that none waits for another."""


ORDERED = RoundPlan(1, (Route((0, 1, 2), order=(2, 2, 2)), Route((3,), order=(0,)), Route((2, 0), order=(1, 1))))
"""Routes that share clients, where it is known whose model comes first."""


@pytest.mark.parametrize("plan", [PLAN, APART, ORDERED], ids=["waves", "apart", "ordered"])
@pytest.mark.parametrize(("lanes", "workers", "leg"), [(1, 0, 1), (2, 1, 2)])
def test_the_same_bits_as_on_one_machine(toy, linear, cluster, plan, lanes, workers, leg):
    job = job_of(toy, linear, lanes)
    executor = RayExecutor(job, cluster, workers)
    executor.max_waves = leg
    assert outcome(SimulationEngine(job, executor), plan) == outcome(local(job), plan)


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
            "fedseq",
            {"optimizer": "adam", "optimizer_state": "payload", "chain_schedule": {"name": "linear", "end": 0.5}},
        ),
        (
            "fedseq+scaffold",
            {
                "faults": [{"what": "nan", "rate": 0.2}, {"what": "dropout", "rate": 0.2}],
                "guard": {"on_divergence": "skip", "norm": 2.0},
                "eval": {"forgetting": 1},
            },
        ),
    ],
    ids=["fedseq", "fedavg", "waves", "slots", "profile", "phases", "optimizer", "faults"],
)
def test_whole_runs_end_with_the_same_bits(head, method, more):
    settings = {**SMALL_RUN, **more}
    here = fedrelay.run(method, **settings, engine={"workers": 1})
    there = fedrelay.run(method, **settings, engine={"name": "ray", "address": head.address})
    assert torch.equal(here.weights, there.weights)
    assert (here.history, here.fault_events) == (there.history, there.fault_events)


def test_frozen_parameters_are_part_of_the_job(toy, head, partly_frozen, tmp_path):
    settings = {"data": toy, "model": partly_frozen, "rounds": 2, "fraction": 1.0, "batch_size": 2}
    here = fedrelay.run("fedseq", workers=1, out=tmp_path / "here", **settings)
    there = fedrelay.run("fedseq", engine={"name": "ray", "address": head.address}, out=tmp_path / "there", **settings)
    assert there.weights_sha256 == here.weights_sha256
    assert all(torch.equal(there.model[name], each) for name, each in here.model.items())
    ledgers = [(tmp_path / place / "ledger.jsonl").read_text() for place in ("here", "there")]
    assert ledgers[0] == ledgers[1]


class Staged(nn.Module):
    """A model large enough for the object store. At every hop it notes the client and the node, then plays."""

    def __init__(self, notes: Path, play: Callable[[Notes, int, str], None]) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4000), nn.Tanh(), nn.Linear(4000, 3))
        self.notes, self.play, self.home = Notes(notes), play, os.getpid()

    def forward(self, x):
        if self.training and os.getpid() != self.home:
            client, node = int(x[0, 0]), str(ray.get_runtime_context().get_node_id())
            self.notes.add(client, node)
            self.play(self.notes, client, node)
        return self.layers(x)


class Notes:
    """Which client trained on which node, in order, in a file that all processes see."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        Path(path).touch()

    def add(self, client: int, node: str) -> None:
        with Path(self.path).open("a") as file:
            file.write(f"{client} {node}\n")

    def all(self) -> list[tuple[int, str]]:
        lines = dict.fromkeys(Path(self.path).read_text().splitlines())  # a hop has several steps
        return [(int(line.split()[0]), line.split()[1]) for line in lines]

    def wait(self, happened: Callable[[list[tuple[int, str]]], bool]) -> None:
        deadline = time.monotonic() + 60  # only used if something is wrong
        while not happened(self.all()):
            assert time.monotonic() < deadline, "this never happened"
            time.sleep(0.02)


@pytest.fixture
def numbered():
    """Six clients whose samples say whose they are."""
    x = torch.arange(6.0).repeat_interleave(4)[:, None] * torch.tensor([1.0, 0.1, 0.1, 0.1])
    y = torch.arange(24) % 3
    return fedrelay.federate(x, y, x, y, client_ids=torch.arange(6).repeat_interleave(4), classes=3)


def test_a_hop_whose_worker_died_is_done_again(numbered, cluster, tmp_path):
    marks = tmp_path / "marks"

    def die_once(notes: Notes, client: int, node: str) -> None:
        if client == 1 and not marks.exists():
            marks.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    job = job_of(numbered, Staged(tmp_path / "notes", die_once))
    found = outcome(SimulationEngine(job, RayExecutor(job, cluster)), APART, 1)
    assert marks.exists()
    assert found == outcome(local(job), APART, 1)


class Part(NamedTuple):
    """A work item that reads and writes rows, alone or in parts."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    parts: tuple[Part, ...] = ()

    def split(self, max_waves):
        return self.parts or (self,)


def test_chains_begin_on_all_machines_and_go_on_where_their_models_are(toy, linear):
    placed = []

    def options(*, scheduling_strategy, num_returns):
        placed.append(scheduling_strategy)
        return SimpleNamespace(remote=lambda *_: [(0.1, "done"), *["model"] * (num_returns - 1)])

    same = {"put": lambda value: value, "get": lambda sent: sent, "cpus": 2}
    fake = SimpleNamespace(ray=SimpleNamespace(remote=lambda **_: lambda _: SimpleNamespace(options=options)), **same)
    executor = RayExecutor(job_of(toy, linear), fake)
    executor.allocate(4)[0] = 1.0
    chains = [Part((0,), (row,), (Part((0,), (row,)), Part((0, row), (row,)), Part((row,), (row,)))) for row in (1, 2)]
    assert executor.run_all(chains) == ["done"] * 6
    assert placed == 2 * ["SPREAD", "DEFAULT", "DEFAULT"]
    placed.clear()
    executor.run_all([Part((0, 1), (1,)), Part((0,), (3,))])
    assert placed == ["DEFAULT", "SPREAD"]  # a second wave: the first route goes on, the other one begins
    executor.allocate(4)[0] = 1.0
    placed.clear()
    executor.run_all([Part((0,), (1,))])
    assert placed == ["SPREAD"]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_slow_chain_keeps_nobody_waiting(numbered, cluster, tmp_path, workers):
    def be_slow(notes: Notes, client: int, node: str) -> None:
        if client == 0:
            notes.wait(lambda events: {3, 5} <= {who for who, _ in events})

    plan = RoundPlan(1, (Route((0, 1)), Route((2, 3)), Route((4, 5))))
    job = job_of(numbered, Staged(tmp_path / "notes", be_slow))
    found = outcome(SimulationEngine(job, RayExecutor(job, cluster, workers)), plan, 1)
    order = [client for client, _ in Notes(tmp_path / "notes").all()]
    assert order.index(1) == 5
    assert found == outcome(local(job), plan, 1)


def test_a_node_is_lost_in_the_middle(numbered, head, cluster, tmp_path):
    """The node is lost at the second hop of its route; the model of the first hop is there as well."""
    node = next(iter(head.worker_nodes), None) or head.add_node(num_cpus=1)
    doomed = node.node_id

    def stuck(events: list[tuple[int, str]]) -> bool:
        return any(client in (1, 4) and where == doomed for client, where in events)

    def play(notes: Notes, client: int, where: str) -> None:
        if where == doomed and client in (1, 4):
            notes.wait(lambda events: False)
        if where != doomed and client in (0, 3):
            notes.wait(stuck)

    def lose() -> None:
        Notes(tmp_path / "notes").wait(stuck)
        head.remove_node(node, allow_graceful=False)

    plan = RoundPlan(1, (Route((0, 1, 2)), Route((3, 4, 5))))
    job = job_of(numbered, Staged(tmp_path / "notes", play))
    killer = threading.Thread(target=lose)
    killer.start()
    found = outcome(SimulationEngine(job, RayExecutor(job, cluster)), plan, 1)
    killer.join()
    events = Notes(tmp_path / "notes").all()
    lost = [client for client, where in events if where == doomed]
    assert lost in ([0, 1], [3, 4])
    assert {client for client, where in events if where != doomed} == set(range(6))
    assert found == outcome(local(job), plan, 1)
    assert cluster.cpus == 1


@pytest.mark.slow
def test_a_task_that_needs_too_much_memory_is_given_up(toy, linear, head, cluster):
    frail = {"RAY_memory_usage_threshold": "0.0001", "RAY_memory_monitor_refresh_ms": "50"}
    node = head.add_node(num_cpus=1, resources={"frail": 1}, env_vars=frail)
    job = job_of(toy, linear)
    executor = RayExecutor(job, cluster)
    executor.remote_run = ray.remote(num_cpus=1, max_retries=2, resources={"frail": 1})(run_work_item)
    with pytest.raises(
        EngineError, match=r"^Ray stopped the same task several times because its machine ran low on mem"
    ):
        outcome(SimulationEngine(job, executor))
    head.remove_node(node)


KILLED = """
import os, signal, fedrelay, fedrelay.runtime.round_loop

class Kill(fedrelay.Callback):
    def on_round_end(self, context):
        if context.round == 2:
            os.kill(os.getpid(), signal.SIGKILL)

fedrelay.run(**{spec!r}, out={out!r}, callbacks=Kill())
"""


@pytest.mark.slow
def test_a_run_whose_process_was_killed_resumes_with_the_same_bits(head, cluster, warm_python, tmp_path):
    run, settings = tmp_path / "run", {**SMALL_RUN, "rounds": 4, "checkpoint": {"seconds": 0}}
    spec = {"method": "fedseq+scaffold", "engine": {"name": "ray", "address": head.address}, **settings}
    ended = warm_python.run("-c", KILLED.format(spec=spec, out=str(run)), folder=tmp_path)
    assert ended.returncode == -signal.SIGKILL
    assert (run / "ledger.jsonl").read_bytes().count(b"\n") == 2
    resumed = fedrelay.resume(run)
    assert connect(head.address) is cluster
    assert head.address in RAY_CLUSTERS
    assert torch.equal(resumed.weights, fedrelay.run("fedseq+scaffold", **settings).weights)


class Broken(nn.Linear):
    """Raises while training."""

    def forward(self, x):
        if self.training:
            raise ValueError("no such luck")
        return super().forward(x)


def test_failures_arrive_as_they_are(toy, linear, cluster, capfd):
    job = job_of(toy, Broken(4, 3))
    with pytest.raises(EngineError, match=r"^round 1: training on client \d failed: ValueError: no such luck$"):
        outcome(SimulationEngine(job, RayExecutor(job, cluster)))
    wild = job_of(toy, linear, lr=1e38)
    with pytest.raises(DivergedError, match=r"^round 1: the model left client \d \(route \d, hop \d\) with "):
        outcome(SimulationEngine(wild, RayExecutor(wild, cluster)))
    assert capfd.readouterr() == ("", "")


def test_the_first_ctrl_c_finishes_the_round(head, tmp_path):
    class PressCtrlC(Callback):
        def on_round_end(self, context):
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGTERM)
    settings = {**SMALL_RUN, "engine": {"name": "ray", "address": head.address}, "out": tmp_path / "run"}
    with pytest.raises(fedrelay.Interrupted) as stop:
        fedrelay.run("fedseq", **settings, callbacks=PressCtrlC())
    assert stop.value.result.rounds == 1
    assert signal.getsignal(signal.SIGTERM) is before
    resumed = fedrelay.resume(tmp_path / "run")
    assert torch.equal(resumed.weights, fedrelay.run("fedseq", **SMALL_RUN).weights)


def test_one_connection_for_all_engines(toy, linear, head):
    job = job_of(toy, linear)
    first, second = (start_ray(job, 0, head.address) for _ in range(2))
    first.close()
    assert first.executor.cluster is second.executor.cluster
    assert outcome(second) == outcome(local(job))


def test_a_connection_of_the_users_own_is_used_and_left_alone(toy, linear, head, cluster):
    ray.shutdown()
    ray.init(head.address, log_to_driver=False, configure_logging=False)
    theirs = ray.get_runtime_context().get_job_id()
    job = job_of(toy, linear)
    assert outcome(start_ray(job, 0, None)) == outcome(local(job))
    assert ray.get_runtime_context().get_job_id() == theirs
    ray.shutdown()


@pytest.mark.parametrize("address", ["127.0.0.1:9", "nowhere.invalid:6379"])
def test_an_address_where_nobody_answers(cluster, address):
    began = time.monotonic()
    with pytest.raises(EngineError, match=rf"engine\.address: no Ray cluster answers at {address}; start one"):
        connect(address)
    assert time.monotonic() - began < 10
    assert connect(cluster.requested) is cluster


def test_other_versions_of_ray_are_named(head, monkeypatch):
    with monkeypatch.context() as changed:
        changed.setattr(ray, "__version__", "1.2.3")
        ray.shutdown()
        with pytest.raises(EngineError, match=r"no connection to the Ray cluster at .*Version mismatch.*Ray: 1\.2\.3"):
            connect(head.address)


def test_what_it_cannot_do_is_refused(toy, linear):
    with pytest.raises(SpecError, match=r"train\.device: the ray engine computes on cpu, got 'cuda'"):
        start_ray(job_of(toy, linear, device="cuda"), 0, None)
    with pytest.raises(SpecError, match=r"engine\.address: has no effect with the local engine"):
        fedrelay.run("fedavg", engine={"address": "127.0.0.1:6379"})


def test_a_tuning_on_a_cluster_makes_the_choice_of_one_machine(head, tmp_path):
    from tests.tuning.tiny import tiny_tuning

    from fedrelay.tuning.run_tuning import run_tuning

    few = {"methods": ["fedavg"], "rounds": 2, "seeds": [7], "tune": {"trials": 2, "rungs": 1, "extensions": 0}}
    engines = {"here": {"workers": 1}, "there": {"name": "ray", "address": head.address, "workers": 1}}
    here, there = (run_tuning(tiny_tuning(engine=engine, **few), tmp_path / name) for name, engine in engines.items())
    assert there["fedavg"].choice == here["fedavg"].choice
    assert there.recommended == here.recommended


def test_a_cluster_that_is_gone_ends_the_run_with_advice(head, tmp_path, monkeypatch):
    """The last test of the file: nothing is left afterwards."""
    monkeypatch.setattr(clusters, "RESPONSE_TIMEOUT", 1.0)
    monkeypatch.setattr(clusters, "CHECK_INTERVAL", 0.5)

    class Kill(Callback):
        def on_round_end(self, context):
            for _, process in head.head_node.live_processes():
                process.kill()

    settings = {**SMALL_RUN, "engine": {"name": "ray", "address": head.address}, "out": tmp_path / "run"}
    with pytest.raises(EngineError, match=r"Ray cluster.*; continue from the last checkpoint with: fedrelay resume "):
        fedrelay.run("fedseq", **settings, callbacks=Kill())
