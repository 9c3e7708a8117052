"""A data set of 2 GB, trained by processes that stay below 1 GB: local workers, Ray workers and real nodes.

    .venv/bin/python benchmarks/large_data.py                  make the file, print the table, delete the file
    .venv/bin/python benchmarks/large_data.py --gigabytes 10   a larger file
    .venv/bin/python benchmarks/large_data.py --smoke          40 MB, without Ray and nodes

Each of two clients trains on the whole file: one round of FedAvg, one epoch. Samples are read one by one with file
reads, because pages of a mapped file would count as memory of the process. Each engine starts in a process of its own.

The peak is VmHWM of /proc/PID/status, after the last evaluation: all memory that was resident at once, libraries and
shared memory included. The other columns are what is resident at that time: RssAnon, RssFile and RssShmem. The command
fails if a process had 1 GB or more, or if the weights differ. Linux only.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loopback_nodes import loopback_nodes
from torch import Tensor
from torch.utils.data import Dataset

import fedrelay as fr

FEATURES = 25_000
ROW_BYTES = 4 * FEATURES
AT_ONCE = 200
"""Rows that are written at once."""

TESTED = 200
"""Rows at the end of the file that are for testing."""

CLIENTS = ("client-0", "client-1")
FILE = "rows.float32"
LIMIT = 10**9
ENGINES: Mapping[str, Mapping[str, Any]] = {
    "local, 1 worker": {"engine": "local", "workers": 1},
    "local, 2 workers": {"engine": "local", "workers": 2},
    "ray": {"engine": "ray", "workers": 2},
    "nodes": {},
}
SETTINGS: Mapping[str, Any] = {"model": "logistic", "rounds": 1, "fraction": 1.0, "batch_size": 32, "lr": 0.001}
COLUMNS = ("VmHWM", "RssAnon", "RssFile", "RssShmem")


class RowsInFile(Dataset[tuple[Tensor, int]]):
    """Some rows of a file; every second one has label 1."""

    def __init__(self, path: Path, rows: range) -> None:
        self.path, self.rows = path, rows
        self.targets = np.array(rows) % 2

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        values = np.fromfile(self.path, np.float32, FEATURES, offset=ROW_BYTES * self.rows[row])
        return torch.from_numpy(values), int(self.targets[row])


def rows_to_train(folder: Path = Path("..")) -> RowsInFile:
    """All rows but those for testing. A node runs in a folder below that of the file."""
    path = folder / FILE
    return RowsInFile(path, range(path.stat().st_size // ROW_BYTES - TESTED))


def rows_to_test(folder: Path = Path("..")) -> RowsInFile:
    """The rows for testing."""
    path = folder / FILE
    rows = path.stat().st_size // ROW_BYTES
    return RowsInFile(path, range(rows - TESTED, rows))


def write_rows(path: Path, size: int) -> None:
    """Noise, with another mean where the label is 1."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(AT_ONCE, FEATURES)).astype(np.float32)
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)  # so that a full disk is noticed now
        for _ in range(size // (AT_ONCE * ROW_BYTES)):
            rows = noise + rng.normal(size=(AT_ONCE, 1)).astype(np.float32)
            rows[1::2] += 0.1
            rows.tofile(file)


def memory(process: int) -> dict[str, int]:
    """Bytes of a process, as /proc/PID/status has them."""
    lines = (line.split() for line in Path(f"/proc/{process}/status").read_text().splitlines())
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if words[0].rstrip(":") in COLUMNS}


def descendants(process: int) -> Iterator[int]:
    """All processes that a process has started, and those that they have started."""
    for task in Path(f"/proc/{process}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            yield child
            yield from descendants(child)


def name_of(process: int) -> str:
    return Path(f"/proc/{process}/cmdline").read_text().split("\0")[0]


class WorkerMemory(fr.Callback):
    """Notes the memory of workers after the last round, while they are there."""

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.found: dict[str, dict[str, int]] = {}

    def on_round_end(self, context: fr.RoundContext) -> None:
        own = os.getpid()
        self.found = {"server": memory(own)}
        for number, process in enumerate(filter(self.reads_samples, descendants(own)), start=1):
            self.found[f"worker {number}"] = memory(process)

    def reads_samples(self, process: int) -> bool:
        """Whether a process is a worker; a cluster has other ones, too."""
        return self.engine != "ray" or name_of(process).startswith("ray::")


def measure(engine: str, folder: Path) -> dict[str, Any]:
    """Run an engine: the hash of its weights, and the memory of each of its processes."""
    if engine != "nodes":
        noted = WorkerMemory(engine)
        data = fr.federate_datasets({name: rows_to_train(folder) for name in CLIENTS}, rows_to_test(folder))
        result = fr.run("fedavg", data=data, callbacks=noted, **SETTINGS, **ENGINES[engine])
        return {"weights": result.weights_sha256, "memory": noted.found}
    with ExitStack() as stack:
        places = {name: folder / name for name in (*CLIENTS, "test")}
        for place in places.values():
            place.mkdir()
        clients = {name: places[name] for name in CLIENTS}
        options = ("--data", "large_data:rows_to_train")
        nodes = stack.enter_context(loopback_nodes(folder, clients, options, "large_data:rows_to_test"))
        stack.enter_context(contextlib.chdir(places["test"]))
        result = fr.run("fedavg", data="large", engine=nodes.engine, **SETTINGS, **{"recovery.timeout": 600.0})
        found = {"server": memory(os.getpid())}
        found |= {f"node {name}": memory(process) for name, process in nodes.processes.items()}
        return {"weights": result.weights_sha256, "memory": found}


def measure_elsewhere(engine: str, folder: Path) -> dict[str, Any]:
    """The same in a new process, whose peak is that of this engine alone."""
    command = [sys.executable, __file__, "--engine", engine, "--folder", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def installed_engines() -> list[str]:
    packages = {"ray": "ray", "nodes": "flwr"}
    return [name for name in ENGINES if importlib.util.find_spec(packages.get(name, "fedrelay")) is not None]


def print_row(*cells: str) -> None:
    print("  ".join(f"{cell:{width}}" for cell, width in zip(cells, (17, 14, 9, 9, 9, 9, 0), strict=True)), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=2.0, help="size of the file")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--smoke", action="store_true", help="40 MB, without Ray and nodes")
    options = parser.parse_args()
    if options.engine is not None:
        print(json.dumps(measure(options.engine, options.folder)))
        return 0
    block = AT_ONCE * ROW_BYTES
    size = 2 * block if options.smoke else int(options.gigabytes * 1e9) // block * block
    largest, hashes = 0, set()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / FILE, size)
        print(f"{(folder / FILE).stat().st_size / 1e9:.2f} GB on disk; memory in MB")
        print_row("engine", "process", "peak", "anonymous", "files", "shared", "weights")
        for engine in ["local, 1 worker"] if options.smoke else installed_engines():
            found = measure(engine, folder) if options.smoke else measure_elsewhere(engine, folder)
            hashes.add(found["weights"])
            for process, used in found["memory"].items():
                print_row(engine, process, *(f"{used[each] / 1e6:.0f}" for each in COLUMNS), found["weights"][:12])
                largest = max(largest, used["VmHWM"])
    weights = "the same weights everywhere" if len(hashes) == 1 else f"{len(hashes)} DIFFERENT weights"
    print(f"largest peak {largest / 1e6:.0f} MB (goal under {LIMIT / 1e6:.0f}); {weights}")
    return 0 if largest < LIMIT and len(hashes) == 1 else 1


if __name__ == "__main__":
    sys.exit(main())
