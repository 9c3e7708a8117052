"""Clients that describe themselves on the local engine: the same vectors for any number of workers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local import simulation_engine
from fedrelay.engines.local.executor import ForkedExecutor, InlineExecutor
from fedrelay.engines.local.simulation_engine import SimulationEngine
from fedrelay.errors import DivergedError, EngineError
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route


@dataclass(frozen=True)
class Everything:
    """The whole model, and who had it."""

    trains: bool = True

    def compute(self, client, weights, flat_module, job):
        return np.append(weights.numpy(), np.float32(client))


class Clumsy(Everything):
    def compute(self, client, weights, flat_module, job):
        raise ValueError("no brush")


@pytest.fixture
def job(toy, linear):
    return TrainingJob(linear, FlatLayout.of(linear), toy, TrainSettings(batch_size=2, epochs=2), (), 3)


def profiles_of(engine, clients, profiler=None):
    start = engine.job.layout.flatten(engine.job.module)
    profiles = dict(engine.profile_clients(profiler or Everything(), clients, start))
    engine.close()
    return np.stack([profiles[place] for place in range(len(clients))])


@pytest.mark.parametrize("lanes", [1, 2, 8])
@pytest.mark.parametrize("workers", [2, 3])
def test_the_same_bits_for_any_number_of_workers(job, lanes, workers, monkeypatch):
    monkeypatch.setattr(simulation_engine, "PROFILES_PER_WORKER", 1)
    job, clients = replace(job, lanes=lanes), [4, 0, 5, 2, 1, 3]
    alone = profiles_of(SimulationEngine(job, InlineExecutor(job)), clients)
    assert alone[:, -1].tolist() == clients
    np.testing.assert_array_equal(profiles_of(SimulationEngine(job, ForkedExecutor(job, workers)), clients), alone)


def test_a_clients_vector_does_not_depend_on_the_others(job):
    every = profiles_of(SimulationEngine(job, InlineExecutor(job)), [0, 1, 2, 3, 4, 5])
    np.testing.assert_array_equal(profiles_of(SimulationEngine(job, InlineExecutor(job)), [3])[0], every[3])


def test_it_is_what_the_client_would_do_in_a_round_of_its_own(job):
    vector = profiles_of(SimulationEngine(job, InlineExecutor(job)), [2])[0]
    start = job.layout.flatten(job.module)
    (arrival,) = SimulationEngine(job, InlineExecutor(job)).run_round(
        RoundPlan(0, (Route((2,)),)), AS_PLANNED, RoundInputs(start)
    )
    np.testing.assert_array_equal(vector[:-1], arrival.weights.numpy())
    (later,) = SimulationEngine(job, InlineExecutor(job)).run_round(
        RoundPlan(1, (Route((2,)),)), AS_PLANNED, RoundInputs(start)
    )
    assert not torch.equal(torch.from_numpy(vector[:-1]), later.weights)  # no round shares its randomness


def test_without_training_the_model_is_the_one_that_was_sent(job):
    rows = profiles_of(SimulationEngine(job, InlineExecutor(job)), [0, 1], Everything(trains=False))
    np.testing.assert_array_equal(rows[:, :-1], np.stack([job.layout.flatten(job.module).numpy()] * 2))


def test_vectors_come_while_others_are_under_way(job, monkeypatch):
    monkeypatch.setattr(simulation_engine, "PROFILES_PER_WORKER", 1)
    engine = SimulationEngine(job, InlineExecutor(job))
    profiles = engine.profile_clients(Everything(), [0, 1, 2], job.layout.flatten(job.module))
    assert next(profiles)[0] == 1  # the client with the most samples
    assert len(list(profiles)) == 2


def test_nobody_to_portray(job):
    assert (
        list(
            SimulationEngine(job, InlineExecutor(job)).profile_clients(Everything(), [], job.layout.flatten(job.module))
        )
        == []
    )


def test_failures_say_who(job):
    wild = replace(job, train=TrainSettings(batch_size=2, lr=1e38, epochs=9))
    with pytest.raises(DivergedError, match="profiling: the model left client 1 with non-finite weights"):
        profiles_of(SimulationEngine(wild, InlineExecutor(wild)), [1])
    with pytest.raises(EngineError, match="profiling client 1 failed: ValueError: no brush"):
        profiles_of(SimulationEngine(job, InlineExecutor(job)), [1], Clumsy())
