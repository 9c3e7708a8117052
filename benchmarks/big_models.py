"""A model of 50 million parameters (200 MB) in the local engine: memory, and time against a plain PyTorch loop.

    .venv/bin/python benchmarks/big_models.py            print the table; takes some minutes and 4 GB of memory
    .venv/bin/python benchmarks/big_models.py --smoke    a small model, in seconds

A wide MLP is trained on noise at eight clients, all of which take part in every round: FedAvg, where eight models are
at the server when it merges, and FedSeq with two chains of four. The plain loop is FedAvg by hand in one process, with
the same number of steps, without evaluation: once as it is, and once with the memory settings of FedRelay's workers,
which keep what is freed. With one worker everything happens in the main process, whose memory settings stay as they
are. Each case runs in a process of its own.

Memory is in models, and is sampled while the run goes on: that of the main process, the module included; what a worker
has for itself; what they share (the model of the round, and the model of each route); and all processes together, in
which shared pages count once. Libraries do not count in the main process. Time is CPU time of all processes per client
update, because waiting for cores is not work. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import fedrelay as fr
from fedrelay.engines.local.executor import keep_freed_memory

FEATURES, CLASSES = 784, 10
CLIENTS, SAMPLES, BATCH, LR = 8, 64, 16, 0.01
TESTED = 64
PAUSE = 0.1
"""Seconds between two samples of the memory."""

CASES: Mapping[str, Mapping[str, Any]] = {
    "plain PyTorch": {},
    "plain, memory kept": {},
    "fedavg, 1 worker": {"method": "fedavg", "workers": 1},
    "fedavg, 2 workers": {"method": "fedavg", "workers": 2},
    "fedseq, 1 worker": {"method": "fedseq", "workers": 1},
    "fedseq, 2 workers": {"method": "fedseq", "workers": 2},
}
CHAINS = {"grouping.max_clients": 4, "grouping.min_samples": 10**6}
COLUMNS = ("main", "worker", "shared", "all")


def noise(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(rows, FEATURES)).astype(np.float32), rng.integers(0, CLASSES, rows)


def federation() -> fr.Federation:
    """Clients with the same number of samples."""
    x, y = noise(CLIENTS * SAMPLES, 0)
    owners = np.repeat(np.arange(CLIENTS), SAMPLES).tolist()
    return fr.federate(x, y, *noise(TESTED, 1), client_ids=owners, partition="natural")


def network(hidden: list[int]) -> nn.Sequential:
    torch.manual_seed(0)
    sizes = [FEATURES, *hidden, CLASSES]
    layers = [layer for pair in pairwise(sizes) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


class MemorySampler:
    """The largest memory of this process and its workers, sampled by a thread."""

    def __init__(self) -> None:
        self.peak = dict.fromkeys(COLUMNS, 0)
        self.before = _memory(os.getpid())
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.seconds = 0.0
        """CPU time of the sampling itself."""

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.over.wait(PAUSE):
            main, *workers = [_memory(each) for each in (os.getpid(), *_children(os.getpid()))]
            found = {
                "main": main["Anonymous"] - self.before["Anonymous"],
                "worker": max((_private(each) for each in _children(os.getpid())), default=0),
                "shared": main["RssShmem"],
                "all": sum(each["Pss"] for each in (main, *workers)) - self.before["Pss"],
            }
            self.peak = {name: max(self.peak[name], found[name]) for name in COLUMNS}
            self.seconds = time.thread_time()


def _memory(process: int) -> Counter[str]:
    """Bytes of a process, as /proc/PID/smaps_rollup and status have them. `Pss` counts shared pages by their share."""
    place = Path(f"/proc/{process}")
    try:
        lines = [*(place / "smaps_rollup").read_text().splitlines()[1:], *(place / "status").read_text().splitlines()]
    except OSError:  # it has ended
        lines = []
    words = (line.split() for line in lines)
    return Counter({each[0].rstrip(":"): 1024 * int(each[1]) for each in words if each[-1] == "kB"})


def _private(process: int) -> int:
    """Bytes that only this process has and no file or shared memory stands for."""
    try:
        lines = Path(f"/proc/{process}/smaps").read_text().splitlines()
    except OSError:
        return 0
    total, nameless = 0, False
    for words in map(str.split, lines):
        if not words[0].endswith(":"):  # begins a mapping: addresses, rights, offset, device, inode, name
            nameless = words[4] == "0"
        elif nameless and words[0] in ("Private_Clean:", "Private_Dirty:"):
            total += 1024 * int(words[1])
    return total


def _children(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


class RoundTimes(fr.Callback):
    """The CPU time of all processes at the end of every round, without that of the sampling."""

    def __init__(self, sampler: MemorySampler) -> None:
        self.sampler = sampler
        self.ends: list[float] = []

    def on_round_end(self, context: object) -> None:
        ticks = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split() for each in _children(os.getpid())]
        workers = sum(int(each[11]) + int(each[12]) for each in ticks) / os.sysconf("SC_CLK_TCK")
        self.ends.append(time.process_time() + workers - self.sampler.seconds)


def plain_loop(module: nn.Sequential, rounds: int, times: RoundTimes) -> None:
    """FedAvg as one writes it by hand."""
    x, y = (torch.from_numpy(each) for each in noise(CLIENTS * SAMPLES, 0))
    loss_of, parameters = nn.CrossEntropyLoss(), list(module.parameters())
    for _ in range(rounds):
        start = [each.detach().clone() for each in parameters]
        total = [torch.zeros_like(each) for each in start]
        for client in range(CLIENTS):
            with torch.no_grad():
                for each, first in zip(parameters, start, strict=True):
                    each.copy_(first)
            optimizer = torch.optim.SGD(parameters, lr=LR)
            order = client * SAMPLES + torch.randperm(SAMPLES)
            for rows in order.split(BATCH):
                optimizer.zero_grad()
                loss_of(module(x[rows]), y[rows]).backward()
                optimizer.step()
            with torch.no_grad():
                for sum_of, each in zip(total, parameters, strict=True):
                    sum_of.add_(each, alpha=1 / CLIENTS)
        with torch.no_grad():
            for each, mean in zip(parameters, total, strict=True):
                each.copy_(mean)
        times.on_round_end(None)


def measure(case: str, hidden: list[int], rounds: int) -> dict[str, Any]:
    """The largest memory, in models, and the CPU seconds of a client update; the first round is not timed."""
    torch.set_num_threads(1)
    if case == "plain, memory kept":
        keep_freed_memory()
    data, settings, sampler = federation(), dict(CASES[case]), MemorySampler()
    module, times = network(hidden), RoundTimes(sampler)
    size = sum(each.numel() for each in module.parameters())
    with sampler:
        if settings:
            settings |= CHAINS if settings["method"] == "fedseq" else {}
            settings |= {"batch_size": BATCH, "lr": LR, "fraction": 1.0, "every": 10**6}
            fr.run(data=data, model=module, rounds=1 + rounds, callbacks=times, **settings)
        else:
            plain_loop(module, 1 + rounds, times)
    seconds = (times.ends[-1] - times.ends[0]) / (rounds * CLIENTS)
    return {"parameters": size, "seconds": seconds, **{name: sampler.peak[name] / (4 * size) for name in COLUMNS}}


def measure_elsewhere(case: str, hidden: list[int], rounds: int) -> dict[str, Any]:
    """The same in a new process."""
    sizes = [str(each) for each in hidden]
    command = [sys.executable, __file__, "--case", case, "--rounds", str(rounds), "--hidden", *sizes]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def print_row(*cells: str) -> None:
    widths = (19, 6, 6, 6, 6, 9, 0)
    print("  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, nargs="+", default=[3500] * 5, help="widths of the hidden layers")
    parser.add_argument("--rounds", type=int, default=2, help="rounds that are timed")
    parser.add_argument("--case", choices=CASES, help="only this one, as JSON")
    parser.add_argument("--smoke", action="store_true", help="a small model, in seconds")
    options = parser.parse_args()
    if options.case is not None:
        print(json.dumps(measure(options.case, options.hidden, options.rounds)))
        return 0
    hidden, rounds = ([256, 256], 1) if options.smoke else (options.hidden, options.rounds)
    print_row("", *COLUMNS, "CPU s", "× plain")
    plain = None
    for case in CASES:
        found = measure(case, hidden, rounds) if options.smoke else measure_elsewhere(case, hidden, rounds)
        plain = plain or found["seconds"]
        ratio = f"{found['seconds'] / plain:.2f}"
        print_row(case, *(f"{found[name]:.1f}" for name in COLUMNS), f"{found['seconds']:.3f}", ratio)
    steps = SAMPLES // BATCH
    print(f"{found['parameters']:,} parameters; memory in models; seconds per client update of {steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
