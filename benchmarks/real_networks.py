"""Rounds of networks that people train, against the best bare PyTorch loops on all cores.

    .venv/bin/python benchmarks/real_networks.py             print the table (fifteen minutes or so)
    .venv/bin/python benchmarks/real_networks.py --turns 9   measure more often
    .venv/bin/python benchmarks/real_networks.py lenet       some networks only
    .venv/bin/python benchmarks/real_networks.py --smoke     one turn of the first network, with two clients

A client update is one epoch of five SGD steps of batch 20 over 100 samples; `WHAT_IS_COMPARED` says the rest.
`benchmarks/peers.py` puts the same table on its page.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.synchronize import Barrier

import numpy as np
import torch
import torch._dynamo  # loaded by the first optimiser; here once, instead of in every process
import torch.nn.functional as F  # noqa: N812
from peers.table import Goal, Spread, brief, markdown
from torch import Tensor, nn

import fedrelay as fr
from fedrelay.engines.base import RoundInputs
from fedrelay.engines.local.executor import keep_freed_memory
from fedrelay.engines.local.simulation_engine import cores, start_local
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import experiment
from fedrelay.models.zoo import build_model
from fedrelay.routes.execution_overlay import AS_PLANNED
from fedrelay.routes.plan import RoundPlan, Route

CLIENTS, SAMPLES, BATCH, LEARNING_RATE = 10, 100, 20, 0.01
TURNS = 5
GOAL = 0.97
TIME_LIMIT = 600.0
"""Seconds of a round, after which a process must have died."""

FEDRELAY, BARE, CHANNELS_LAST, ONE_CORE = "FedRelay", "bare", "bare, channels-last weights", "one core"
WHAT_IS_COMPARED = """\
Client updates as above. A round takes ten clients, with ResNet-18 four, each of which starts from the first weights;
times are those of whole rounds divided by their clients. FedRelay runs it through its engine with one worker a core:
workers load the model, shuffle, train, check, store and report. Bare loops, one process a core, shuffle and train,
nothing else. They have one thread and FedRelay's memory settings, images are channels-last, and their optimiser is
PyTorch's fused SGD; with weights channels-last and as they come, the faster of the two counts. All take turns, round by
round. The ratio is the median over turns of the bare loops' time to FedRelay's: above 1, FedRelay is faster. The last
column is what the machine itself allows: how much faster the bare loops are on all cores than on one."""
RunHop = Callable[[int], None]
"""Client → one hop."""

RunRound = Callable[[], None]
"""One hop at every client."""


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
    clients: int = CLIENTS

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
        rng, count = np.random.default_rng(0), self.clients * SAMPLES
        numbers = rng.normal(size=(count, *self.shape)).astype(np.float32)
        x = rng.integers(self.classes, size=(count, *self.shape)) if self.has_tokens else numbers
        y, owners = rng.integers(self.classes, size=count), np.repeat(np.arange(self.clients), SAMPLES)
        return fr.federate(x, y, x[:10], y[:10], client_ids=owners, classes=self.classes)


NETWORKS = (
    Network("lenet", "LeNet, 32×32", (3, 32, 32), 10),
    Network("femnist-cnn", "FEMNIST CNN, 28×28", (1, 28, 28), 62),
    Network("char-lstm", "character LSTM, 80 characters", (80,), 80),
    Network("transformer", "small transformer, 80 tokens", (80,), 80),
    Network("resnet18", "ResNet-18, 32×32", (3, 32, 32), 10, clients=4),
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


@contextmanager
def bare_loops(
    network: Network, federation: fr.Federation, processes: int, *, channels_last_weights: bool
) -> Iterator[RunRound]:
    """A round of bare loops: every process has its share of the clients."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(processes + 1)

    def loop(clients: Sequence[int]) -> None:
        run_hop = bare_loop(network, federation, channels_last_weights=channels_last_weights)
        while True:
            barrier.wait()
            for client in clients:
                run_hop(client)
            barrier.wait()

    shares = [range(first, network.clients, processes) for first in range(processes)]
    workers = [context.Process(target=loop, args=(share,), daemon=True) for share in shares]
    for worker in workers:
        worker.start()
    try:
        yield lambda: _start_and_wait(barrier)
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _start_and_wait(barrier: Barrier) -> None:
    barrier.wait(TIME_LIMIT)
    barrier.wait(TIME_LIMIT)


@contextmanager
def fedrelay_workers(network: Network, federation: fr.Federation) -> Iterator[RunRound]:
    """A round of FedRelay: every client is a route of its own."""
    train = {"batch_size": BATCH, "lr": LEARNING_RATE}
    wanted = experiment("fedavg", train=train, data={"name": federation.name, "clients": network.clients})
    made = prepare(wanted, federation=federation, module=network.module())
    inputs = RoundInputs(made.prepared.layout.flatten(made.prepared.module))
    plan = RoundPlan(1, tuple(Route((client,)) for client in range(network.clients)))

    def run_round() -> None:
        arrivals = engine.run_round(plan, AS_PLANNED, inputs)
        assert [each.steps for each in arrivals] == [SAMPLES // BATCH] * network.clients

    with closing(start_local(made.prepared.job(), workers=cores())) as engine:
        yield run_round


def seconds_of_turns(programs: dict[str, RunRound], turns: int) -> dict[str, list[float]]:
    """How long each program takes for a round, at every turn but the first, which warms up."""
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for turn in range(turns + 1):
        for name, run_round in programs.items():
            began = time.perf_counter()
            run_round()
            if turn:
                seconds[name].append(time.perf_counter() - began)
    return seconds


def measure(network: Network, turns: int) -> tuple[str, ...]:
    """One row of the table."""
    federation = network.federation()
    with ExitStack() as running:

        def bare(processes: int, *, channels_last: bool) -> RunRound:
            loops = bare_loops(network, federation, processes, channels_last_weights=channels_last)
            return running.enter_context(loops)

        programs = {FEDRELAY: running.enter_context(fedrelay_workers(network, federation))}
        programs[BARE] = bare(cores(), channels_last=False)
        if not network.has_tokens:
            programs[CHANNELS_LAST] = bare(cores(), channels_last=True)
        loops = tuple(name for name in programs if name != FEDRELAY)
        programs[ONE_CORE] = bare(1, channels_last=False)
        seconds = seconds_of_turns(programs, turns)
    measured = {(name, network.name): found for name, found in seconds.items()}
    _, goal, ratio, verdict = Goal(network.title, network.name, loops, GOAL).row(measured)
    *_, machine, _ = Goal(network.title, network.name, (ONE_CORE,), None, than=BARE).row(measured)
    ours, *theirs = (1000 * Spread.of(seconds[name]).middle / network.clients for name in (FEDRELAY, *loops))
    return network.title, brief(ours), brief(min(theirs)), goal, ratio, verdict, machine


HEAD = (
    "network",
    "FedRelay, ms per client update",
    "bare loops, ms per client update",
    "goal",
    "bare / FedRelay",
    "verdict",
    "the machine itself",
)


def measured_table(networks: Sequence[Network], turns: int) -> str:
    """Measure all networks, in this process and workers that it forks, and say every row as it comes."""
    torch.set_num_threads(1)
    keep_freed_memory()
    rows = []
    for network in networks:
        rows.append(measure(network, turns))
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    return markdown(HEAD, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=", ".join(each.name for each in NETWORKS))
    parser.add_argument("--turns", type=int, default=TURNS, help="how often each program is measured")
    parser.add_argument("--smoke", action="store_true", help="one turn of the first network, with two clients")
    wanted = parser.parse_args()
    if unknown := set(wanted.networks) - {each.name for each in NETWORKS}:
        parser.error(f"unknown network: {', '.join(sorted(unknown))}")
    if wanted.smoke:
        print(measured_table([replace(NETWORKS[0], clients=2)], turns=1))
        return
    print(
        measured_table([each for each in NETWORKS if not wanted.networks or each.name in wanted.networks], wanted.turns)
    )
    print(f"\n{cores()} cores, load {os.getloadavg()[0]:.1f}, PyTorch {torch.__version__}")


if __name__ == "__main__":
    main()
