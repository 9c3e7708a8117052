"""Can a server form balanced groups from nothing but the losses that clients report along chains?

    .venv/bin/python benchmarks/groups_from_losses.py           print the table
    .venv/bin/python benchmarks/groups_from_losses.py --smoke   one data set, two passes

The idea: a client whose predecessor in a chain has the same classes starts with a small loss. In a bare loop with the
ingredients of `relay` (passes, chains of ten in random groups, look-ahead, cosine, clipping) every client reports the
loss of its first batch. The logarithms of these losses, standardised for every pass and place in a chain, count as
similarities of a client and its last four predecessors; the leading eigenvectors of that matrix give every client a
position. Clients are clustered by it, and groups take clients from all clusters. Printed after every third pass: the
mean of these numbers behind a client with the same class in the last three passes, the area under the ROC curve of the
cosines of positions for pairs of the same class (.5 is chance), and how many classes a group has. Means of three seeds.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans
from sklearn.metrics import roc_auc_score
from torch.nn.functional import cross_entropy
from workloads import available

import fedrelay as fr

CLIENTS, CHAIN, CHAINS_PER_ROUND = 100, 10, 2
ROUNDS_PER_PASS = CLIENTS // (CHAIN * CHAINS_PER_ROUND)
LAGS, FADING = 4, 0.6
"""How many predecessors count, and the weight of each against the one after it."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Workload:
    """Data that are dealt out with one class a client."""

    title: str
    data: str
    samples: int | None = None


WORKLOADS = (Workload("Digits", "digits"), Workload("Fashion-MNIST", "fashion-mnist", 6000))


@dataclass(frozen=True)
class Reported:
    """The first loss of a client in a chain, and who trained before it."""

    number: int
    """The number of the pass."""

    client: int
    before: tuple[int, ...]
    loss: float


class Chains:
    """Chains of clients in passes, trained in a bare loop."""

    def __init__(self, workload: Workload, passes: int, lr: float, seed: int) -> None:
        data = fr.load_data(workload.data, clients=CLIENTS, alpha=0, samples=workload.samples, seed=seed)
        parts = [data.train_samples(client) for client in range(CLIENTS)]
        self.inputs = [part.single_input.flatten(1) for part in parts]
        self.labels = [part.y for part in parts]
        self.classes = np.array([int(data.histogram(client).argmax()) for client in range(CLIENTS)])
        self.rng = np.random.default_rng(seed)
        self.rounds, self.lr = passes * ROUNDS_PER_PASS, lr
        torch.manual_seed(seed)
        width = self.inputs[0].shape[1]
        self.model = torch.nn.Sequential(
            torch.nn.Linear(width, 64), torch.nn.ReLU(), torch.nn.Linear(64, data.class_count)
        )
        self.merged = self.before = self._weights()
        self.round = self.passes = 0

    def one_pass(self) -> list[Reported]:
        """Every client once, in random groups."""
        self.passes += 1
        order, size = self.rng.permutation(CLIENTS), CHAIN * CHAINS_PER_ROUND
        return [found for start in range(0, CLIENTS, size) for found in self._one_round(order[start : start + size])]

    def _one_round(self, clients: NDArray[np.int64]) -> list[Reported]:
        self.round += 1
        lr = self.lr * 0.5 * (1 + math.cos(math.pi * (self.round - 1) / self.rounds))
        ahead = min(0.9, max(0, self.round - 2) / (self.round + 1))  # after merge t = round − 1: (t − 1)/(t + 2)
        start = self.merged + ahead * (self.merged - self.before)
        ends, reported = [], []
        for chain in clients.reshape(CHAINS_PER_ROUND, CHAIN).tolist():
            torch.nn.utils.vector_to_parameters(start, self.model.parameters())
            for place, client in enumerate(chain):
                first_loss = self._train(client, lr)
                reported.append(Reported(self.passes, client, tuple(chain[:place]), first_loss))
            ends.append(self._weights())
        self.before, self.merged = self.merged, torch.stack(ends).mean(0)
        return reported

    def _train(self, client: int, lr: float) -> float:
        """One epoch; the loss of the first batch before any step."""
        first = math.nan
        order = torch.as_tensor(self.rng.permutation(len(self.labels[client])))
        for batch in order.split(10):
            self.model.zero_grad()
            loss = cross_entropy(self.model(self.inputs[client][batch]), self.labels[client][batch])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            with torch.no_grad():
                for weights in self.model.parameters():
                    weights -= lr * weights.grad
            first = loss.item() if math.isnan(first) else first
        return first

    def _weights(self) -> torch.Tensor:
        return torch.nn.utils.parameters_to_vector(self.model.parameters()).detach().clone()


def standardised(reported: list[Reported]) -> Floats:
    """Logarithms of losses, with mean 0 and standard deviation 1 for every pass and place in a chain."""
    logs = np.log([found.loss + 1e-3 for found in reported])
    places = np.array([found.number * CHAIN + len(found.before) for found in reported])
    for place in np.unique(places):
        here = places == place
        logs[here] = (logs[here] - logs[here].mean()) / (logs[here].std() + 1e-9)
    return logs


def similarities(reported: list[Reported], losses: Floats) -> Floats:
    """Client × client: how small the losses of one were behind the other."""
    found = np.zeros((CLIENTS, CLIENTS))
    for report, loss in zip(reported, losses, strict=True):
        for lag, before in enumerate(report.before[::-1][:LAGS]):
            found[report.client, before] -= loss * FADING**lag
    return found + found.T


def positions(similar: Floats, dimensions: int = 10) -> Floats:
    """Clients as points on a sphere: the leading eigenvectors."""
    values, vectors = np.linalg.eigh(similar)
    points = vectors[:, -dimensions:] * np.sqrt(np.maximum(values[-dimensions:], 0))
    return np.asarray(points / (np.linalg.norm(points, axis=1, keepdims=True) + 1e-9))


def classes_in_groups(points: Floats, classes: NDArray[np.int64]) -> float:
    """The mean number of classes in groups that take clients from all clusters in turn."""
    clusters = KMeans(CHAIN, n_init=3, random_state=0).fit_predict(points)
    order, count = np.argsort(clusters, kind="stable"), CLIENTS // CHAIN
    return statistics.fmean(len(np.unique(classes[order[group::count]])) for group in range(count))


def measure(workload: Workload, passes: int, every: int, seed: int) -> list[list[float]]:
    """After every few passes: the mean behind the same class, the area, classes in a group and in a random one."""
    chains = Chains(workload, passes, lr=0.1, seed=seed)
    pairs = np.triu_indices(CLIENTS, 1)
    same_class = chains.classes[pairs[0]] == chains.classes[pairs[1]]
    by_chance = statistics.fmean(
        len(np.unique(chains.classes[chains.rng.permutation(CLIENTS)[:CHAIN]])) for _ in range(1000)
    )
    reported: list[Reported] = []
    rows = []
    for number in range(1, passes + 1):
        reported += chains.one_pass()
        if number % every:
            continue
        losses = standardised(reported)
        behind_same = [
            loss
            for found, loss in zip(reported, losses, strict=True)
            if found.number > number - every
            and found.before
            and chains.classes[found.before[-1]] == chains.classes[found.client]
        ]
        points = positions(similarities(reported, losses))
        area = roc_auc_score(same_class, (points @ points.T)[pairs])
        rows.append([statistics.fmean(behind_same), area, classes_in_groups(points, chains.classes), by_chance])
    return rows


def table(workload: Workload, passes: int, every: int, seeds: tuple[int, ...]) -> Iterator[str]:
    """Rows of the table: means over seeds."""
    means = np.mean([measure(workload, passes, every, seed) for seed in seeds], axis=0)
    for number, (behind_same, area, covered, by_chance) in enumerate(means, start=1):
        yield (
            f"| {workload.title} | {number * every} | {behind_same:.2f} | {area:.2f} | {covered:.1f} "
            f"| {by_chance:.1f} |"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="check that it works")
    smoke = parser.parse_args().smoke
    torch.set_num_threads(1)
    print("| data | passes | behind the same class, SD | area | classes in a group | in a random group |")
    print("|---|---:|---:|---:|---:|---:|")
    for workload in available(WORKLOADS[:1] if smoke else WORKLOADS):
        print("\n".join(table(workload, *((2, 1, (1,)) if smoke else (12, 3, (1, 2, 3))))), flush=True)


if __name__ == "__main__":
    main()
