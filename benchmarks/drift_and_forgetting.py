"""What routes do to a model before it is merged: how far they drift apart, and what they forget.

    .venv/bin/python benchmarks/drift_and_forgetting.py           print the page (ten minutes)
    .venv/bin/python benchmarks/drift_and_forgetting.py --write   also write docs/drift-and-forgetting.md
    .venv/bin/python benchmarks/drift_and_forgetting.py --smoke   one set of clients, two methods, a few rounds

Data that are missing are left out.

Every method has the best of five learning rates, by validation samples and one seed. Then three fresh seeds run, and in
every third round the models are looked at as clients receive them, and as they arrive at the server:

- Drift: 1 minus the cosine between the changes of two routes, mean over all pairs of a round. At 0 all routes move the
  same way, at 1 they have nothing in common.
- Accuracy before the merge: of the arriving models, on all test samples, mean over routes.
- Forgetting: how much accuracy a route loses between its hop at a client and its end, on that client's samples; mean
  over all clients but the last. Routes of one hop have nothing to forget it by.
"""

from __future__ import annotations

import argparse
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor
from workloads import available

import fedrelay as fr
from fedrelay.data.samples import SampleSource
from fedrelay.engines.local.executor import one_thread
from fedrelay.engines.local.simulation_engine import cores
from fedrelay.experiment.prepare import PreparedRun, prepare
from fedrelay.experiment.spec import experiment
from fedrelay.local.evaluation import headline_score
from fedrelay.metrics.forgetting import backward_transfer
from fedrelay.models.flat_layout import FlatModule
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.round_loop import run_prepared
from fedrelay.runtime.side_by_side import side_by_side

DOCS = Path(__file__).parent.parent / "docs"
RATES = (0.03, 0.1, 0.3, 1.0, 3.0)
TUNING_SEED, SEEDS = 101, (1, 2, 3)
LOOK_EVERY = 3
"""Rounds; looking at models takes longer than training them."""


@dataclass(frozen=True)
class Clients:
    """Clients, and how long they train."""

    title: str
    data: str
    settings: Mapping[str, Any]


_COMMON = {"clients": 100, "fraction": 0.2, "batch_size": 10, "model": "mlp", "rounds": 60, "train.clip": 1.0}
_FASHION = {**_COMMON, "samples": 6000, "test_samples": 2000}
WORKLOADS = (
    Clients("Digits, one class a client", "digits", {**_COMMON, "alpha": 0.0}),
    Clients("Digits, clients that are alike", "digits", {**_COMMON, "partition": "iid"}),
    Clients("Fashion-MNIST, one class a client", "fashion-mnist", {**_FASHION, "alpha": 0.0}),
    Clients("Fashion-MNIST, clients that are alike", "fashion-mnist", {**_FASHION, "partition": "iid"}),
)
"""Gradients are clipped everywhere, as those of `relay` are."""

METHODS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "FedAvg": ("fedavg", {}),
    "FedSeq, random groups": ("fedseq", {}),
    "FedSeq, balanced groups": ("fedseq", {"grouping.assign": "icg"}),
    "relay without look-ahead": ("relay", {"server.lookahead": 0.0, "server.ramp": False}),
    "relay, random groups": ("relay", {"grouping.assign": "random"}),
    "relay": ("relay", {}),
}


def drift_of(changes: Sequence[Tensor]) -> float:
    """1 minus the mean cosine between two changes: the squared length of a sum of directions has all pairs in it."""
    directions = torch.stack([change.double() / change.double().norm() for change in changes])
    count = len(changes)
    return 1 - (float(directions.sum(0).square().sum()) - count) / (count * (count - 1))


@dataclass
class RouteTap:
    """Looks at the routes of some rounds. A tap sees every model as a client receives it."""

    run: PreparedRun
    drift: dict[int, float] = field(default_factory=dict)
    accuracy_before_merge: dict[int, float] = field(default_factory=dict)
    forgotten: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.flat_module = FlatModule(self.run.prepared.module, self.run.prepared.layout)

    def hops_to_tap(self, plan: RoundPlan) -> tuple[tuple[int, int], ...]:
        if plan.round % LOOK_EVERY:
            return ()
        return tuple((route, index) for route, each in enumerate(plan.routes) for index in range(len(each.clients)))

    def on_received_models(self, plan: RoundPlan, arrivals: Sequence[Arrival]) -> None:
        if plan.round % LOOK_EVERY:
            return
        self.drift[plan.round] = drift_of([each.weights - each.received_models[0] for each in arrivals])
        test = self.run.prepared.federation.test
        self.accuracy_before_merge[plan.round] = statistics.fmean(self._score(each.weights, test) for each in arrivals)
        if found := [lost for each in arrivals if (lost := self._forgotten(each)) is not None]:
            self.forgotten[plan.round] = statistics.fmean(found)

    def _forgotten(self, arrival: Arrival) -> float | None:
        after = [arrival.received_models[index] for index in range(1, len(arrival.clients))] + [arrival.weights]
        clients = [self.run.prepared.federation.train_samples(client) for client in arrival.clients]
        last = len(after) - 1
        matrix = np.zeros((len(after), len(after)))  # only the diagonal and the last row count
        for hop, model in enumerate(after):
            for place in range(len(after)) if hop == last else (hop,):
                matrix[hop, place] = self._score(model, clients[place])
        transfer = backward_transfer(matrix)
        return None if transfer is None else -transfer

    def _score(self, model: Tensor, samples: SampleSource) -> float:
        return headline_score(self.flat_module, model, self.run.prepared.task, samples)


@dataclass(frozen=True)
class Looked:
    """A run, and what its routes were like: round → value."""

    accuracy: Mapping[int, float]
    drift: Mapping[int, float]
    accuracy_before_merge: Mapping[int, float]
    forgotten: Mapping[int, float]


@dataclass(frozen=True)
class Run:
    """One run of a method."""

    clients: Clients
    method: str
    lr: float
    seed: int

    def prepared(self, **other: Any) -> PreparedRun:
        name, own = METHODS[self.method]
        settings = {"data": self.clients.data, "lr": self.lr, "seed": self.seed, "workers": 1, **own}
        return prepare(experiment(name, **{**self.clients.settings, **settings, **other}))


def validate(run: Run) -> float:
    """The score on validation samples; 0 if the run diverges."""
    with one_thread():
        try:
            found = run_prepared(run.prepared(validation=0.2, eval={"every": 10**6}))
        except fr.DivergedError:
            return 0.0
    return float(found.history[-1][f"validation_{found.metric}"])


def look(run: Run) -> Looked:
    """Run, and look at the routes."""
    with one_thread():
        made = run.prepared(eval={"every": LOOK_EVERY})
        tap = RouteTap(made)
        found = run_prepared(made, tap=tap)
    accuracy = {row["round"]: row[found.metric] for row in found.history}
    return Looked(accuracy, tap.drift, tap.accuracy_before_merge, tap.forgotten)


Results = Mapping[str, tuple[float, list[Looked]]]
"""Method → its learning rate, and its runs with fresh seeds."""


def results(clients: Clients, methods: Sequence[str], seeds: Sequence[int], jobs: int) -> Results:
    """Tune and run all methods."""
    trials = [Run(clients, method, lr, TUNING_SEED) for method in methods for lr in RATES]
    scores = {(run.method, run.lr): score for run, score in side_by_side(validate, trials, jobs)}
    best = {name: max(RATES, key=lambda lr: scores[name, lr]) for name in methods}
    runs = [Run(clients, name, best[name], seed) for name in methods for seed in seeds]
    looked = {(run.method, run.seed): found for run, found in side_by_side(look, runs, jobs)}
    return {name: (best[name], [looked[name, seed] for seed in seeds]) for name in methods}


def in_third(values: Mapping[int, float], third: int) -> float | None:
    """The mean over a third of the rounds: 1, 2 or 3."""
    found = [value for round, value in values.items() if third - 1 < 3 * round / max(values) <= third]
    return statistics.fmean(found) if found else None


COLUMNS = {
    "accuracy": ("accuracy, %", 3),
    "accuracy_before_merge": ("before the merge, %", 2),
    "drift": ("drift, × 100", 2),
    "forgotten": ("forgotten, points", 2),
}
"""What is shown, and in the table the third of the rounds: in the last one a cosine has ended all that routes do."""


def table(found: Results) -> Iterator[str]:
    """A row for each method: means over seeds and a third of the rounds."""
    yield "| method | learning rate | " + " | ".join(words for words, _ in COLUMNS.values()) + " |"
    yield "|---|---:|" + "---:|" * len(COLUMNS)
    for name, (lr, runs) in found.items():
        means = [[in_third(getattr(run, column), third) for run in runs] for column, (_, third) in COLUMNS.items()]
        cells = [f"{100 * statistics.fmean(each):.1f}" if None not in each else "" for each in means]  # type: ignore[type-var]
        yield f"| {name} | {lr:g} | {' | '.join(cells)} |"


def page(found: Mapping[str, Results], seeds: int) -> str:
    """docs/drift-and-forgetting.md."""
    introduction = f"""
        Made by `benchmarks/drift_and_forgetting.py --write`; its first lines say how. 100 clients, of which 20 train in
        each of 60 rounds; with FedSeq and relay two chains of ten. Every method has the best of {len(RATES)} learning
        rates, and gradients clipped at a norm of 1. Means over {seeds} seeds: the accuracy over the last third of the
        rounds, everything else over the second, because later a cosine ends all that routes do."""
    explanations = [
        "**Drift**: 1 minus the cosine between the changes of two routes. At 0 they move the same way, at 1 they have "
        "nothing in common.",
        "**Before the merge**: the accuracy of the models that arrive, on all test samples.",
        "**Forgotten**: what a chain loses on a client's samples between its hop there and its end.",
    ]
    parts = [
        "# Drift and forgetting",
        textwrap.fill(" ".join(introduction.split()), 120),
        "\n".join(f"- {each}" for each in explanations),
        "![Accuracy, accuracy before the merge, drift and forgetting, round by round](drift-and-forgetting.png)",
        *(f"## {title}\n\n" + "\n".join(table(each)) for title, each in found.items()),
        READING,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


READING = """\
## What this shows

- **Clients one by one** have next to nothing in common: the cosine between two of FedAvg's changes is 0.01 to 0.06,
  also where clients are alike, because each has few samples. On digits with one class a client, what arrives names
  a single class, and the merge has to make a model of it.
- **Chains** bring models that know most classes: on digits with one class a client 84 % and more before the merge,
  where FedAvg has 10 %. What is left for the merge is small.
- **Balanced groups** do not forget less. They allow a larger learning rate (0.1 instead of 0.03 on Fashion-MNIST
  with one class a client), and with it a chain forgets more of its first clients (39 points instead of 15) and ends
  better all the same, because every class was there.
- **Look-ahead** makes routes agree: the cosine rises from 0.08–0.19 to 0.28–0.34. They correct together what the
  look-ahead did too much. With the smaller learning rate that it needs they forget a third as much on Fashion-MNIST
  with one class a client, and less than half where clients are alike.
- **The cosine** ends both: in the last rounds nothing is forgotten any more, as the picture shows.
- **What it does not help.** On digits whose clients are alike, all chains end within a point of each other, and
  `relay` adds nothing. On Fashion-MNIST with such clients `relay` without look-ahead is as good as with it.

Learning rates were chosen with one seed; differences of less than a point mean nothing here."""


def picture(found: Mapping[str, Results], path: Path) -> None:
    """A row of panels for each set of clients, a line for each method."""
    figure = Figure(figsize=(12, 2.9 * len(found)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(found), len(COLUMNS), squeeze=False)
    for row, (title, of_clients) in zip(panels, found.items(), strict=True):
        for axes, (column, (words, _)) in zip(row, COLUMNS.items(), strict=True):
            for color, (name, (_, runs)) in enumerate(of_clients.items()):
                curves = [getattr(run, column) for run in runs]
                rounds = sorted(curves[0])
                if rounds:
                    means = [100 * statistics.fmean(curve[round] for curve in curves) for round in rounds]
                    axes.plot(rounds, means, label=name, linewidth=1.2, color=f"C{color}")
            axes.set_title(words, loc="left", fontsize=9)
            axes.tick_params(labelsize=8)
        row[0].set_ylabel(title, fontsize=8)
    for axes in panels[-1]:
        axes.set_xlabel("round", fontsize=8)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS), fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the page and its picture to docs/")
    parser.add_argument("--jobs", type=int, default=cores(), help="worker processes")
    parser.add_argument("--smoke", action="store_true", help="only see that it works; write nothing")
    options = parser.parse_args()
    if options.smoke:
        tiny = Clients("Smoke", "digits", {**_COMMON, "alpha": 0.0, "rounds": 2 * LOOK_EVERY})
        print(page({tiny.title: results(tiny, ["FedAvg", "relay"], SEEDS[:1], jobs=1)}, seeds=1))
        return
    found = {each.title: results(each, list(METHODS), SEEDS, options.jobs) for each in available(WORKLOADS)}
    text = page(found, len(SEEDS))
    print(text)
    if options.write:
        (DOCS / "drift-and-forgetting.md").write_text(text, encoding="utf-8")
        picture(found, DOCS / "drift-and-forgetting.png")


if __name__ == "__main__":
    main()
