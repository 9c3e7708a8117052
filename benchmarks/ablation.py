"""What each ingredient of `relay` is worth, and what disturbs it.

    .venv/bin/python benchmarks/ablation.py           run what is missing, print the page
    .venv/bin/python benchmarks/ablation.py --write   also write docs/ablation.md and its picture
    .venv/bin/python benchmarks/ablation.py --smoke   one cell, two ingredients, two methods, two rounds

On four of the contest's cells for design. All runs of a cell have the same number of client updates. Every variant is
tuned: five learning rates are tried, up to two more while the best is at the edge, on validation samples.
Then five fresh seeds are scored on test samples.

1. Ablation: `relay` without one ingredient, and without the two whose absence costs most on validation samples.
2. Disturbances: `relay`, `relay` without clipping, FedSeq and FedAvg, each with its own learning rate: that rate times
   3, times 10 and divided by 10; hops that drop out; clients that send the opposite of their update; models sent as
   float16; and client-level privacy, which clips every update and adds noise to it.
3. Costs: rounds, client updates and bytes to 90 % of centralised training, by its best evaluation. Learning rates were
   tuned for the score at the end, not for speed.

Results are kept in `docs/ablation`; what is there is not done again. About three hours of one core.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablation_picture import CellFacts, draw
from contest_cells import CELLS, DOCS, SEEDS, Cell, CellRun, smoke_cell, validation_scores
from kept_results import KeptResults, Result
from workloads import available

from fedrelay.engines.local.simulation_engine import cores
from fedrelay.metrics.paired_differences import PairedDifference
from fedrelay.runtime.side_by_side import RunWorkers
from fedrelay_reproduce.tuning import Trial, best_of, search

USED = ("digits-0", "digits-0.5", "fashion-0", "cifar-0")
EVALUATIONS = 30
"""How often a run is evaluated: the resolution of costs."""


@dataclass(frozen=True)
class Variant:
    """A method with some settings changed."""

    name: str
    method: str = "relay"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def disturbed(self, by: str, settings: Mapping[str, Any], term: str = "") -> Variant:
        """The same with something that goes wrong."""
        return Variant(f"{self.name}, {by}", self.method + term, {**self.settings, **settings})


RELAY = Variant("relay")
NO_CLIPPING = Variant("no clipping", settings={"train.clip": 0.0})
INGREDIENTS = (
    Variant("no look-ahead", settings={"server.lookahead": 0.0, "server.ramp": False}),
    Variant("random groups", settings={"grouping.assign": "random"}),
    Variant("the same groups in every pass", settings={"route.regroup": "never"}),
    Variant("constant learning rate", settings={"schedule": "constant"}),
    NO_CLIPPING,
)
"""`relay` without one of them each."""

NO_PASSES = Variant("no passes, so the same groups", settings={"route.regroup": "never", "sampling": "random"})
METHODS = (
    RELAY,
    Variant("relay, no clipping", settings=NO_CLIPPING.settings),
    Variant("fedseq", "fedseq"),
    Variant("fedavg", "fedavg"),
)
CENTRALISED = Variant("centralised", "centralized")
WITH_CURVES = (*METHODS, CENTRALISED)

RATE_FACTORS = {"learning rate × 3": 3.0, "learning rate × 10": 10.0, "learning rate ÷ 10": 0.1}
DROPOUT = {"faults": [{"what": "dropout", "rate": 0.3}]}
PRIVACY = {"terms.dp.clip": 1.0, "terms.dp.noise": 0.003}


@dataclass(frozen=True)
class Scored:
    """The runs of a variant with fresh seeds."""

    lr: float
    results: Sequence[Result]

    @property
    def scores(self) -> list[float]:
        """In percent; a run that diverged counts as 0."""
        return [100 * (each["score"] or 0.0) for each in self.results]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores)

    @property
    def words(self) -> str:
        """Mean ± deviation, and how many runs diverged."""
        diverged = sum(each["score"] is None for each in self.results)
        note = f" ({diverged} of {len(self.results)} diverged)" if diverged else ""
        return f"{self.mean:.1f} ± {statistics.stdev(self.scores):.1f}{note}"


@dataclass(frozen=True)
class CellRuns:
    """All runs of a cell."""

    cell: Cell
    results: KeptResults
    seeds: Sequence[int]

    def runs(self, variant: Variant, rates: Sequence[float], seeds: Sequence[int]) -> list[CellRun]:
        return [
            CellRun(
                self.cell,
                variant.name,
                variant.method,
                variant.settings,
                {"train.lr": lr},
                seed,
                self.cell.rounds,
                EVALUATIONS,
                keeps_curve=variant in WITH_CURVES,
            )
            for lr in rates
            for seed in seeds
        ]

    def tuned(self, variant: Variant) -> Trial:
        """The best learning rate on validation samples, with its score."""
        trials = search({})
        wanted = next(trials)
        while True:
            runs = self.runs(variant, [tried["train.lr"] for tried in wanted], self.cell.tuning_seeds)
            try:
                wanted = trials.send(validation_scores(self.results.of(runs), len(self.cell.tuning_seeds)))
            except StopIteration as end:
                return best_of(end.value)

    def scored(self, variant: Variant, lr: float | None = None) -> Scored:
        """A variant with fresh seeds, at this learning rate or the best one."""
        rate = float(self.tuned(variant).settings["train.lr"]) if lr is None else lr
        return Scored(rate, self.results.of(self.runs(variant, [rate], self.seeds)))

    def disturbed(self, variant: Variant, lr: float) -> dict[str, Scored]:
        """A method with everything that may disturb it, by what it is."""
        flips = {"what": "sign-flip", "clients": list(range(0, self.cell.client_count, 10)), "factor": 1}
        found = {name: self.scored(variant.disturbed(name, {}), factor * lr) for name, factor in RATE_FACTORS.items()}
        found["30 % of hops drop out"] = self.scored(variant.disturbed("dropout", DROPOUT), lr)
        found["every tenth client flips the sign"] = self.scored(variant.disturbed("flips", {"faults": [flips]}), lr)
        found["models as float16"] = self.scored(variant.disturbed("float16", {"transfer.codec": "float16"}), lr)
        name = f"updates clipped at {PRIVACY['terms.dp.clip']:g}, noise {PRIVACY['terms.dp.noise']:g} on every weight"
        found[name] = self.scored(variant.disturbed("privacy", PRIVACY, "+dp"), lr)
        return found


def two_at_once(ingredients: Sequence[Variant], scores: Sequence[float]) -> Variant:
    """`relay` without the two ingredients whose absence has the lowest scores."""
    (_, first), (_, second) = sorted(zip(scores, ingredients, strict=True), key=lambda each: each[0])[:2]
    return Variant(f"{first.name}, {second.name}", first.method, {**first.settings, **second.settings})


def run_cell(
    cell: Cell,
    ingredients: Sequence[Variant],
    compared: Sequence[Variant],
    results: KeptResults,
    seeds: Sequence[int] = SEEDS,
) -> CellPage:
    """Everything about a cell; `relay` is among the methods that are compared."""
    runs = CellRuns(cell, results, seeds)
    both = two_at_once(ingredients, [runs.tuned(each).rank for each in ingredients])
    methods = {variant.name: runs.scored(variant) for variant in compared}
    ablation = {each.name: runs.scored(each) for each in (*ingredients, NO_PASSES, both)}
    disturbed = {variant.name: runs.disturbed(variant, methods[variant.name].lr) for variant in compared}
    best = [max(score for *_, score in each["curve"]) for each in runs.scored(CENTRALISED).results if each["score"]]
    return CellPage(cell.title, methods, ablation, disturbed, 0.9 * statistics.fmean(best))


@dataclass(frozen=True)
class CellPage:
    """The part of the page about one cell."""

    title: str
    methods: Mapping[str, Scored]
    ablation: Mapping[str, Scored]
    disturbed: Mapping[str, Mapping[str, Scored]]
    target: float

    def lines(self) -> Iterator[str]:
        """Three tables."""
        yield from ("", f"## {self.title}", "", *self._ablation(), "", *self._disturbances(), "", *self._costs())

    @property
    def differences(self) -> dict[str, PairedDifference]:
        """What is left out → points above `relay`, seed by seed."""
        whole = self.methods[RELAY.name].scores
        return {
            name: PairedDifference(tuple(one - two for one, two in zip(found.scores, whole, strict=True)))
            for name, found in self.ablation.items()
        }

    def facts(self) -> CellFacts:
        """What is drawn."""
        curves = {
            name: [[(row[1], 100 * row[3]) for row in each["curve"]] for each in found.results if "curve" in each]
            for name, found in self.methods.items()
        }
        drawn = {name: of_method for name, of_method in curves.items() if of_method}
        return CellFacts(self.title, self.differences, drawn, 100 * self.target)

    def _ablation(self) -> Iterator[str]:
        whole, differences = self.methods[RELAY.name], self.differences
        yield "| | learning rate | score | difference, points (95 %) |"
        yield "|---|---:|---:|---:|"
        yield f"| {RELAY.name} | {whole.lr:g} | {whole.words} | |"
        for name, found in self.ablation.items():
            pair = differences[name]
            low, high = pair.interval or (float("nan"), float("nan"))
            yield f"| {name} | {found.lr:g} | {found.words} | {pair.mean:+.1f} ({low:+.1f} … {high:+.1f}) |"

    def _disturbances(self) -> Iterator[str]:
        yield f"| disturbance | {' | '.join(self.methods)} |"
        yield "|---|" + "---:|" * len(self.methods)
        yield f"| none | {' | '.join(found.words for found in self.methods.values())} |"
        for what in self.disturbed[RELAY.name]:
            yield f"| {what} | {' | '.join(self.disturbed[name][what].words for name in self.methods)} |"

    def _costs(self) -> Iterator[str]:
        yield f"| to {100 * self.target:.1f} %, 90 % of centralised | rounds | client updates | MB | times relay's |"
        yield "|---|---:|---:|---:|---:|"
        costs = {name: costs_to(self.target, found.results) for name, found in self.methods.items()}
        ours = costs[RELAY.name]
        for name, spent in costs.items():
            if spent is None:
                yield f"| {name} | not reached with every seed | | | |"
                continue
            rounds, updates, sent = spent
            times = f"{rounds / ours[0]:.1f} rounds, {sent / ours[2]:.1f} bytes" if ours else ""
            yield f"| {name} | {rounds:.0f} | {updates:.0f} | {sent / 1e6:.1f} | {times} |"


def costs_to(target: float, results: Sequence[Result]) -> list[float] | None:
    """Mean rounds, client updates and bytes until a score is reached; None if a seed never reaches it."""
    curves = [each.get("curve", []) for each in results]
    reached = [next((spent for *spent, score in curve if score >= target), None) for curve in curves]
    found = [spent for spent in reached if spent is not None]
    return [statistics.fmean(column) for column in zip(*found, strict=True)] if len(found) == len(curves) else None


def page(cells: Sequence[CellPage]) -> Iterator[str]:
    """docs/ablation.md."""
    yield from ("# What each ingredient of relay is worth", "")
    yield textwrap.fill(
        "Made by `benchmarks/ablation.py --write`; its first lines say how. Test scores in percent, means ± standard "
        "deviations over seeds; a run that diverged counts as 0. Intervals are not corrected for their number: of "
        "twenty, one excludes 0 by chance. `relay` was shaped on these data, so this page explains it and is no "
        "evidence that it is better than others.",
        120,
    )
    yield from ("", "![What each ingredient is worth, and scores by client updates](ablation.png)")
    for cell in cells:
        yield from cell.lines()


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
        with tempfile.TemporaryDirectory() as folder, RunWorkers(1) as workers:
            results = KeptResults(Path(folder, "smoke.jsonl"), workers)
            found = run_cell(smoke_cell(cells[0]), INGREDIENTS[:2], (RELAY, METHODS[-1]), results, seeds=(1, 2))
            draw([found.facts()], Path(folder) / "ablation.png")
        print("\n".join(page([found])))
        return
    with RunWorkers(options.jobs) as workers:
        pages = [
            run_cell(cell, INGREDIENTS, METHODS, KeptResults(options.results / f"{cell.name}.jsonl", workers))
            for cell in available(cells)
        ]
    text = "\n".join(page(pages)) + "\n"
    print(text)
    if options.write:
        (DOCS / "ablation.md").write_text(text, encoding="utf-8")
        draw([each.facts() for each in pages], DOCS / "ablation.png")


if __name__ == "__main__":
    main()
