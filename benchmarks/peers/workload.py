"""The work that every contender does: the same model, weights, data and local pass. Needs nothing but PyTorch.

A client update is one epoch over 100 samples in batches of 20: five SGD steps. Every round takes some of 100 clients.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

POPULATION, SAMPLES, BATCH, STEPS, CLASSES = 100, 100, 20, 5, 10
LEARNING_RATE = 0.05
WARM_UP = 3
"""Rounds before the clock starts; the loss after them shows whether all contenders did the same."""


@dataclass(frozen=True)
class Case:
    """One kind of model and one number of clients a round."""

    name: str
    title: str
    shape: tuple[int, ...]
    clients: int

    @property
    def fraction(self) -> float:
        """The share of clients that take part in a round."""
        return self.clients / POPULATION

    def model(self, *, channels_last: bool = False) -> nn.Sequential:
        """The network with its first weights, always the same; its users may order the memory by hand."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            if len(self.shape) == 1:
                return nn.Sequential(nn.Linear(self.shape[0], 64), nn.ReLU(), nn.Linear(64, CLASSES))
            side = self.shape[1] // 4
            network = nn.Sequential(
                *(nn.Conv2d(self.shape[0], 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
                *(nn.Flatten(), nn.Linear(16 * side * side, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
            )
            if channels_last:
                # Makes convolutions on a CPU fast. Of images with one channel the weights alone decide the order.
                network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            return network

    def data(self) -> tuple[Tensor, Tensor]:
        """Inputs `[clients, samples, …]` and labels `[clients, samples]`: random, but with something to learn."""
        rng = torch.Generator().manual_seed(2)
        centres = torch.randn(CLASSES, *self.shape, generator=rng)
        y = torch.randint(CLASSES, (POPULATION, SAMPLES), generator=rng)
        return centres[y] + torch.randn(POPULATION, SAMPLES, *self.shape, generator=rng), y

    def fingerprint(self) -> str:
        """The same for all who train this model on these data."""
        x, y = self.data()
        state = hashlib.sha256()
        for tensor in (x, y, *self.model().parameters()):
            state.update(tensor.detach().numpy().tobytes())
        return state.hexdigest()[:16]

    def loss(self, model: nn.Module) -> float:
        """The mean loss over everybody's samples."""
        x, y = self.data()
        with torch.no_grad():
            return float(F.cross_entropy(model(x.flatten(0, 1)), y.flatten()))


CASES = {
    case.name: case
    for case in (
        Case("conv", "convolutional, 10 clients a round", (1, 28, 28), 10),
        Case("dense", "dense, 10 clients a round", (64,), 10),
        Case("dense-100", "dense, 100 clients a round", (64,), 100),
    )
}


def local_pass(model: nn.Module, x: Tensor, y: Tensor) -> int:
    """One client update in plain PyTorch, for contenders whose users write it themselves; returns the steps taken."""
    optimiser = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    order = torch.randperm(len(y))
    x, y = x[order], y[order]
    for begin in range(0, len(y), BATCH):
        optimiser.zero_grad()
        F.cross_entropy(model(x[begin : begin + BATCH]), y[begin : begin + BATCH]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return -(-len(y) // BATCH)


def keep_freed_memory() -> None:
    """Tell glibc not to hand large freed buffers back to the kernel, as FedRelay's workers do."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        trim_threshold, mmap_threshold = -1, -3
        mallopt(trim_threshold, 2**30)
        mallopt(mmap_threshold, 2**30)


@dataclass(frozen=True)
class Task:
    """What a contender's script is asked to do."""

    case: Case
    rounds: int
    variant: str


def task(variants: tuple[str, ...] = ("",)) -> Task:
    """Read the command line of a contender's script."""
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("rounds", type=int, help="rounds to be timed, after the warm-up")
    parser.add_argument("variant", nargs="?", choices=variants, default=variants[0])
    given = parser.parse_args()
    return Task(CASES[given.case], given.rounds, given.variant)


def report(case: Case, seconds: float, updates: int, **more: Any) -> None:
    """Print what was measured, as one line of JSON."""
    line = {"case": case.name, "seconds": seconds / updates, "updates": updates, "work": case.fingerprint(), **more}
    print(json.dumps(line), flush=True)
