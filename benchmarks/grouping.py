"""Time, memory and quality of grouping.

    .venv/bin/python benchmarks/grouping.py              everything, about half an hour
    .venv/bin/python benchmarks/grouping.py --fast       without the cases of 40,000 clients and more
    .venv/bin/python benchmarks/grouping.py --quality    only the quality tables
    .venv/bin/python benchmarks/grouping.py --smoke      every table with a few clients

Every case runs in its own process with one thread. The time is that of forming groups from given vectors, the memory is
the peak of the whole process. The quality tables have no goals.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a busy machine would measure the waiting of threads for each other

import numpy as np

import fedrelay as fr
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.grouping import balanced_assignment_solver
from fedrelay.grouping import icg as icg_module
from fedrelay.grouping.grouping import Grouping
from fedrelay.metrics.skew import GroupQuality, group_quality
from fedrelay.rng import generator

Counts = np.ndarray
SAMPLES = 100
DISTANCES = ("euclidean", "cosine", "norm-cosine", "kl", "gini", "wasserstein")


@dataclass(frozen=True)
class Case:
    """Clients, how they are grouped, and how long that may take."""

    clients: int
    classes: int
    grouping: Grouping
    goal: float
    repeats: int = 1

    @property
    def title(self) -> str:
        """What the table calls it."""
        groups = f", M = {self.grouping.groups:,}" if self.grouping.groups else ""
        return f"{self.grouping.name}, K = {self.clients:,}{groups}, {self.classes} classes"


def icg(clients: int, groups: int, goal: float, repeats: int = 1) -> Case:
    """Inter-cluster grouping of clients with 62 classes, as in FEMNIST."""
    return Case(clients, 62, Grouping(assign="icg", groups=groups), goal, repeats)


CASES = [
    icg(364, 52, 0.030, repeats=9),
    icg(3_500, 175, 1, repeats=3),
    icg(3_500, 25, 3, repeats=3),
    *(icg(40_000, groups, 60) for groups in (50, 200, 1_000, 5_000, 20_000)),
    *(icg(1_000_000, groups, 900) for groups in (1_000, 90_909)),
    *(Case(40_000, 100, Grouping(assign="greedy", distance=name), 60) for name in DISTANCES),
    Case(40_000, 100, Grouping(assign="kmeans"), 60),
]


def population(clients: int, classes: int, alpha: float, seed: int = 0) -> Counts:
    """Class counts of clients with `SAMPLES` samples each; `alpha` 0 gives each one class, as evenly as possible."""
    rng = generator(seed, "grouping benchmark", clients, classes)
    if alpha == 0:
        return SAMPLES * np.eye(classes, dtype=np.int64)[rng.permutation(clients) % classes]
    shares = rng.dirichlet(np.full(classes, alpha), clients)
    return np.stack([rng.multinomial(SAMPLES, each) for each in shares])


def formed(counts: Counts, grouping: Grouping, seed: int = 1) -> list[tuple[int, ...]]:
    """Groups from true histograms."""
    sizes = counts.sum(axis=1)
    vectors = counts / sizes[:, None] if grouping.profile == "hist" else counts.astype(np.float64)
    return list(grouping.assign_groups(vectors, sizes, generator(seed, "grouping"), classes=counts.shape[1]))


def measure(case: Case) -> dict[str, float]:
    """Seconds (median) and peak memory of one case, in this process."""
    counts = population(case.clients, case.classes, 0.3)
    formed(counts[:40], Grouping(assign="icg"))  # loads the solver
    laps = []
    for _ in range(case.repeats):
        began = time.perf_counter()
        formed(counts, case.grouping)
        laps.append(time.perf_counter() - began)
    return {"seconds": statistics.median(laps), "bytes": 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}


def times(cases: list[Case]) -> Iterator[str]:
    """A row for each case, as soon as it is measured."""
    yield "| grouping by class shares of Dirichlet(0.3) | seconds | goal | peak memory, MB |"
    yield "|---|---:|---:|---:|"
    for case in cases:
        with ProcessPoolExecutor(1, get_context("fork")) as process:
            found = process.submit(measure, case).result()
        yield f"| {case.title} | {found['seconds']:.3g} | {case.goal:g} | {found['bytes'] / 1e6:,.0f} |"


def exactness(clients: int = 3_500) -> Iterator[str]:
    """What stopping within the proved gap costs, where the exact solution can be had."""
    yield f"| ICG, K = {clients:,}, 62 classes, mean of 3 seeds | median CPD, exact | within the gap | difference |"
    yield "|---|---:|---:|---:|"
    counts = population(clients, 62, 0.3)
    large = balanced_assignment_solver.LARGE
    for groups in (clients // 140, clients // 50, clients // 20):
        found = []
        for balanced_assignment_solver.LARGE in (1 << 62, 0):
            ways = [formed(counts, Grouping(assign="icg", groups=groups), seed) for seed in (1, 2, 3)]
            found.append(statistics.fmean(quality(counts, each).median_cpd or 0 for each in ways))
        exact, near = found
        yield f"| M = {groups} | {exact:.6f} | {near:.6f} | {100 * (near / exact - 1):+.1f} % |"
    balanced_assignment_solver.LARGE = large


def parts(clients: int = 8_000) -> Iterator[str]:
    """What grouping in parts costs, where all clients can be grouped together."""
    counts, most = population(clients, 62, 0.3), icg_module.MOST_AT_ONCE
    yield f"| median CPD; ICG, K = {clients:,}, 62 classes | together | 2 parts | 4 parts | 8 parts | random groups |"
    yield "|---|" + "---:|" * 5
    for groups in (clients // 10, clients // 80):
        found = []
        for count in (1, 2, 4, 8):
            icg_module.MOST_AT_ONCE = clients // count
            found.append(formed(counts, Grouping(assign="icg", groups=groups)))
        found.append(formed(counts, Grouping(max_clients=clients // groups, min_samples=10**9)))
        cells = " | ".join(f"{quality(counts, each).median_cpd:.6f}" for each in found)
        yield f"| M = {groups} | {cells} |"
    icg_module.MOST_AT_ONCE = most


def balance(clients: int = 200, seeds: int = 5) -> Iterator[str]:
    """How complete groups are: clients with 10 classes, groups of ten, several seeds."""
    ten = {"max_clients": 10, "min_samples": 10 * SAMPLES}
    ways = [Grouping(assign=name, **ten) for name in ("random", "kmeans", "icg")]
    ways += [Grouping(assign="greedy", distance=name, **ten) for name in DISTANCES]
    alphas = (0.0, 0.2, 0.5)
    columns = " | ".join(f"α = {alpha:g}" for alpha in alphas)
    yield f"| balance ratio / classes covered; K = {clients} | {columns} |"
    yield "|---|" + "---:|" * len(alphas)
    for way in ways:
        cells = []
        for alpha in alphas:
            populations = {seed: population(clients, 10, alpha, seed) for seed in range(1, seeds + 1)}
            found = [quality(counts, formed(counts, way, seed)) for seed, counts in populations.items()]
            ratio, covered = (
                statistics.fmean(getattr(each, name) for each in found) for name in ("balance_ratio", "covered_classes")
            )
            cells.append(f"{ratio:.3f} / {covered:.2f}")
        yield f"| {way.name} | " + " | ".join(cells) + " |"


def profile_vector(seeds: int = 5) -> Iterator[str]:
    """How alike groups are: 120 clients in 10 groups, several seeds."""
    ways: dict[str, Callable[[Counts, int], list[tuple[int, ...]]]] = {
        "single clients": lambda counts, seed: [(client,) for client in range(len(counts))],
        "random groups": lambda counts, seed: formed(counts, Grouping(max_clients=12, min_samples=10**9), seed),
        "icg": lambda counts, seed: formed(counts, Grouping(assign="icg", groups=10), seed),
        "icg/counts": lambda counts, seed: formed(counts, Grouping(assign="icg", groups=10, profile="counts"), seed),
    }
    yield "| median CPD; K = 120, M = 10, Dirichlet(0.3) | CPD | below single clients | below random groups |"
    yield "|---|---:|---:|---:|"
    for classes in (10, 62):
        populations = {seed: population(120, classes, 0.3, seed) for seed in range(1, seeds + 1)}
        means = {}
        for name, form in ways.items():
            found = [quality(counts, form(counts, seed)).median_cpd or 0 for seed, counts in populations.items()]
            means[name] = statistics.fmean(found)
        for name, mean in means.items():
            below = (f"{100 * (1 - mean / means[other]):.0f} %" for other in ("single clients", "random groups"))
            yield f"| {name}, {classes} classes | {mean:.5f} | {' | '.join(below)} |"


def share(clients: int = 40_000, rounds: int = 30) -> Iterator[str]:
    """How much of a run of growing groups goes into forming them: synthetic clients, 1 % of them visited a round."""
    title = f"FedSeq2Par, {clients:,} clients, {rounds} rounds, from 50 groups"
    yield f"| {title} | groupings | seconds in all | forming groups |"
    yield "|---|---:|---:|---:|"
    for step in (0.0, 0.5):
        settings = {
            "rounds": rounds,
            "fraction": 0.01,
            "data": {"name": "synthetic", "clients": clients},
            "route": {"step": step, "beta": 50},
            "workers": 1,
        }
        run = prepare(experiment("fedseq2par", **settings))
        laps = []  # planning a round means forming its groups; where they stay the same it takes no time
        for round in range(1, rounds + 1):
            began = time.perf_counter()
            run.planner.plan(round)
            laps.append(time.perf_counter() - began)
        began = time.perf_counter()
        fr.run("fedseq2par", **settings)
        whole = time.perf_counter() - began
        groupings = sum(lap > 0.01 for lap in laps)
        yield f"| route.step = {step:g} | {groupings} | {whole:.1f} | {100 * sum(laps) / whole:.0f} % |"


def quality(counts: Counts, groups: list[tuple[int, ...]]) -> GroupQuality:
    """The quality of groups."""
    return group_quality(groups, counts, counts.sum(axis=1))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="leave out the cases of 40,000 clients and more")
    parser.add_argument("--quality", action="store_true", help="leave out the times")
    parser.add_argument("--smoke", action="store_true", help="only see that it works: every table with a few clients")
    options = parser.parse_args()
    cases = [case for case in CASES if not options.fast or case.clients < 40_000]
    tables = [exactness(), parts(), balance(), profile_vector()]
    slow = [] if options.fast else [share()]
    wanted = tables if options.quality else [times(cases), *slow, *tables]
    if options.smoke:
        wanted = [times(CASES[:1]), share(100, 2), exactness(280), parts(320), balance(40, 1), profile_vector(1)]
    for table in wanted:
        for line in table:
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
