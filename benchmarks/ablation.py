"""What each ingredient of `relay` is worth, and what disturbs it.

    .venv/bin/python benchmarks/ablation.py           run what is missing, print the page
    .venv/bin/python benchmarks/ablation.py --write   also write docs/ablation.md
    .venv/bin/python benchmarks/ablation.py --smoke   one cell, two variants, two rounds

On cells for design of the contest. Every variant has a learning rate of its own: five are tried, up to two more while
the best is at the edge, with one seed on validation samples. Then five fresh seeds are scored on test samples.

1. Ablation: `relay` without one ingredient, and without the two that cost most.
2. Disturbances: `relay`, FedSeq and FedAvg with their learning rates times 3, times 10 and divided by 10; with clients
   that drop out, clients that send the opposite of their update, noise on every update, and models sent as float16.
3. Costs: rounds, client updates and bytes to 90 % of the score of centralised training.

Results are kept in `docs/ablation`; what is there is not done again. About two hours of one core.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from contest_cells import CELLS, Cell
from kept_results import KeptResults, Result
from workloads import available

import fedrelay as fr
from fedrelay.engines.local.executor import one_thread
from fedrelay.engines.local.simulation_engine import cores
from fedrelay.metrics.paired_differences import PairedDifference
from fedrelay_reproduce.tuning import best_of, search

USED = ("digits-0", "fashion-0", "cifar-0")
TUNING_SEED, SEEDS = 101, (1, 2, 3, 4, 5)
DOCS = Path(__file__).parent.parent / "docs"


@dataclass(frozen=True)
class Variant:
    """A method with some settings changed."""

    name: str
    method: str = "relay"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def without(self, other: Variant) -> Variant:
        """Two changes at once."""
        return Variant(f"{self.name}, {other.name}", self.method, {**self.settings, **other.settings})


RELAY = Variant("relay")
ABLATED = (
    Variant("no look-ahead", settings={"server.lookahead": 0.0, "server.ramp": False}),
    Variant("random groups", settings={"grouping.assign": "random"}),
    Variant("the same groups in every pass", settings={"route.regroup": "never"}),
    Variant("random sampling, the same groups", settings={"route.regroup": "never", "sampling": "random"}),
    Variant("constant learning rate", settings={"schedule": "constant"}),
    Variant("no clipping", settings={"train.clip": 0.0}),
)
METHODS = (RELAY, Variant("fedseq", "fedseq"), Variant("fedavg", "fedavg"))
CENTRALISED = Variant("centralised", "centralized")
RATE_FACTORS = {"learning rate × 3": 3.0, "learning rate × 10": 10.0, "learning rate ÷ 10": 0.1}


@dataclass(frozen=True)
class Run:
    """One run: what is asked for."""

    cell: Cell
    variant: Variant
    lr: float
    seed: int

    @property
    def key(self) -> str:
        """By which its result is found again; other settings have another key."""
        everything = json.dumps([self.variant.method, self.cell.data, self.settings], sort_keys=True, default=str)
        digest = hashlib.sha256(everything.encode()).hexdigest()[:8]
        return f"{self.variant.name} | lr {self.lr:g} | seed {self.seed} | {digest}"

    @property
    def settings(self) -> dict[str, Any]:
        """All settings that are not the same in every run."""
        evaluation = {"every": max(1, self.cell.rounds // 30), "last": 2}
        common = {"lr": self.lr, "rounds": self.cell.rounds, "seed": self.seed, "eval": evaluation}
        return {**self.cell.settings, **common, **self.variant.settings}

    def measure(self) -> Result:
        """Do it. A run that diverges has no score."""
        try:
            with one_thread():
                found = fr.run(
                    self.variant.method,
                    data=self.cell.data,
                    validation=0.2,
                    workers=1,
                    progress=False,
                    **self.settings,
                )
        except fr.DivergedError:
            return {"score": None, "validation": None, "curve": []}
        of_validation = [row[f"validation_{found.metric}"] for row in found.history[-2:]]
        curve = [
            [row["round"], row["client_updates"], row["bytes"], round(row[found.metric], 4)] for row in found.history
        ]
        return {"score": found.score_last, "validation": statistics.fmean(of_validation), "curve": curve}


def tuned_rate(cell: Cell, variant: Variant, results: KeptResults) -> float:
    """The learning rate with the best validation score."""
    trials = search({})
    wanted = next(trials)
    while True:
        runs = [Run(cell, variant, tried["train.lr"], TUNING_SEED) for tried in wanted]
        try:
            wanted = trials.send([found["validation"] for found in results.of(runs)])
        except StopIteration as end:
            return float(best_of(end.value).settings["train.lr"])


def finals(cell: Cell, variant: Variant, lr: float, results: KeptResults, seeds: Sequence[int]) -> list[Result]:
    """The results with fresh seeds."""
    return results.of([Run(cell, variant, lr, seed) for seed in seeds])


def disturbed(variant: Variant, cell: Cell, lr: float) -> Iterator[tuple[Variant, float]]:
    """A method with everything that may disturb it, and its learning rate then."""
    for name, factor in RATE_FACTORS.items():
        yield Variant(f"{variant.name}, {name}", variant.method, variant.settings), factor * lr
    every_tenth = list(range(0, cell.client_count, 10))
    disturbances: dict[str, dict[str, Any]] = {
        "30 % of hops drop out": {"faults": [{"what": "dropout", "rate": 0.3}]},
        "every tenth client flips the sign": {"faults": [{"what": "sign-flip", "clients": every_tenth, "factor": 1}]},
        "models as float16": {"transfer.codec": "float16"},
    }
    for name, settings in disturbances.items():
        yield Variant(f"{variant.name}, {name}", variant.method, {**variant.settings, **settings}), lr
    noise = {"terms.dp.clip": 1.0, "terms.dp.noise": 0.01}
    yield Variant(f"{variant.name}, noise on updates", f"{variant.method}+dp", {**variant.settings, **noise}), lr


Scores = dict[str, list[float]]
"""The score with each seed in percent, by name; a run that diverged counts as 0."""


def run_cell(cell: Cell, ablated: Sequence[Variant], folder: Path, jobs: int, seeds: Sequence[int]) -> dict[str, Any]:
    """Everything about a cell, as plain data for the page."""
    results = KeptResults(folder / f"{cell.name}.jsonl", jobs)
    rates: dict[str, float] = {}
    curves: dict[str, list[list[list[float]]]] = {}

    def scores(variant: Variant, lr: float | None = None) -> list[float]:
        rates[variant.name] = tuned_rate(cell, variant, results) if lr is None else lr
        found = finals(cell, variant, rates[variant.name], results, seeds)
        curves[variant.name] = [each["curve"] for each in found]
        return [100 * (each["score"] or 0.0) for each in found]

    ablation = {variant.name: scores(variant) for variant in (RELAY, *ablated)}
    if len(ablated) > 1:
        first, second = sorted(ablated, key=lambda each: statistics.fmean(ablation[each.name]))[:2]
        both = first.without(second)
        ablation[both.name] = scores(both)
    disturbances: dict[str, Scores] = {}
    for variant in METHODS:
        of_method = disturbances[variant.name] = {"none": scores(variant)}
        for each, lr in disturbed(variant, cell, rates[variant.name]):
            of_method[each.name.removeprefix(f"{variant.name}, ")] = scores(each, lr)
    target = 0.9 * statistics.fmean(scores(CENTRALISED))
    return {
        "title": cell.title,
        "rates": rates,
        "ablation": ablation,
        "disturbed": disturbances,
        "target": target,
        "costs": {variant.name: costs_to(target, curves[variant.name]) for variant in METHODS},
    }


def costs_to(target: float, curves: Sequence[Sequence[Sequence[float]]]) -> list[float] | None:
    """Mean rounds, client updates and bytes until a score in percent is reached; None if a seed never reaches it."""
    reached = [next((row[:3] for row in curve if 100 * row[3] >= target), None) for curve in curves]
    found = [row for row in reached if row is not None]
    return [statistics.fmean(column) for column in zip(*found, strict=True)] if len(found) == len(curves) else None


def page(cells: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """docs/ablation.md."""
    yield from ("# What each ingredient of relay is worth", "")
    yield textwrap.fill(
        "Made by `benchmarks/ablation.py --write`; its first lines say how. Test scores in percent, means over seeds; "
        "a run that diverged counts as 0. `relay` was shaped on these data: this page explains it and is no evidence "
        "that it is better than others.",
        120,
    )
    for cell in cells:
        yield from ("", f"## {cell['title']}", "", *_ablation(cell), "", *_disturbances(cell), "", *_costs(cell))


def _ablation(cell: Mapping[str, Any]) -> Iterator[str]:
    yield "| | learning rate | score | difference, points (95 %) |"
    yield "|---|---:|---:|---:|"
    whole: list[float] = cell["ablation"][RELAY.name]
    for name, scores in cell["ablation"].items():
        pair = PairedDifference(tuple(one - two for one, two in zip(scores, whole, strict=True)))
        low, high = pair.interval or (float("nan"), float("nan"))
        difference = "" if name == RELAY.name else f"{pair.mean:+.1f} ({low:+.1f} … {high:+.1f})"
        yield f"| {name} | {cell['rates'][name]:g} | {statistics.fmean(scores):.1f} | {difference} |"


def _disturbances(cell: Mapping[str, Any]) -> Iterator[str]:
    methods = [variant.name for variant in METHODS]
    yield f"| disturbance | {' | '.join(methods)} |"
    yield "|---|" + "---:|" * len(methods)
    for what in cell["disturbed"][methods[0]]:
        found = [f"{statistics.fmean(cell['disturbed'][name][what]):.1f}" for name in methods]
        yield f"| {what} | {' | '.join(found)} |"


def _costs(cell: Mapping[str, Any]) -> Iterator[str]:
    yield f"| to {cell['target']:.1f} %, 90 % of centralised | rounds | client updates | MB | times relay's |"
    yield "|---|---:|---:|---:|---:|"
    ours = cell["costs"][RELAY.name]
    for name, costs in cell["costs"].items():
        if costs is None:
            yield f"| {name} | not reached with every seed | | | |"
            continue
        rounds, updates, sent = costs
        factor = f"{rounds / ours[0]:.1f} rounds, {sent / ours[2]:.1f} bytes" if ours else ""
        yield f"| {name} | {rounds:.0f} | {updates:.0f} | {sent / 1e6:.1f} | {factor} |"


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=cores(), help="worker processes")
    parser.add_argument("--results", type=Path, default=DOCS / "ablation", help="where results are kept")
    parser.add_argument("--write", action="store_true", help="write docs/ablation.md")
    parser.add_argument("--smoke", action="store_true", help="check that it works; keep and write nothing")
    options = parser.parse_args()
    cells = [cell for cell in CELLS if cell.name in USED]
    if options.smoke:
        settings = {**cells[0].settings, "samples": 300, "clients": 10}
        small = replace(cells[0], rounds=2, settings=settings, client_count=10)
        with tempfile.TemporaryDirectory() as folder:
            print("\n".join(page([run_cell(small, ABLATED[:1], Path(folder), 1, seeds=(1, 2))])))
        return
    found = [run_cell(cell, ABLATED, options.results, options.jobs, SEEDS) for cell in available(cells)]
    text = "\n".join(page(found)) + "\n"
    print(text)
    if options.write:
        (DOCS / "ablation.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
