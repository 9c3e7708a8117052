"""The local engine: the same bits for any number of workers, and what happens when a worker dies."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest
import torch
from torch import nn

from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.executor import ForkedExecutor, InlineExecutor, core_of_worker, move_to_core
from fedrelay.engines.local.simulation_engine import SimulationEngine, can_fork, start_local
from fedrelay.errors import DivergedError, EngineError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.terms.drift_penalty import DriftPenalty
from fedrelay.local.terms.proximal_penalty import ProximalPenalty
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route

PLAN = RoundPlan(1, (Route((0, 1, 2, 3)), Route((4,)), Route((5, 0)), Route((2, 2, 2))))


def job_of(federation, module, lanes=1, **train):
    terms = (ProximalPenalty(mu=0.1, anchor="round"),)
    return TrainingJob(
        module, FlatLayout.of(module), federation, TrainSettings(**{"batch_size": 2, **train}), terms, 3, lanes
    )


@pytest.fixture
def engines():
    opened = []

    def open_engine(engine):
        opened.append(engine)
        return engine

    yield open_engine
    for engine in opened:
        engine.close()


def outcome(engine, job, plan=PLAN):
    start = job.layout.flatten(job.module)
    arrivals = engine.run_round(plan, AS_PLANNED, RoundInputs(start))
    models = torch.stack([arrival.weights.clone() for arrival in arrivals])
    return models, [(a.route, a.clients, a.samples, a.steps, a.loss) for a in arrivals]


@pytest.mark.parametrize("executor", [InlineExecutor, partial(ForkedExecutor, workers=2)], ids=["inline", "forked"])
@pytest.mark.parametrize("lanes", [1, 2])
def test_a_later_hop_reads_the_client_state_that_an_earlier_one_left(toy, linear, engines, executor, lanes):
    """In one round as in two: the second route begins with the client that the first one reaches last."""
    train = TrainSettings(batch_size=100, lr=0.3)  # one batch: no randomness that would tell the rounds apart
    job = TrainingJob(linear, FlatLayout.of(linear), toy, train, (DriftPenalty(alpha=0.5),), 3, lanes)
    first, second, start = Route((3, 4, 0)), Route((0, 4, 5)), RoundInputs(job.layout.flatten(linear))
    apart = engines(SimulationEngine(job, executor(job)))
    expected = []
    for route in (first, second):
        expected += [arrival.weights.clone() for arrival in apart.run_round(RoundPlan(1, (route,)), AS_PLANNED, start)]
        apart.commit_client_state()
    together = engines(SimulationEngine(job, executor(job)))
    plan = RoundPlan(1, (replace(second, order=(1, 1, 1)), replace(first, order=(0, 0, 0))))
    found = [arrival.weights.clone() for arrival in together.run_round(plan, AS_PLANNED, start)]
    together.commit_client_state()
    torch.testing.assert_close(found, expected[::-1])
    for client in (0, 3, 4, 5):
        torch.testing.assert_close(together.client_states.get(client), apart.client_states.get(client))


@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_worker_processes_give_the_same_bits(toy, linear, engines, workers, lanes):
    job = job_of(toy, linear, lanes)
    models, facts = outcome(SimulationEngine(job, InlineExecutor(job)), job)
    pool = engines(SimulationEngine(job, ForkedExecutor(job, workers)))
    for _ in range(2):  # the second round reuses workers and memory
        pooled_models, pooled_facts = outcome(pool, job)
        assert torch.equal(models, pooled_models)
        assert facts == pooled_facts


def test_the_order_of_the_routes_does_not_matter_to_a_route(toy, linear):
    job = job_of(toy, linear)
    alone = SimulationEngine(job, InlineExecutor(job)).run_round(
        RoundPlan(1, PLAN.routes[:1]), AS_PLANNED, RoundInputs(job.layout.flatten(linear))
    )
    among = SimulationEngine(job, InlineExecutor(job)).run_round(
        PLAN, AS_PLANNED, RoundInputs(job.layout.flatten(linear))
    )
    assert torch.equal(alone[0].weights, among[0].weights)


def test_a_route_is_its_hops_one_after_another(toy, linear):
    job = job_of(toy, linear)
    (arrival,) = SimulationEngine(job, InlineExecutor(job)).run_round(
        RoundPlan(1, (Route((3, 1)),)), AS_PLANNED, RoundInputs(job.layout.flatten(linear))
    )
    assert (arrival.samples, arrival.steps) == (8 + 9, 4 + 5)


def test_more_routes_than_before_find_room(toy, linear, engines):
    job = job_of(toy, linear)
    pool = engines(SimulationEngine(job, ForkedExecutor(job, 2)))
    outcome(pool, job, RoundPlan(1, (Route((0,)),)))
    models, _ = outcome(pool, job)
    assert torch.equal(models, outcome(SimulationEngine(job, InlineExecutor(job)), job)[0])


def test_evaluation_gives_the_same_bits(toy, linear, engines):
    job = job_of(toy, linear)
    weights = job.layout.flatten(linear)
    one, two = (
        SimulationEngine(job, InlineExecutor(job)).evaluate(weights),
        engines(SimulationEngine(job, ForkedExecutor(job, 2))).evaluate(weights),
    )
    assert one.loss == two.loss
    assert one.values["correct"].tolist() == two.values["correct"].tolist()


def test_the_callers_threads_and_random_stream_are_left_alone(toy, linear):
    job = job_of(toy, linear)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    before = torch.get_num_threads()
    outcome(SimulationEngine(job, InlineExecutor(job)), job)
    assert torch.get_num_threads() == before
    assert torch.equal(torch.rand(3), expected)


def test_models_are_written_for_workers_by_one_thread(toy, linear):
    """Other threads of PyTorch would go on spinning on the cores of the workers."""
    threads = set()

    class NotingRows:
        def __init__(self, rows):
            self.rows = rows

        def __getitem__(self, row):
            return self.rows[row]

        def __setitem__(self, row, value):
            threads.add(torch.get_num_threads())
            self.rows[row] = value

    class NotingExecutor(InlineExecutor):
        def allocate(self, rows):
            return NotingRows(super().allocate(rows))

    job, before = job_of(toy, linear), torch.get_num_threads()
    engine = SimulationEngine(job, NotingExecutor(job))
    try:
        torch.set_num_threads(3)
        outcome(engine, job)
        engine.evaluate(job.layout.flatten(linear))
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert threads == {1}


def test_a_worker_killed_between_rounds_is_replaced(toy, linear, engines, caplog):
    job = job_of(toy, linear)
    pool = engines(SimulationEngine(job, ForkedExecutor(job, 2)))
    models, _ = outcome(pool, job)
    os.kill(pool.executor.workers[0].process.pid, signal.SIGKILL)
    again, _ = outcome(pool, job)
    assert torch.equal(models, again)
    assert all(worker.process.is_alive() for worker in pool.executor.workers)
    assert "a worker process died (signal SIGKILL); its work is done again by a new one" in caplog.text


class Suicidal(nn.Module):
    """Kills its own process when it sees the marked client, once if there is a file to remember it by."""

    def __init__(self, memory: str, parent: int):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.memory, self.parent = memory, parent

    def forward(self, x):
        if self.training and os.getpid() != self.parent and len(x) == 1 and not Path(self.memory).exists():
            if self.memory != "/nonexistent/never":
                Path(self.memory).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self.linear(x)


def test_a_hop_whose_worker_died_is_done_again(toy, tmp_path, engines):
    module = Suicidal(str(tmp_path / "died"), os.getpid())
    job = job_of(toy, module)
    expected, _ = outcome(SimulationEngine(job, InlineExecutor(job)), job)
    found, _ = outcome(engines(SimulationEngine(job, ForkedExecutor(job, 2))), job)
    assert (tmp_path / "died").exists()
    assert torch.equal(expected, found)


def test_a_hop_that_always_kills_its_worker_ends_the_run(toy, engines):
    job = job_of(toy, Suicidal("/nonexistent/never", os.getpid()))
    pool = engines(SimulationEngine(job, ForkedExecutor(job, 2)))
    with pytest.raises(EngineError, match=r"died 3 times in a row on the same work item \(signal SIGKILL\)"):
        outcome(pool, job)
    assert pool.executor.workers == []


class Broken(nn.Linear):
    """Raises while training."""

    def forward(self, x):
        if self.training:
            raise ValueError("no such\n  luck")
        return super().forward(x)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_the_model_names_the_client(toy, engines, workers):
    job = job_of(toy, Broken(4, 3))
    engine = engines(start_local(job, workers))
    with pytest.raises(EngineError, match=r"round 1: training on client \d failed: ValueError: no such luck"):
        outcome(engine, job)


class BlindWhenJudged(nn.Linear):
    """Raises while it is evaluated."""

    def forward(self, x):
        if not self.training:
            raise ValueError("I cannot see")
        return super().forward(x)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_while_evaluating_says_so(toy, engines, workers):
    job = job_of(toy, BlindWhenJudged(4, 3))
    engine = engines(start_local(job, workers))
    with pytest.raises(EngineError, match="evaluating the model failed: ValueError: I cannot see"):
        engine.evaluate(job.layout.flatten(job.module))


def test_there_are_never_more_workers_than_tasks(toy, linear, engines):
    job = job_of(toy, linear)
    pool = engines(SimulationEngine(job, ForkedExecutor(job, 16)))
    outcome(pool, job)
    assert len(pool.executor.workers) == len(PLAN.routes)


def test_models_that_cannot_be_stacked_use_all_workers(toy, engines):
    module = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    job = job_of(toy, module, lanes=8)
    pool = engines(SimulationEngine(job, ForkedExecutor(job, 4)))
    outcome(pool, job)
    assert len(pool.executor.workers) == 4


@pytest.mark.parametrize("workers", [1, 2])
def test_divergence_names_the_hop(toy, linear, engines, workers):
    job = job_of(toy, linear, lr=1e38)
    engine = engines(start_local(job, workers))
    with pytest.raises(
        DivergedError, match=r"round 1: the model left client \d \(route \d, hop \d\) with non-finite weights"
    ):
        outcome(engine, job)


def test_closing_leaves_no_process_behind(toy, linear):
    job = job_of(toy, linear)
    pool = SimulationEngine(job, ForkedExecutor(job, 2))
    outcome(pool, job)
    processes = [worker.process for worker in pool.executor.workers]
    pool.close()
    assert not any(process.is_alive() for process in processes)
    outcome(pool, job)  # a closed pool opens again when needed
    pool.close()


@pytest.mark.parametrize(
    ("platform", "version", "clusters", "safe"),
    [
        ("linux", (3, 13), set(), True),
        ("linux", (3, 12), {"127.0.0.1:6379"}, True),
        ("linux", (3, 13), {"127.0.0.1:6379"}, False),
        ("darwin", (3, 12), set(), False),
        ("win32", (3, 12), set(), False),
    ],
)
def test_where_processes_are_forked(platform, version, clusters, safe, monkeypatch):
    system = SimpleNamespace(platform=platform, version_info=version)
    monkeypatch.setattr("fedrelay.engines.local.executor.sys", system)
    monkeypatch.setattr("fedrelay.engines.local.executor.RAY_CLUSTERS", clusters)
    assert can_fork("cpu") is safe
    assert not can_fork("meta")


@pytest.mark.parametrize(
    ("usable", "workers", "cores"), [({3, 5}, 2, [3, 5]), ({0, 1, 2}, 2, [None, None]), ({4}, 2, [None, None])]
)
def test_workers_have_cores_of_their_own_if_there_is_one_for_each(usable, workers, cores, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: usable, raising=False)
    assert [core_of_worker(number, workers) for number in range(workers)] == cores


def test_no_worker_has_a_core_where_the_system_does_not_say_which_may_be_used(monkeypatch):
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    assert core_of_worker(0, 1) is None


def test_a_worker_that_went_to_its_core_may_leave_it_again(monkeypatch):
    allowed = [{0, 1}]
    monkeypatch.setattr("os.sched_getaffinity", lambda process: allowed[-1], raising=False)
    monkeypatch.setattr("os.sched_setaffinity", lambda process, cores: allowed.append(cores), raising=False)
    move_to_core(1)
    assert allowed == [{0, 1}, {1}, {0, 1}]


def test_a_core_that_was_taken_away_is_not_missed(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0}, raising=False)
    monkeypatch.setattr("os.sched_setaffinity", Mock(side_effect=OSError("Invalid argument")), raising=False)
    move_to_core(1)
    assert os.sched_setaffinity.call_args_list == [call(0, {1}), call(0, {0})]
