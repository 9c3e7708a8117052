"""Bare PyTorch: nothing but client updates in plain channels-last loops, one process per core; no server, no handover.

Variants: `all` cores, or `one`.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.synchronize import Barrier

import torch
import torch._dynamo  # loaded by the first optimiser; here once, instead of in every process
from workload import POPULATION, STEPS, WARM_UP, Case, keep_freed_memory, local_pass, report, task


def work(case: Case, warm_up: int, updates: int, barrier: Barrier) -> None:
    """One process's share of the client updates; everybody starts and ends together."""
    torch.set_num_threads(1)
    keep_freed_memory()
    x, y = case.data()
    model = case.model(channels_last=True)
    first = [parameter.detach().clone() for parameter in model.parameters()]

    def train(updates: int) -> int:
        steps = 0
        for update in range(updates):
            with torch.no_grad():
                for parameter, value in zip(model.parameters(), first, strict=True):
                    parameter.copy_(value)
            steps += local_pass(model, x[update % POPULATION], y[update % POPULATION])
        return steps

    train(warm_up)
    barrier.wait()
    steps = train(updates)
    barrier.wait()
    assert steps == STEPS * updates


def main() -> None:
    """Train as many client updates as the rounds have, shared out evenly."""
    wanted = task(("all", "one"))
    processes = (os.cpu_count() or 1) if wanted.variant == "all" else 1
    share = -(-wanted.rounds * wanted.case.clients // processes)
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes + 1)
    warm_up = -(-WARM_UP * wanted.case.clients // processes)
    workers = [
        context.Process(target=work, args=(wanted.case, warm_up, share, barrier), daemon=True) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter()
    barrier.wait()
    report(wanted.case, time.perf_counter() - began, share * processes)
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
