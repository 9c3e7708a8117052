"""A short speed check for users: how fast client updates are on this machine, against a plain PyTorch loop.

One client update is one epoch of five steps of batch 20 over 100 samples; ten routes run side by side. FedRelay
and the plain loop take turns, so that other load on the machine slows both, and only ratios within one run are
meaningful. On another device than the CPU everything runs in one process, so for small models the cores of the machine
may be faster: they are measured beside it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from fedrelay.data.federation import Federation, federate
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.executor import one_thread
from fedrelay.engines.local.simulation_engine import start_local
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.local.model_checks import check_device
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.runtime.round_loop import first_state
from fedrelay.runtime.server import Server

ROUTES, SAMPLES, BATCH, LR = 10, 100, 20, 0.01


@dataclass(frozen=True)
class Workload:
    """A model and the samples it is trained on."""

    name: str
    model: str
    shape: tuple[int, ...]

    def federation(self) -> Federation:
        """Ten clients with random samples."""
        rng = np.random.default_rng(0)
        x = rng.normal(size=(ROUTES * SAMPLES, *self.shape)).astype(np.float32)
        y = rng.integers(0, 10, len(x))
        return federate(x, y, x[:10], y[:10], client_ids=np.repeat(np.arange(ROUTES), SAMPLES), classes=10)


WORKLOADS = (Workload("dense 64-64-10", "mlp", (1, 8, 8)), Workload("convolutional 28×28", "cnn-s", (1, 28, 28)))


@dataclass(frozen=True)
class Timing:
    """Seconds for one client update: the median of several rounds, the best and the worst."""

    workload: str
    program: str
    median: float
    best: float
    worst: float


def bench(workers: int, rounds: int, device: str = "cpu") -> Iterator[Timing]:
    """Every workload with a plain loop and with FedRelay on a device, and with FedRelay and all workers on the CPU.

    Raises:
        SpecError: there is no such device.
    """
    check_device(device, "--device")
    for workload in WORKLOADS:
        yield from _race(workload, workers, rounds, device)


def _race(workload: Workload, workers: int, rounds: int, device: str) -> Iterator[Timing]:
    federation, on_device = workload.federation(), "" if device == "cpu" else f" on {device}"
    with (
        _engine(workload, federation, 1, device) as one,
        _engine(workload, federation, workers, "cpu") as all_of_them,
    ):
        programs: dict[str, Callable[[int], None]] = {
            f"plain PyTorch loop{on_device}": _plain_loop(workload, federation, device),
            f"FedRelay{on_device or ', 1 worker'}": one,
            f"FedRelay, {workers} workers": all_of_them,
        }
        times: dict[str, list[float]] = {name: [] for name in programs}
        for round in range(1, rounds + 2):
            for name, run_round in programs.items():
                began = time.perf_counter()
                run_round(round)
                times[name].append((time.perf_counter() - began) / ROUTES)
    for name, laps in times.items():
        counted = laps[1:]  # the first round warms up
        yield Timing(workload.name, name, statistics.median(counted), min(counted), max(counted))


@contextmanager
def _engine(workload: Workload, federation: Federation, workers: int, device: str) -> Iterator[Callable[[int], None]]:
    """A round of FedAvg over all clients, with the merge."""
    train = {"batch_size": BATCH, "lr": LR, "device": device}
    wanted = experiment(
        "fedavg", model=workload.model, fraction=1.0, train=train, workers=workers, data={"name": "random"}
    )
    run = prepare(wanted, federation=federation)
    engine = start_local(run.prepared.job(), workers)
    state, server = first_state(run), Server(run.prepared, run.planner)

    def run_round(round: int) -> None:
        plan = run.planner.plan(round)
        server.receive(plan, state, engine.run_round(plan, AS_PLANNED, RoundInputs(state.weights)))

    try:
        yield run_round
    finally:
        engine.close()


def _plain_loop(workload: Workload, federation: Federation, device: str) -> Callable[[int], None]:
    """The plain PyTorch loop: one model, torch's SGD, one client after another."""
    module: nn.Module = prepare(experiment("fedavg", model=workload.model), federation=federation).prepared.module
    module.to(device)

    def run_round(round: int) -> None:
        with one_thread():
            for client in range(ROUTES):
                samples = federation.train_samples(client).load()
                x, y = samples.single_input.to(device), samples.y.to(device)
                optimiser = torch.optim.SGD(module.parameters(), lr=LR)
                order = torch.randperm(SAMPLES, device=device)
                for begin in range(0, SAMPLES, BATCH):
                    batch = order[begin : begin + BATCH]
                    optimiser.zero_grad()
                    F.cross_entropy(module(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
                    optimiser.step()
            float(next(module.parameters()).detach().sum())  # waits until the device is done

    return run_round
