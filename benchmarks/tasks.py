"""Four methods on five learning tasks, on one worker, two workers and Ray: the same bits on each of them.

    .venv/bin/python benchmarks/tasks.py             print the table
    .venv/bin/python benchmarks/tasks.py --rounds 20 train longer
    .venv/bin/python benchmarks/tasks.py --smoke     one method, one round, without Ray

The tasks are a binary diagnosis (heart disease in four hospitals), a regression, a segmentation (`shapes` with the
U-Net), a diagnosis from volumes, and a classification whose samples are read from files. The command fails if an engine
ends with other weights, and its last line names the engines that ran. Ray is left out if it is not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import logging
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

import fedrelay as fr

METHODS: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {},
    "fedseq": {},
    "spfl": {},
    "fedgsp": {"route.beta": 2},  # the default is for hundreds of clients; with six, every client would be a group
}
ENGINES: Mapping[str, Mapping[str, Any]] = {
    "local, 1 worker": {"engine": "local", "workers": 1},
    "local, 2 workers": {"engine": "local", "workers": 2},
    "ray": {"engine": "ray", "workers": 2},
}
CLIENTS = 6


@dataclass(frozen=True)
class LearningTask:
    """A task: its data, made in a folder, and the settings of its runs."""

    name: str
    data: Callable[[Path], Any]
    settings: Mapping[str, Any] = field(default_factory=dict)


def regression(_folder: Path) -> fr.Federation:
    """A noisy linear function of ten features."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(360, 10)).astype(np.float32)
    y = x @ rng.normal(size=10) / 3 + 0.1 * rng.normal(size=360)
    return fr.federate(x[:300], y[:300], x[300:], y[300:], clients=CLIENTS, partition="iid")


def volumes(_folder: Path) -> fr.Federation:
    """Noise, in half of the volumes with a bright cube at a random place; each client has its own brightness."""
    rng = np.random.default_rng(1)
    owner, ill = np.arange(150) % CLIENTS, rng.integers(0, 2, 150)
    x = (rng.normal(size=(150, 1, 8, 8, 8)) + 0.1 * owner[:, None, None, None, None]).astype(np.float32)
    for number, (a, b, c) in zip(np.flatnonzero(ill), rng.integers(0, 5, (int(ill.sum()), 3)), strict=True):
        x[number, 0, a : a + 4, b : b + 4, c : c + 4] += 2.0
    train, test = slice(120), slice(120, None)
    return fr.federate(x[train], ill[train], x[test], ill[test], client_ids=owner[train], task="binary")


class RowsOnDisk(Dataset[tuple[torch.Tensor, int]]):
    """Rows of one client's file. The file is opened for each sample, so nothing of it stays in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.targets = np.load(path)[:, -1].astype(np.int64)

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
        values = np.array(np.load(self.path, mmap_mode="r")[row, :-1])
        return torch.from_numpy(values), int(self.targets[row])


def on_disk(folder: Path) -> fr.Federation:
    """Three classes around centres of their own, one file for each client and one for testing."""
    rng = np.random.default_rng(2)
    centres = rng.normal(size=(3, 8))
    paths = [folder / f"client-{client}.npy" for client in range(CLIENTS)] + [folder / "test.npy"]
    for path in paths:
        labels = rng.integers(0, 3, 40)
        rows = np.column_stack([centres[labels] + rng.normal(size=(40, 8)), labels])
        np.save(path, rows.astype(np.float32))
    *train, test = map(RowsOnDisk, paths)
    return fr.federate_datasets(train, test, name="on-disk")


TASKS = (
    LearningTask("heart-disease", lambda _: "heart-disease"),
    LearningTask("regression", regression),
    LearningTask("shapes, U-Net", lambda _: "shapes", {"model": "unet", "clients": CLIENTS}),
    LearningTask("volumes", volumes, {"model": "cnn-3d", "batch_size": 4}),
    LearningTask("dataset on disk", on_disk),
)


def engines(*, ray: bool) -> dict[str, Mapping[str, Any]]:
    """The engines that are there."""
    with_ray = ray and importlib.util.find_spec("ray") is not None
    return {name: settings for name, settings in ENGINES.items() if with_ray or name != "ray"}


def results(task: LearningTask, data: Any, method: str, rounds: int, *, ray: bool) -> Iterator[tuple[str, fr.Result]]:
    """The same run on each engine."""
    for engine, settings in engines(ray=ray).items():
        own = {**METHODS[method], **task.settings, **settings}
        yield engine, fr.run(method, data=data, rounds=rounds, fraction=1.0, seed=1, **own)


def print_row(task: str, method: str, engine: str, score: str, weights: str) -> None:
    print(f"{task:16} {method:8} {engine:17} {score:18} {weights}", flush=True)


def verdict(differing: Sequence[str], compared: Iterable[str]) -> str:
    """What was found, and on which engines."""
    found = f"other weights on some engine for {', '.join(differing)}" if differing else "the same weights"
    return f"{found} (compared: {'; '.join(compared)})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each run")
    parser.add_argument("--smoke", action="store_true", help="one method, one round, without Ray")
    wanted = parser.parse_args()
    methods, rounds = (["fedavg"], 1) if wanted.smoke else ([*METHODS], wanted.rounds)
    logging.getLogger("fedrelay").setLevel(logging.ERROR)  # data without classes have random groups, as documented
    print_row("task", "method", "engine", "score", "weights")
    differing = []
    for task, method in product(TASKS, methods):
        with tempfile.TemporaryDirectory() as folder:
            hashes = set()
            for engine, found in results(task, task.data(Path(folder)), method, rounds, ray=not wanted.smoke):
                score = f"{found.metric} {found.score:.4f}"
                print_row(task.name, method, engine, score, found.weights_sha256[:12])
                hashes.add(found.weights_sha256)
            differing += [f"{method} on {task.name}"] if len(hashes) > 1 else []
    print(verdict(differing, engines(ray=not wanted.smoke)))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
