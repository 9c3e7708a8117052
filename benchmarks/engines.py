"""The overhead of a cluster: the Ray engine against the local one, on the same cores.

    .venv/bin/python benchmarks/engines.py              print the table
    .venv/bin/python benchmarks/engines.py --rounds 50  measure longer
    .venv/bin/python benchmarks/engines.py --smoke      the first row, two rounds, one worker

Both use one worker per core; the cluster is this machine. Their rounds alternate, so that other load hits both. A round
is all hops of 16 chains, without merge and evaluation. Only the ratio is meaningful. The weights are compared bit for
bit.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time

import torch

from fedrelay.data.federation import federate
from fedrelay.engines.base import Engine, RoundInputs
from fedrelay.engines.local.simulation_engine import cores, start_local
from fedrelay.engines.ray.ray_executor import start_ray
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.trainer import TrainingJob
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.zoo import build_model
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route

CHAINS, LONGEST, SAMPLES, WARM_UP = 16, 10, 100, 3
WORKLOADS = {
    "dense, 8×8 images, one client a chain": ("mlp", 8, 1),
    "dense, 8×8 images, ten clients a chain": ("mlp", 8, 10),
    "convolutional, 28×28 images, ten clients a chain": ("cnn-s", 28, 10),
}
"""Model, side of the images, length of the chains."""


def job_of(model: str, side: int) -> TrainingJob:
    """One epoch of batches of 20 over 100 samples at every client; the data are noise, which takes as long."""
    generator = torch.Generator().manual_seed(0)
    count = CHAINS * LONGEST * SAMPLES
    images = torch.rand(count, 1, side, side, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    test = images[:100], labels[:100]
    federation = federate(images, labels, *test, clients=CHAINS * LONGEST, partition="iid", classes=10)
    torch.manual_seed(0)
    module = build_model(model, (1, side, side), classes=10)
    return TrainingJob(module, FlatLayout.of(module), federation, TrainSettings(batch_size=20), (), seed=1, lanes=8)


def lap(engine: Engine, job: TrainingJob, round: int, length: int) -> tuple[float, list[torch.Tensor]]:
    """Seconds of a round, and its models."""
    clients = range(CHAINS * length)
    plan = RoundPlan(round, tuple(Route(tuple(clients[chain::CHAINS])) for chain in range(CHAINS)))
    began = time.perf_counter()
    arrivals = engine.run_round(plan, AS_PLANNED, RoundInputs(job.layout.flatten(job.module)))
    return time.perf_counter() - began, [arrival.weights.clone() for arrival in arrivals]


def compare(job: TrainingJob, length: int, rounds: int, workers: int) -> dict[str, list[float]]:
    """Seconds of all rounds but the first few, by engine."""
    engines = {"local": start_local(job, workers), "ray": start_ray(job, workers, None)}
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    for round in range(1, WARM_UP + rounds + 1):
        found = {name: lap(engine, job, round, length) for name, engine in engines.items()}
        if not all(torch.equal(*pair) for pair in zip(*(models for _, models in found.values()), strict=True)):
            raise SystemExit(f"round {round}: the engines disagree")
        for name, (taken, _) in found.items() if round > WARM_UP else ():
            seconds[name].append(taken)
    for engine in engines.values():
        engine.close()
    return seconds


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--smoke", action="store_true", help="only see that it works")
    options = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed: nothing to compare (pip install 'fedrelay[ray]')")
        return
    rounds, workloads, workers = (
        (2, list(WORKLOADS)[:1], 1) if options.smoke else (options.rounds, list(WORKLOADS), cores())
    )
    print(f"{CHAINS} chains, {workers} workers, median of {rounds} rounds\n")
    print("| model | local, per hop | ray, per hop | ray ÷ local (median and interquartile range) |")
    print("|---|---:|---:|---:|")
    for name in workloads:
        model, side, length = WORKLOADS[name]
        seconds = compare(job_of(model, side), length, rounds, workers)
        local, ray = (1e3 * statistics.median(found) / (CHAINS * length) for found in seconds.values())
        ratios = [theirs / ours for ours, theirs in zip(*seconds.values(), strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"| {name} | {local:.2f} ms | {ray:.2f} ms | {middle:.1f} ({low:.1f}–{high:.1f}) |")


if __name__ == "__main__":
    main()
