"""Methods for clients of unequal size and classes: steps, batches, orders of a chain, a warm-up of large clients.

    .venv/bin/python benchmarks/unequal_clients.py           run what is missing, print the page
    .venv/bin/python benchmarks/unequal_clients.py --write   also write docs/unequal-clients.md
    .venv/bin/python benchmarks/unequal_clients.py --smoke   one set of clients, two rounds

Every variant differs from its base (FedCyclic or FedAvg with all defaults) in one setting. Each has the same budget for
its step size: two runs for each of six, with seeds of their own, the best by validation samples. Then fresh seeds are
judged on test samples, and variants are compared with their base seed by seed. Runs are kept in `--runs` and
continued there. Fashion-MNIST is left out if it is not found.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workloads import available

import fedrelay as fr
from fedrelay.metrics.paired_differences import PairedDifference, more_than_chance

CHAIN, AVERAGE = "FedCyclic", "FedAvg"
VARIANTS: dict[str, tuple[str, str, dict[str, Any]]] = {
    CHAIN: (CHAIN, "fedcyclic", {}),
    "order by size, largest last": (CHAIN, "fedcyclic", {"route.order": "size"}),
    "order complement": (CHAIN, "fedcyclic", {"route.order": "complement"}),
    "order best-last": (CHAIN, "fedcyclic", {"route.order": "best-last"}),
    "order worst-last": (CHAIN, "fedcyclic", {"route.order": "worst-last"}),
    "steps equal": (CHAIN, "fedcyclic", {"steps": "equal"}),
    "steps inverse-size": (CHAIN, "fedcyclic", {"steps": "inverse-size"}),
    "class-weighted batches": (CHAIN, "fedcyclic", {"batches": "class-weighted"}),
    "FedTM": (CHAIN, "fedtm", {"warmup.rounds": 5}),
    AVERAGE: (AVERAGE, "fedavg", {}),
    "FedAvg, steps equal": (AVERAGE, "fedavg", {"steps": "equal"}),
    "FedAvg, steps inverse-size": (AVERAGE, "fedavg", {"steps": "inverse-size"}),
    "FedAvg, class-weighted batches": (AVERAGE, "fedavg", {"batches": "class-weighted"}),
}
"""Title → its base, method and settings."""

STEP_SIZES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
TUNING_SEEDS, SEEDS = (101, 102), tuple(range(1, 11))
PAGE = Path(__file__).parent.parent / "docs" / "unequal-clients.md"


@dataclass(frozen=True)
class Workload:
    """Unequal clients, and how long they train."""

    name: str
    data: str
    title: str
    settings: dict[str, Any]
    step_sizes: Sequence[float] = STEP_SIZES
    tuning_seeds: Sequence[int] = TUNING_SEEDS

    def run(self, variant: str, lr: float, seed: int, runs: Path) -> fr.Result:
        """One run, continued where it was stopped."""
        _, method, chosen = VARIANTS[variant]
        out = runs / self.name / f"{variant.replace(' ', '-').replace(',', '')}-lr{lr:g}-seed{seed}"
        if (out / "run.json").exists():
            return fr.resume(out)
        settings = {**self.settings, **chosen, "lr": lr, "seed": seed, "out": out}
        return fr.run(method, data=self.data, fraction=1.0, validation=0.2, **settings)


COMMON = {"rounds": 20, "workers": 1, "eval": {"every": 5, "last": 1, "per_client": 20}, "progress": False}
HEART = {**COMMON, "eval": {"every": 5, "last": 1, "per_client": 20, "metric": "auroc"}}
FASHION = {
    **COMMON,
    "clients": 10,
    "samples": 2000,
    "test_samples": 2000,
    "model": "mlp",
    "batch_size": 10,
    "holdout": 0.2,
}
WORKLOADS = (
    Workload("hospitals", "heart-disease", "Heart disease, four hospitals (AUROC)", {**HEART, "batch_size": 8}),
    Workload(
        "sizes",
        "fashion-mnist",
        "Fashion-MNIST, sizes unequal (quantity, α = 0.3; accuracy)",
        {**FASHION, "partition": "quantity", "alpha": 0.3},
    ),
    Workload(
        "classes",
        "fashion-mnist",
        "Fashion-MNIST, sizes and classes unequal (dirichlet-class, α = 0.1; accuracy)",
        {**FASHION, "partition": "dirichlet-class", "alpha": 0.1, "min_samples": 20},
    ),
)
SMOKE = Workload("smoke", "heart-disease", "Smoke", {**HEART, "rounds": 6}, (0.01,), (101,))


@dataclass(frozen=True)
class Row:
    """A variant: the chosen step size and the runs of all seeds with it."""

    variant: str
    lr: float
    edge: bool
    results: tuple[fr.Result, ...]

    @property
    def base(self) -> str:
        """What it is compared with."""
        return VARIANTS[self.variant][0]

    def minus(self, base: Row) -> PairedDifference:
        """The difference of test scores in points, seed by seed."""
        pairs = zip(self.results, base.results, strict=True)
        return PairedDifference(tuple(100 * (one.score - two.score) for one, two in pairs))

    def cells(self, base: Row, *, certain: bool) -> Sequence[str]:
        """One line of the table, beside its base; a difference that is more than chance is bold."""
        scores = [100 * result.score for result in self.results]
        seconds, of_base = (statistics.mean(each.virtual_seconds for each in row.results) for row in (self, base))
        worst = statistics.mean(100 * result.clients.spread().worst_value for result in self.results)
        difference = self.minus(base)
        low, high = difference.interval or (float("nan"), float("nan"))
        shown = f"{difference.mean:+.1f} ({low:+.1f} … {high:+.1f})"
        return (
            self.variant,
            f"{self.lr:g}{' (edge)' if self.edge else ''}",
            f"{statistics.mean(scores):.1f} ± {statistics.stdev(scores):.1f}",
            "" if base is self else f"**{shown}**" if certain else shown,
            f"{worst:.1f}",
            f"{seconds / of_base:.2f}",
        )


def validated(workload: Workload, variant: str, lr: float, seed: int, runs: Path) -> float:
    """How good a run is on its validation samples at its end; one that diverges is worth nothing."""
    try:
        result = workload.run(variant, lr, seed, runs)
    except fr.DivergedError:
        return 0.0
    return float(result.history[-1][f"validation_{result.metric}"])


def tuned(workload: Workload, variant: str, runs: Path, seeds: Sequence[int]) -> Row:
    """Choose the step size, then run all seeds with it."""
    grid = workload.step_sizes
    scores = {
        lr: statistics.mean(validated(workload, variant, lr, seed, runs) for seed in workload.tuning_seeds)
        for lr in grid
    }
    best = max(grid, key=scores.__getitem__)
    print(f"{workload.name}: {variant}: step size {best:g}", flush=True)
    results = tuple(workload.run(variant, best, seed, runs) for seed in seeds)
    return Row(variant, best, len(grid) > 1 and best in (grid[0], grid[-1]), results)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """All rows in Markdown."""
    of_name = {row.variant: row for row in rows}
    compared = [row for row in rows if row.variant != row.base]
    certain = more_than_chance([row.minus(of_name[row.base]) for row in compared])
    marked = {row.variant for row, is_certain in zip(compared, certain, strict=True) if is_certain}
    yield "| variant | step size | test score, % | difference from base, points | worst client, % | virtual time, × |"
    yield "|---|---:|---:|---:|---:|---:|"
    for row in rows:
        yield f"| {' | '.join(row.cells(of_name[row.base], certain=row.variant in marked))} |"


def page(found: Sequence[tuple[Workload, list[Row]]]) -> Iterator[str]:
    """docs/unequal-clients.md."""
    yield "# Clients of unequal size and classes, measured"
    yield ""
    yield textwrap.fill(
        "Made by `benchmarks/unequal_clients.py --write`. Each line differs from its base (FedCyclic or FedAvg with "
        f"all defaults) in one setting. Test score at the end, mean ± standard deviation over {len(SEEDS)} seeds; the "
        "difference from the base seed by seed, with its 95 % interval, bold if it is more than chance after Holm's "
        "correction for all lines of its table. The step size of every line is the best of "
        f"{len(STEP_SIZES)} on validation samples (a fifth of every client) of two other seeds; “edge” marks one at "
        "the end of its grid, where a further one might be better. The worst client by its own held-out samples. "
        "Virtual time as a multiple of the base's: more steps take longer. All clients take part in every round.",
        120,
    )
    for workload, rows in found:
        yield from ("", f"## {workload.title}", "", *table(rows))


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/unequal-clients.md")
    parser.add_argument("--runs", type=Path, default=Path("runs/unequal-clients"), help="where runs are kept")
    parser.add_argument("--smoke", action="store_true", help="check that it works; keep and write nothing")
    options = parser.parse_args()
    if options.smoke:
        with tempfile.TemporaryDirectory() as folder:
            print("\n".join(table([tuned(SMOKE, variant, Path(folder), (1, 2)) for variant in (CHAIN, "FedTM")])))
        return
    found = [(each, [tuned(each, name, options.runs, SEEDS) for name in VARIANTS]) for each in available(WORKLOADS)]
    text = "\n".join(page(found)) + "\n"
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
