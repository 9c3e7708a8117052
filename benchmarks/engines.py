"""The overhead of a cluster: the Ray engine against the local one, on the same cores.

    .venv/bin/python benchmarks/engines.py              print the tables
    .venv/bin/python benchmarks/engines.py --nodes 2    the cluster has two Ray nodes, each with half of the cores
    .venv/bin/python benchmarks/engines.py --rounds 50  measure longer
    .venv/bin/python benchmarks/engines.py --smoke      the first row, two rounds, one worker

Both use one worker per core; the cluster is this machine. Their rounds alternate, so that other load hits both. A round
is all hops of 16 chains, without merge and evaluation. The efficiency is the local engine's time of a round divided by
Ray's; nothing else is meaningful. The weights are compared bit for bit. The second table has what a task costs beside
its training, part by part. The third says what larger clusters would do, calculated from these parts.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from fedrelay.data.federation import federate
from fedrelay.engines.base import Engine, RoundInputs
from fedrelay.engines.local.simulation_engine import cores, start_local
from fedrelay.engines.ray.ray_executor import start_ray
from fedrelay.experiment.spec import TrainSettings
from fedrelay.local.trainer import TrainingJob
from fedrelay.merge.mean import weighted_mean
from fedrelay.models.flat_layout import FlatLayout
from fedrelay.models.zoo import build_model
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route

CHAINS, LONGEST, SAMPLES, WARM_UP = 16, 10, 100, 3
WORKLOADS = {
    "dense, 8×8 images, one client a chain": ("mlp", (1, 8, 8), 1),
    "dense, 8×8 images, ten clients a chain": ("mlp", (1, 8, 8), 10),
    "convolutional, 28×28 images, ten clients a chain": ("cnn-s", (1, 28, 28), 10),
    "LeNet, 32×32 images, three clients a chain": ("lenet", (3, 32, 32), 3),
}
"""Model, shape of the images, length of the chains."""

SIZES = {"1 kB": 10**3, "100 kB": 10**5, "LeNet's 3.2 MB": 3_200_000}
"""Bytes of the models whose tasks are measured; clusters are calculated for the last."""

READ, READ_AND_FETCH, PUT, MERGE = (
    "a task that reads a model",
    "the same, until a copy of the model is here",
    "put a model into the store",
    "merge a model",
)
MACHINES, CORES_OF_A_MACHINE, HOPS_OF_A_CHAIN = (1, 2, 5, 10, 20, 50, 100), 8, 10
NETWORKS = {"10 Gbit/s": 1.25e6, "1 Gbit/s": 1.25e5}
"""Bytes a millisecond."""


def job_of(model: str, shape: tuple[int, ...]) -> TrainingJob:
    """One epoch of batches of 20 over 100 samples at every client; the data are noise, which takes as long."""
    generator = torch.Generator().manual_seed(0)
    count = CHAINS * LONGEST * SAMPLES
    images = torch.rand(count, *shape, generator=generator)
    labels = torch.randint(0, 10, (count,), generator=generator)
    test = images[:100], labels[:100]
    federation = federate(images, labels, *test, clients=CHAINS * LONGEST, partition="iid", classes=10)
    torch.manual_seed(0)
    module = build_model(model, shape, classes=10)
    return TrainingJob(module, FlatLayout.of(module), federation, TrainSettings(batch_size=20), (), seed=1, lanes=8)


def lap(engine: Engine, job: TrainingJob, round: int, length: int) -> tuple[float, list[torch.Tensor]]:
    """Seconds of a round, and its models."""
    clients = range(CHAINS * length)
    plan = RoundPlan(round, tuple(Route(tuple(clients[chain::CHAINS])) for chain in range(CHAINS)))
    began = time.perf_counter()
    arrivals = engine.run_round(plan, AS_PLANNED, RoundInputs(job.layout.flatten(job.module)))
    return time.perf_counter() - began, [arrival.weights.clone() for arrival in arrivals]


def compare(job: TrainingJob, length: int, rounds: int, workers: int, address: str | None) -> dict[str, list[float]]:
    """Seconds of all rounds but the first few, by engine. 0 workers are one a core, as without `engine.workers`."""
    engines = {"local": start_local(job, workers), "ray": start_ray(job, workers, address)}
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


@contextmanager
def cluster_of(nodes: int) -> Iterator[str | None]:
    """The address of a cluster with this many Ray nodes on this machine; None: FedRelay starts one by itself."""
    if nodes == 1:
        yield None
        return
    import ray
    from ray.cluster_utils import Cluster

    each = {"num_cpus": max(1, cores() // nodes), "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=each)
    try:
        for _ in range(nodes - 1):
            cluster.add_node(**each)
        yield cluster.address
    finally:
        ray.shutdown()  # a cluster refuses to end under its driver
        cluster.shutdown()


def comparison(name: str, rounds: int, workers: int, address: str | None) -> tuple[str, float]:
    """A row of the first table, and the milliseconds of a hop with the local engine."""
    model, shape, length = WORKLOADS[name]
    seconds = compare(job_of(model, shape), length, rounds, workers, address)
    local, ray = (1e3 * statistics.median(found) / (CHAINS * length) for found in seconds.values())
    ratios = [ours / theirs for ours, theirs in zip(*seconds.values(), strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"| {name} | {local:.2f} ms | {ray:.2f} ms | {middle:.2f} ({low:.2f}–{high:.2f}) |", local


def costs_of_parts(repeats: int) -> dict[str, list[float]]:
    """What a task costs beside its training, in milliseconds for models of each size."""
    import ray

    do_nothing = ray.remote(num_cpus=1)(lambda *models: None)
    send_back = ray.remote(num_cpus=1)(lambda model: model.copy())
    models = [np.zeros(size, dtype=np.uint8) for size in SIZES.values()]
    stored = [ray.put(model) for model in models]
    tensors = [torch.zeros(size // 4) for size in SIZES.values()]
    layouts = [FlatLayout.of(torch.nn.Linear(len(each), 1, bias=False)) for each in tensors]
    steps: dict[str, Callable[[int], Any]] = {
        "submit an empty task": lambda place: do_nothing.remote(),
        "an empty task, until its result is here": lambda place: ray.get(do_nothing.remote()),
        READ: lambda place: ray.get(do_nothing.remote(stored[place])),
        "a task that reads a model and returns one": lambda place: ray.wait([send_back.remote(stored[place])]),
        READ_AND_FETCH: lambda place: ray.get(send_back.remote(stored[place])).copy(),
        PUT: lambda place: ray.put(models[place]),
        MERGE: lambda place: weighted_mean([tensors[place]] * CHAINS, [1.0] * CHAINS, layouts[place]),
    }
    found = {
        name: [1e3 * statistics.median(laps(step, place, repeats)) for place in range(len(models))]
        for name, step in steps.items()
    }
    return found | {MERGE: [each / CHAINS for each in found[MERGE]]}


def table_of_parts(costs: dict[str, list[float]], repeats: int) -> Iterator[str]:
    """What a task costs beside its training."""
    yield f"| milliseconds, median of {repeats} | {' | '.join(SIZES)} |"
    yield "|---|" + "---:|" * len(SIZES)
    for name, of_sizes in costs.items():
        yield f"| {name} | {' | '.join(f'{each:.2f}' for each in of_sizes)} |"


def table_of_clusters(costs: dict[str, list[float]], hop: float) -> Iterator[str]:
    """What larger clusters would do, if a hop takes a core `hop` milliseconds: calculated, not measured.

    Every core trains one chain; then the server fetches the models and merges them, one after another. The model of a
    round has reached all machines after as many transfers as their number can be halved.
    """
    size = max(SIZES.values())
    read, fetched, put, merge = (costs[name][-1] for name in (READ, READ_AND_FETCH, PUT, MERGE))
    yield f"| machines of {CORES_OF_A_MACHINE} cores | {' | '.join(f'efficiency at {name}' for name in NETWORKS)} |"
    yield "|---:|" + "---:|" * len(NETWORKS)
    for machines in MACHINES:
        training, elsewhere = HOPS_OF_A_CHAIN * hop, (machines - 1) / machines
        cells = []
        for speed in NETWORKS.values():
            begin = put + math.ceil(math.log2(machines)) * size / speed + read
            arrival = fetched - read + elsewhere * size / speed + merge
            round = begin + training + machines * CORES_OF_A_MACHINE * arrival
            cells.append(f"{training / round:.2f}")
        yield f"| {machines} | {' | '.join(cells)} |"


def laps(step: Callable[[int], Any], place: int, repeats: int) -> list[float]:
    """Seconds of each repetition but the first few."""
    found = []
    for _ in range(WARM_UP + repeats):
        began = time.perf_counter()
        step(place)
        found.append(time.perf_counter() - began)
    return found[WARM_UP:]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=1, help="Ray nodes of the cluster, all on this machine")
    parser.add_argument("--smoke", action="store_true", help="only see that it works")
    options = parser.parse_args()
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed: nothing to compare (pip install 'fedrelay[ray]')")
        return
    rounds, workloads, workers = (2, list(WORKLOADS)[:1], 1) if options.smoke else (options.rounds, list(WORKLOADS), 0)
    print(f"{CHAINS} chains, {workers or cores()} workers, {options.nodes} Ray nodes, median of {rounds} rounds\n")
    print("| model | local, per hop | ray, per hop | efficiency: local ÷ ray (median and interquartile range) |")
    print("|---|---:|---:|---:|")
    with cluster_of(options.nodes) as address:
        for name in workloads:
            row, hop = comparison(name, rounds, workers, address)
            print(row, flush=True)
        costs = costs_of_parts(10 * rounds)
    print("", *table_of_parts(costs, 10 * rounds), sep="\n")
    hop *= workers or cores()
    print(
        f"\nCalculated for chains of {HOPS_OF_A_CHAIN} hops of the last model above, each {hop:.1f} ms of one core:\n"
    )
    print(*table_of_clusters(costs, hop), sep="\n")


if __name__ == "__main__":
    main()
