"""Every method against every other, tuned alike, on sixteen sets of clients: the contest.

    .venv/bin/python benchmarks/contest.py                     run what is missing of all cells, print the page
    .venv/bin/python benchmarks/contest.py --write             also write docs/contest.md and its picture
    .venv/bin/python benchmarks/contest.py --only digits-0     only some cells, by name
    .venv/bin/python benchmarks/contest.py --smoke             one cell, three methods, two rounds

A cell is a data set, how it is dealt out, and how many clients take part. In every cell:

1. Screening. Every entrant has the same budget: five learning rates, up to two more while the best is at the edge, and
   three values of one setting of its own; an entrant without one tries three learning rates near the best. Where that
   setting is look-ahead, 0.9 is tried before: 0.7 and two learning rates near the best are the three. One seed, or
   three where the data are small, scored on validation samples. Test samples have no say.
2. Final. FedAvg, FedSeq, our own entrants and the four others that are best in the screening run with five fresh
   seeds, or ten where the data are small, and are scored on test samples. All have the same client updates. Those that
   sent more bytes, or took longer by the virtual clock, than the leanest of them also run with as few rounds as fit its
   bytes, or its time.

The result of every run is appended to `docs/contest/CELL.jsonl`, and no run whose result is there is done again: stop
it whenever you like. Cells whose data are not found are left out. About a day of one core for all cells.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from contest_cells import CELLS, DOCS, Cell, CellRun, smoke_cell, validation_scores
from contest_page import page
from contest_picture import draw
from kept_results import KeptResults
from workloads import available

from fedrelay.engines.local.simulation_engine import cores
from fedrelay.experiment.method_hyperparameters import Hyperparameter, hyperparameter_of
from fedrelay.runtime.side_by_side import RunWorkers
from fedrelay_reproduce.tuning import Settings, best_of, search

FINALISTS = 4
"""How many go on besides FedAvg, FedSeq and our own."""

LOOKAHEAD = "server.lookahead"
AHEAD = {LOOKAHEAD: 0.9, "server.ramp": True, "schedule": "cosine", "train.clip": 1.0}
"""The server stage, the schedule and the clipping of our own method, which every rival also gets."""


@dataclass(frozen=True)
class Entrant:
    """A method with settings of its own."""

    name: str
    method: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    ours: bool = False

    @property
    def hyperparameter(self) -> Hyperparameter | None:
        """The setting that is tuned beside the learning rate."""
        own = hyperparameter_of(self.method)
        if own is None and LOOKAHEAD in self.settings:
            return hyperparameter_of("lookahead")
        return own


RIVALS = (
    "fedavg", "fedprox", "scaffold", "feddyn", "feddc", "fedavgm", "fedadam", "fedyogi", "fedcyclic", "fedseq",
    "fedseqinter", "fedseq2par", "fedgsp", "wfsl+fedavg", "spfl", "fedacg", "ghbm", "fedexp", "wima", "cycp", "cwt",
    "daisy-chain", "random-walk",
)  # fmt: skip
WARMED = {"wfsl+fedavg": {"warmup.cycles": 3}}
ENTRANTS = (
    Entrant("relay", "relay", ours=True),
    Entrant("relay, random groups", "relay", {"grouping.assign": "random"}, ours=True),
    Entrant("relay, noisy class counts", "relay", {"grouping.epsilon": 1.0}, ours=True),
    Entrant("relay, groups by classifiers", "relay", {"grouping.profile": "clf"}, ours=True),
    *(Entrant(name, name, WARMED.get(name, {})) for name in RIVALS),
    *(Entrant(f"{name}, ahead", name, {**WARMED.get(name, {}), **AHEAD}) for name in RIVALS),
)
ALWAYS_FINAL = ("fedavg", "fedseq")


def run_of(cell: Cell, entrant: Entrant, chosen: Settings, seed: int, rounds: int) -> CellRun:
    """A run of an entrant with the settings that were chosen for it."""
    return CellRun(cell, entrant.name, entrant.method, entrant.settings, chosen, seed, rounds)


@dataclass(frozen=True)
class Screened:
    """An entrant with the settings that were best on validation samples."""

    entrant: Entrant
    settings: Settings
    score: float
    trials: int


def screen(cell: Cell, entrants: Sequence[Entrant], results: KeptResults) -> list[Screened]:
    """Tune all entrants side by side, wave by wave; the best first. One that always diverges is left out."""
    searches = [search(_tuned_beside_the_rate(entrant.hyperparameter)) for entrant in entrants]
    wanted = {number: next(each) for number, each in enumerate(searches)}
    found: list[Screened] = []
    while wanted:
        runs = {
            number: [
                run_of(cell, entrants[number], tried, seed, cell.rounds) for tried in wave for seed in cell.tuning_seeds
            ]
            for number, wave in wanted.items()
        }
        results.of([run for each in runs.values() for run in each])
        wanted = {}
        for number, of_entrant in runs.items():
            scores = validation_scores(results.of(of_entrant), len(cell.tuning_seeds))
            try:
                wanted[number] = searches[number].send(scores)
            except StopIteration as end:
                best = best_of(end.value)
                if best.score is not None:
                    found.append(Screened(entrants[number], best.settings, best.score, len(end.value)))
    return sorted(found, key=lambda each: each.score, reverse=True)


def _tuned_beside_the_rate(own: Hyperparameter | None) -> Mapping[str, Sequence[Any] | Callable[[Settings], list[Any]]]:
    def near(*factors: float) -> Callable[[Settings], list[Any]]:
        return lambda best: [float(f"{factor * best['train.lr']:.2g}") for factor in factors]

    if own is None:
        return {"train.lr": near(0.6, 0.8, 1.5)}
    if own.key == LOOKAHEAD:
        return {LOOKAHEAD: (0.7,), "train.lr": near(0.6, 1.5)}
    return {own.key: own.values}


def finalists(screened: Sequence[Screened]) -> list[Screened]:
    """Those that go on: ours, FedAvg, FedSeq, and the best of the others."""
    fixed = [each for each in screened if each.entrant.ours or each.entrant.name in ALWAYS_FINAL]
    others = [each for each in screened if each not in fixed]
    return [*fixed, *others[:FINALISTS]]


COSTS = {"bytes": "bytes", "time": "virtual_seconds"}
"""What is equal besides client updates → the cost of a run."""

LEAST_ROUNDS = 4
"""However lean the leanest entrant is: a warm-up has to end."""


def finals(
    cell: Cell, going: Sequence[Screened], results: KeptResults, seeds: Sequence[int]
) -> dict[str, dict[str, list[float | None]]]:
    """Budget → entrant → its test score with each seed."""

    def runs(each: Screened, rounds: int) -> list[CellRun]:
        return [run_of(cell, each.entrant, each.settings, seed, rounds) for seed in seeds]

    full = {each.entrant.name: results.of(runs(each, cell.rounds)) for each in going}
    found = {"updates": {name: [run["score"] for run in of] for name, of in full.items()}}
    for budget, cost in COSTS.items():
        costs = {name: [run[cost] for run in of if run["score"] is not None] for name, of in full.items()}
        means = {name: sum(values) / len(values) for name, values in costs.items() if values}
        least = min(means.values(), default=0.0)
        scores: dict[str, list[float | None]] = {}
        for each in going:
            name = each.entrant.name
            rounds = cell.rounds
            if name in means and means[name] > 1.005 * least:
                rounds = max(LEAST_ROUNDS, int(cell.rounds * least / means[name]))
            scores[name] = [run["score"] for run in results.of(runs(each, rounds))]
        found[budget] = scores
    return found


def run_cell(
    cell: Cell, entrants: Sequence[Entrant], results: KeptResults, seeds: Sequence[int] | None = None
) -> dict[str, Any]:
    """Everything about a cell, as plain data for the page. `seeds` are those of the cell unless others are given."""
    screened = screen(cell, entrants, results)
    going = finalists(screened)
    scores = finals(cell, going, results, seeds or cell.seeds)
    return {
        "name": cell.name,
        "title": cell.title,
        "frozen": cell.frozen,
        "alpha": cell.settings.get("alpha"),
        "metric": next(each["metric"] for each in results.known.values() if "metric" in each),
        "screened": [(each.entrant.name, each.score, each.settings, each.trials) for each in screened],
        "ours": [each.entrant.name for each in going if each.entrant.ours],
        "scores": scores,
    }


def chosen_cells(names: Collection[str] | None) -> Iterator[Cell]:
    """The cells that were asked for, by default all, if their data are found."""
    return available(cell for cell in CELLS if not names or cell.name in names)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[cell.name for cell in CELLS], help="only these cells")
    parser.add_argument("--jobs", type=int, default=cores(), help="worker processes")
    parser.add_argument("--results", type=Path, default=DOCS / "contest", help="where results are kept")
    parser.add_argument("--write", action="store_true", help="write docs/contest.md")
    parser.add_argument("--smoke", action="store_true", help="check that it works; keep and write nothing")
    options = parser.parse_args()
    if options.smoke:
        entrants = [each for each in ENTRANTS if each.name in ("relay", "fedavg", "fedseq")]
        with tempfile.TemporaryDirectory() as folder, RunWorkers(1) as workers:
            results = KeptResults(Path(folder, "smoke.jsonl"), workers)
            tried = [run_cell(smoke_cell(CELLS[0]), entrants, results, seeds=(1, 2))]
            draw(tried, Path(folder) / "contest.png")
        print("\n".join(page(tried)))
        return
    with RunWorkers(options.jobs) as workers:
        found = [
            run_cell(cell, ENTRANTS, KeptResults(options.results / f"{cell.name}.jsonl", workers))
            for cell in chosen_cells(options.only)
        ]
    text = "\n".join(page(found)) + "\n"
    print(text)
    if options.write:
        (DOCS / "contest.md").write_text(text, encoding="utf-8")
        draw(found, DOCS / "contest.png")


if __name__ == "__main__":
    main()
