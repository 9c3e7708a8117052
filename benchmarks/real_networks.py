"""Hops of networks that people train, against the best bare PyTorch loop, and what two loops at once lose.

    .venv/bin/python benchmarks/real_networks.py             print the table (ten minutes or so)
    .venv/bin/python benchmarks/real_networks.py --turns 9   measure more often
    .venv/bin/python benchmarks/real_networks.py lenet       some networks only
    .venv/bin/python benchmarks/real_networks.py --smoke     one turn of the smallest network

A hop is one epoch of five SGD steps of batch 20 over 100 samples, other samples at every hop. FedRelay runs it through
its engine: it loads the model, shuffles, trains, checks, stores and reports. A bare loop shuffles and trains, nothing
else. It has one thread and FedRelay's memory settings, images are channels-last, and its optimiser is PyTorch's fused
SGD; with weights channels-last and as they come, the faster of the two counts. All take turns in one process, hop by
hop. The ratio is the median over turns of the bare loop's CPU time to FedRelay's: above 1, FedRelay is faster. The last
column is what the machine itself allows: how many times as many bare hops two processes finish as one, at best 2.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from statistics import median

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import fedrelay as fr
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.executor import keep_freed_memory
from fedrelay.engines.local.simulation_engine import start_local
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.models.zoo import build_model
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route

CLIENTS, SAMPLES, BATCH, LEARNING_RATE = 5, 100, 20, 0.01
TURNS = 5
RunHop = Callable[[int], None]
"""Client → one hop."""


class SmallTransformer(nn.Module):
    """A class from the mean over a sequence: two layers of width 64, four heads."""

    def __init__(self, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, 64)
        self.places = nn.Parameter(torch.zeros(length, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classifier = nn.Linear(64, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.classifier(self.encoder(self.tokens(tokens) + self.places).mean(1))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Network:
    """A network and the samples that it is trained on."""

    name: str
    title: str
    shape: tuple[int, ...]
    classes: int

    @property
    def has_tokens(self) -> bool:
        return len(self.shape) == 1

    def module(self) -> nn.Module:
        """The network with its first weights, always the same."""
        torch.manual_seed(1)
        if self.name == "transformer":
            return SmallTransformer(self.classes, self.shape[0])
        return build_model(self.name, self.shape, self.classes)

    def federation(self) -> fr.Federation:
        """Random samples."""
        rng, count = np.random.default_rng(0), CLIENTS * SAMPLES
        numbers = rng.normal(size=(count, *self.shape)).astype(np.float32)
        x = rng.integers(self.classes, size=(count, *self.shape)) if self.has_tokens else numbers
        y, owners = rng.integers(self.classes, size=count), np.repeat(np.arange(CLIENTS), SAMPLES)
        return fr.federate(x, y, x[:10], y[:10], client_ids=owners, classes=self.classes)


NETWORKS = (
    Network("lenet", "LeNet, 32×32", (3, 32, 32), 10),
    Network("femnist-cnn", "FEMNIST CNN, 28×28", (1, 28, 28), 62),
    Network("char-lstm", "character LSTM, 80 characters", (80,), 80),
    Network("transformer", "small transformer, 80 tokens", (80,), 80),
    Network("resnet18", "ResNet-18, 32×32", (3, 32, 32), 10),
)


def bare_loop(network: Network, federation: fr.Federation, *, channels_last_weights: bool) -> RunHop:
    """Nothing but training, from the first weights at every hop."""
    module, images = network.module().train(), not network.has_tokens
    if channels_last_weights:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    parameters = list(module.parameters())
    first = [each.detach().clone() for each in parameters]

    def run_hop(client: int) -> None:
        with torch.no_grad():
            for each, value in zip(parameters, first, strict=True):
                each.copy_(value)
        samples = federation.train_samples(client).load()
        order = torch.randperm(SAMPLES)
        x, y = samples.single_input[order], samples.y[order]
        x = x.to(memory_format=torch.channels_last) if images else x
        optimiser = torch.optim.SGD(parameters, lr=LEARNING_RATE, fused=True)
        for begin in range(0, SAMPLES, BATCH):
            optimiser.zero_grad()
            F.cross_entropy(module(x[begin : begin + BATCH]), y[begin : begin + BATCH]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    return run_hop


def measure(network: Network, turns: int) -> str:
    """One row of the table."""
    federation = network.federation()
    train = {"batch_size": BATCH, "lr": LEARNING_RATE}
    wanted = experiment("fedavg", train=train, data={"name": federation.name, "clients": CLIENTS})
    made = prepare(wanted, federation=federation, module=network.module())
    inputs = RoundInputs(made.prepared.layout.flatten(made.prepared.module))
    with closing(start_local(made.prepared.job(), workers=1)) as engine:
        programs: dict[str, RunHop] = {
            "FedRelay": lambda client: check(engine.run_round(RoundPlan(1, (Route((client,)),)), AS_PLANNED, inputs)),
            "bare": bare_loop(network, federation, channels_last_weights=False),
        }
        if not network.has_tokens:
            programs["bare, channels-last weights"] = bare_loop(network, federation, channels_last_weights=True)
        cpu: dict[str, list[float]] = {name: [] for name in programs}
        wall: dict[str, list[float]] = {name: [] for name in programs}
        for turn in range(turns + 1):
            for name, run_hop in programs.items():
                began = time.process_time(), time.perf_counter()
                run_hop(turn % CLIENTS)
                if turn:  # the first turn warms up
                    cpu[name].append(1000 * (time.process_time() - began[0]))
                    wall[name].append(1000 * (time.perf_counter() - began[1]))
    best = min((name for name in programs if name != "FedRelay"), key=lambda name: median(cpu[name]))
    ratios = [
        median(bare / ours for bare, ours in zip(taken[best], taken["FedRelay"], strict=True)) for taken in (cpu, wall)
    ]
    cells = (
        *(f"{median(cpu[name]):.4g}" for name in ("FedRelay", best)),
        *(f"{ratio:.3f}" for ratio in ratios),
        f"{two_at_once(network, federation, turns):.2f}",
    )
    return f"| {network.title} | {' | '.join(cells)} |"


def check(arrivals: list[fr.Arrival]) -> None:
    """Nothing is left out."""
    assert [each.steps for each in arrivals] == [SAMPLES // BATCH]


def two_at_once(network: Network, federation: fr.Federation, hops: int) -> float:
    """How many times as many hops two bare loops finish as one, in the same time."""
    return 2 * seconds_of_loops(network, federation, hops, 1) / seconds_of_loops(network, federation, hops, 2)


def seconds_of_loops(network: Network, federation: fr.Federation, hops: int, processes: int) -> float:
    """How long so many hops take in each of some processes."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes + 1)
    workers = [
        context.Process(target=loop, args=(network, federation, hops, barrier), daemon=True) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    began = time.perf_counter()
    barrier.wait()
    taken = time.perf_counter() - began
    for worker in workers:
        worker.join()
    return taken


def loop(network: Network, federation: fr.Federation, hops: int, barrier: Barrier) -> None:
    """What one process does, between two barriers."""
    run_hop = bare_loop(network, federation, channels_last_weights=False)
    run_hop(0)
    barrier.wait()
    for hop in range(hops):
        run_hop(hop % CLIENTS)
    barrier.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(each.name for each in NETWORKS))
    parser.add_argument("--turns", type=int, default=TURNS, help="how often each program is measured")
    parser.add_argument("--smoke", action="store_true", help="one turn of the smallest network")
    wanted = parser.parse_args()
    if unknown := set(wanted.networks) - {each.name for each in NETWORKS}:
        parser.error(f"unknown network: {', '.join(sorted(unknown))}")
    names, turns = (["transformer"], 1) if wanted.smoke else (wanted.networks, wanted.turns)
    torch.set_num_threads(1)
    keep_freed_memory()
    print("| ms of CPU time for a hop | FedRelay | bare loop | ratio | of wall times | two bare loops at once |")
    print("|---|---:|---:|---:|---:|---:|")
    for network in NETWORKS:
        if not names or network.name in names:
            print(measure(network, turns), flush=True)
    print(f"\n{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
