"""The eight methods of SPFL's table, alone and with SPFL, and FedAvg with as much local training.

    .venv/bin/python benchmarks/combinations.py                 run what is missing, print the page
    .venv/bin/python benchmarks/combinations.py --write         also write docs/combinations.md
    .venv/bin/python benchmarks/combinations.py --data digits   one data set only
    .venv/bin/python benchmarks/combinations.py --smoke         two methods, two seeds, one round

Ten clients hold samples of a Dirichlet draw of every class (concentration 0.5) and take part in every round. SPFL
trains ten times as often per round, so FedAvg with ten epochs per hop is shown too: the same number of passes over the
same samples. A second table asks whether each combination is worse than SPFL alone, compares the two ways in which
clients can commit control variates, and takes MOON apart: its projection head, and its loss. Runs are kept in `--runs`
and continued there. Fashion-MNIST is left out if it is not found.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedrelay as fr
from fedrelay.metrics.paired_differences import margin_of_mean

METHODS = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "feddyn": "FedDyn",
    "feddc": "FedDC",
    "fednova": "FedNova",
    "moon": "MOON",
    "feddisco": "FedDisco",
}


def with_spfl(name: str) -> str:
    """The combination."""
    return "spfl" if name == "fedavg" else f"spfl+{name}"


@dataclass(frozen=True)
class Variant:
    """A combination with SPFL whose term has another option."""

    method: str
    label: str
    terms: dict[str, dict[str, Any]]
    title: str


COMMIT_MEAN = ({"control": {"commit": "mean"}}, "`terms.control.commit: mean`")
VARIANTS = (
    Variant("scaffold", "spfl+scaffold, mean", *COMMIT_MEAN),
    Variant("feddc", "spfl+feddc, mean", *COMMIT_MEAN),
    Variant("moon", "spfl+moon, head alone", {"contrast": {"mu": 0}}, "its projection head alone (μ = 0)"),
    Variant("moon", "spfl+moon, no head", {"contrast": {"projection": 0}}, "its loss alone (no head)"),
    Variant("moon", "spfl+moon, weak, no head", {"contrast": {"mu": 0.1, "projection": 0}}, "no head, μ = 0.1"),
)
CLIENTS, ALPHA, SEEDS = 10, 0.5, (1, 2, 3)
CONTROL = f"fedavg-{CLIENTS}-epochs"
PAGE = Path(__file__).parent.parent / "docs" / "combinations.md"


@dataclass(frozen=True)
class Task:
    """A data set, how much of it is used, how it is trained, and by which methods."""

    name: str
    title: str
    train: int
    test: int
    batch_size: int
    rounds: int
    lr: float = 0.05
    model: str = "mlp"
    methods: tuple[str, ...] = tuple(METHODS)
    seeds: tuple[int, ...] = SEEDS
    workers: int = 0
    note: str = ""

    @property
    def folder(self) -> str:
        """Where its runs are."""
        return f"{self.name}-{self.lr:g}"

    def federation(self, seed: int) -> fr.Federation:
        """The first samples of the data set, dealt out anew for every seed."""
        everything = fr.load_data(self.name, clients=1, partition="iid")
        (x, y), (test_x, test_y) = everything.train_samples(0), everything.test
        return fr.federate(
            x[: self.train],
            y[: self.train],
            test_x[: self.test],
            test_y[: self.test],
            clients=CLIENTS,
            partition="dirichlet-class",
            alpha=ALPHA,
            seed=seed,
        )

    @property
    def about(self) -> str:
        """What was run."""
        return (
            f"{self.train:,} train and {self.test:,} test samples, `{self.model}`, {self.rounds} rounds, one epoch "
            f"per hop, batches of {self.batch_size}, learning rate {self.lr:g}.{self.note}"
        )

    @property
    def variants(self) -> tuple[Variant, ...]:
        """The variants of its methods."""
        return tuple(variant for variant in VARIANTS if variant.method in self.methods)


ADDED = " This learning rate was added after seeing the first two sections."
TASKS = (
    Task("digits", "Digits", 1438, 359, batch_size=16, rounds=20),
    Task("fashion-mnist", "Fashion-MNIST", 2000, 2000, batch_size=32, rounds=10),
    Task(
        "digits",
        "Digits with shorter steps",
        1438,
        359,
        batch_size=16,
        rounds=20,
        lr=0.01,
        note=ADDED,
    ),
    Task(
        "fashion-mnist",
        "Fashion-MNIST with shorter steps",
        2000,
        2000,
        batch_size=32,
        rounds=10,
        lr=0.01,
        note=ADDED,
    ),
)
SMOKE = Task(
    "digits", "Smoke", 200, 50, batch_size=16, rounds=1, methods=("fedavg", "scaffold"), seeds=SEEDS[:2], workers=1
)


class Shown(fr.Callback):
    """Says which run goes by, and how far it is."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.rounds = 0

    def on_run_start(self, experiment: fr.Experiment, round: int) -> None:
        self.rounds = experiment.rounds
        epochs = f" with {experiment.train.epochs} epochs" if experiment.train.epochs > 1 else ""
        print(f"\n{self.title}, seed {experiment.seed}: {experiment.method}{epochs} ", end="", file=sys.stderr)

    def on_round_end(self, context: fr.RoundContext) -> None:
        print("." if context.round < self.rounds else ". done", end="", file=sys.stderr, flush=True)

    def on_interrupt(self) -> None:
        print(" stopping after this round", file=sys.stderr)


def compared(task: Task, runs: Path) -> list[fr.ComparisonResult]:
    """All methods of one data set, seed by seed, because each seed deals out the samples anew."""
    control = {"method": "fedavg", "label": CONTROL, "train": {"epochs": CLIENTS}}
    variants = [
        {"method": with_spfl(variant.method), "label": variant.label, "terms": variant.terms}
        for variant in task.variants
    ]
    return [
        fr.compare(
            [*task.methods, *map(with_spfl, task.methods), *variants, control],
            data=task.federation(seed),
            model=task.model,
            rounds=task.rounds,
            fraction=1.0,
            batch_size=task.batch_size,
            lr=task.lr,
            workers=task.workers,
            seeds=[seed],
            out=runs / task.folder / f"seed-{seed}",
            callbacks=Shown(task.title),
        )
        for seed in task.seeds
    ]


@dataclass(frozen=True)
class Line:
    """One method over all seeds."""

    results: tuple[fr.Result, ...]
    diverged: int

    @classmethod
    def of(cls, outcomes: list[fr.ComparisonResult], name: str) -> Line:
        """The runs of a method."""
        found = [outcome[name] for outcome in outcomes]
        return cls(
            tuple(result for each in found for result in each.results), sum(len(each.diverged) for each in found)
        )

    @property
    def mean(self) -> float | None:
        """The mean accuracy in per cent; None if a run diverged, because the rest would be a choice."""
        return None if self.diverged else 100 * statistics.mean(result.accuracy for result in self.results)

    @property
    def accuracy(self) -> str:
        """Mean and standard deviation in per cent."""
        if self.mean is None:
            return f"diverged ({self.diverged} of {self.diverged + len(self.results)})"
        return f"{self.mean:.1f} ± {100 * statistics.stdev(result.accuracy for result in self.results):.1f}"

    @property
    def updates(self) -> str:
        """How often a client trained."""
        return f"{self.results[0].client_updates:,}" if self.results else "–"

    @property
    def megabytes(self) -> str:
        """What was transferred."""
        return f"{self.results[0].bytes / 1e6:.1f}" if self.results else "–"


def signed(points: float, digits: int = 1) -> str:
    """A difference."""
    return f"{points:+.{digits}f}".replace("-", "−")


def rows(task: Task, outcomes: list[fr.ComparisonResult]) -> Iterator[str]:
    """The table of one task."""
    yield "| method | accuracy, % | with SPFL, % | gain | client updates | with SPFL | MB | with SPFL |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for name in task.methods:
        alone, joined = Line.of(outcomes, name), Line.of(outcomes, with_spfl(name))
        gain = "–" if alone.mean is None or joined.mean is None else signed(joined.mean - alone.mean)
        cells = (METHODS[name], alone.accuracy, joined.accuracy, gain, alone.updates, joined.updates)
        yield f"| {' | '.join((*cells, alone.megabytes, joined.megabytes))} |"
    control = Line.of(outcomes, CONTROL)
    title = f"FedAvg, {CLIENTS} epochs per hop"
    yield f"| {title} | {control.accuracy} | – | – | {control.updates} × {CLIENTS} | – | {control.megabytes} | – |"


@dataclass(frozen=True)
class Difference:
    """How much better one method is than another, seed by seed."""

    points: tuple[float, ...]

    @classmethod
    def of(cls, better: Line, than: Line) -> Difference | None:
        """None if a run diverged."""
        if better.diverged or than.diverged:
            return None
        pairs = zip(better.results, than.results, strict=True)
        return cls(tuple(100 * (one.accuracy - other.accuracy) for one, other in pairs))

    @property
    def mean(self) -> float:
        return statistics.mean(self.points)

    @property
    def margin(self) -> float:
        """Half of the 95 % confidence interval of the mean, by Student's t distribution."""
        return margin_of_mean(statistics.stdev(self.points), len(self.points))

    def __str__(self) -> str:
        return f"{signed(self.mean, 2)} ± {self.margin:.2f}"

    @property
    def reading(self) -> str:
        """What the interval shows."""
        if self.mean < -self.margin:
            return "worse"
        return "better" if self.mean > self.margin else "not told apart"


def rows_against_spfl(task: Task, outcomes: list[fr.ComparisonResult]) -> Iterator[str]:
    """Every combination and its variants beside SPFL alone."""
    yield "| combination | accuracy, % | difference from SPFL alone | than SPFL alone |"
    yield "|---|---:|---:|---|"
    alone = Line.of(outcomes, "spfl")
    titles = {with_spfl(name): f"SPFL + {METHODS[name]}" for name in task.methods if name != "fedavg"}
    titles |= {each.label: f"SPFL + {METHODS[each.method]}, {each.title}" for each in task.variants}
    for name, title in titles.items():
        line = Line.of(outcomes, name)
        found = Difference.of(line, alone)
        cells = (str(found), found.reading) if found is not None else ("–", "diverged")
        yield f"| {title} | {line.accuracy} | {' | '.join(cells)} |"


def reading(task: Task, outcomes: list[fr.ComparisonResult]) -> str:
    """A summary of the table."""
    means = {name: Line.of(outcomes, name).mean for name in (*task.methods, *map(with_spfl, task.methods), CONTROL)}
    gains = {
        METHODS[name]: joined - alone
        for name in task.methods
        if (alone := means[name]) is not None and (joined := means[with_spfl(name)]) is not None
    }
    won = sum(gain > 0 for gain in gains.values())
    text = f"At the same number of rounds SPFL improves {won} of {len(task.methods)} methods"
    lost = [f"{title} ({signed(gain)})" for title, gain in gains.items() if gain <= 0]
    text += f", but not {' and '.join(lost)}." if lost else "."
    plain, joined, control = (means[name] for name in ("fedavg", "spfl", CONTROL))
    if plain is not None and joined is not None and control is not None:
        text += (
            f" SPFL adds {signed(joined - plain)} points to FedAvg. FedAvg with {CLIENTS} epochs shows that "
            f"{signed(control - plain)} of them come from {CLIENTS} times the training; {signed(joined - control)} "
            "remain for the route."
        )
    return text


def filled(paragraph: str) -> str:
    """In lines that fit."""
    return textwrap.fill(paragraph, 120, break_on_hyphens=False)


def page(found: dict[Task, list[fr.ComparisonResult]]) -> Iterator[str]:
    """docs/combinations.md."""
    yield "# SPFL with eight methods"
    yield ""
    yield filled(
        "Made by `benchmarks/combinations.py --write`. Final test accuracy, mean ± standard deviation over "
        f"{len(SEEDS)} seeds. Each seed has its own partition and initial weights. {CLIENTS} clients hold a Dirichlet "
        f"draw of every class (concentration {ALPHA:g}); all take part in every round. All options have their defaults."
        f" A client update is one hop. SPFL makes {CLIENTS} times as many per round, so the last row shows FedAvg with "
        f"{CLIENTS} epochs per hop. Bytes follow from the plans; MOON's model has an additional projection head. With "
        "SPFL every route visits all clients, so FedNova and FedDisco weigh all routes equally and equal FedAvg up to "
        "rounding. The second table of each section compares combinations with SPFL alone on the same seeds: the mean "
        "difference in points, with its 95 % confidence interval (Student's t, not corrected for the number of rows). "
        "The interval covers seeds, that is partitions and initial weights; all seeds share the test samples. With "
        f"{len(SEEDS)} seeds it is wide: 'not told apart' is no proof of equality."
    )
    for task, outcomes in found.items():
        yield from ("", f"## {task.title}", "", filled(task.about), "", *rows(task, outcomes))
        yield from ("", filled(reading(task, outcomes)), "", *rows_against_spfl(task, outcomes))


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/combinations.md")
    parser.add_argument("--runs", type=Path, default=Path("runs/combinations"), help="where runs are kept")
    names = sorted({task.name for task in TASKS})
    parser.add_argument("--data", choices=names, nargs="+", default=names, help="the data sets")
    parser.add_argument("--smoke", action="store_true", help="check that it works; keep and write nothing")
    options = parser.parse_args()
    if options.smoke:
        with tempfile.TemporaryDirectory() as folder:
            print("\n".join(page({SMOKE: compared(SMOKE, Path(folder))})))
        return
    found: dict[Task, list[fr.ComparisonResult]] = {}
    for task in (each for each in TASKS if each.name in options.data):
        try:
            found[task] = compared(task, options.runs)
        except fr.DataError as error:
            print(f"{task.title} is left out: {error}", file=sys.stderr)
    text = "\n".join(page(found)) + "\n"
    print(text)
    if options.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
