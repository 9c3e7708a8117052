"""Adam whose memory is reset at every hop, kept by the client, or sent along with the model.

    .venv/bin/python benchmarks/optimizer_state.py           run what is missing, print the page
    .venv/bin/python benchmarks/optimizer_state.py --write   also write docs/optimizer-state.md
    .venv/bin/python benchmarks/optimizer_state.py --smoke   one method, two rounds

Every client has one class. Each combination of method and optimizer has the same budget for its step size: one run
for each of six, all on a seed of their own, the best by validation samples. Then fresh seeds are judged on the test
samples. Runs are kept in `--runs` and continued there. Fashion-MNIST is left out if it is not found.
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

METHODS = {"fedavg": "FedAvg", "fedseq": "FedSeq", "fedcyclic": "FedCyclic"}
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "SGD": {"optimizer": "sgd"},
    "Adam, reset": {"optimizer": "adam", "optimizer_state": "reset"},
    "Adam, kept by the client": {"optimizer": "adam", "optimizer_state": "client"},
    "Adam, sent along": {"optimizer": "adam", "optimizer_state": "payload"},
}
STEP_SIZES = {"sgd": (0.003, 0.01, 0.03, 0.1, 0.3, 1.0), "adam": (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03)}
TUNING_SEED, SEEDS = 11, (1, 2, 3)
PAGE = Path(__file__).parent.parent / "docs" / "optimizer-state.md"


@dataclass(frozen=True)
class Workload:
    """A data set dealt out to clients with one class each, and how long it is trained."""

    data: str
    title: str
    settings: dict[str, Any]

    def run(self, method: str, optimizer: str, lr: float, seed: int, runs: Path) -> fr.Result:
        """One run, continued where it was stopped."""
        chosen = OPTIMIZERS[optimizer]
        out = runs / self.data / f"{method}-{'-'.join(chosen.values())}-lr{lr:g}-seed{seed}"
        if (out / "run.json").exists():
            return fr.resume(out)
        settings = {**self.settings, **chosen, "lr": lr, "seed": seed, "out": out}
        return fr.run(method, data=self.data, alpha=0.0, validation=0.2, **settings)


WORKLOADS = (
    Workload("digits", "Digits", {"clients": 100, "fraction": 0.2, "rounds": 60, "batch_size": 10, "model": "mlp"}),
    Workload(
        "fashion-mnist",
        "Fashion-MNIST",
        {
            "clients": 100,
            "fraction": 0.2,
            "rounds": 60,
            "batch_size": 10,
            "model": "mlp",
            "samples": 6000,
            "test_samples": 2000,
        },
    ),
)
SMOKE = Workload("digits", "Smoke", {"clients": 10, "rounds": 2, "samples": 200, "workers": 1, "progress": False})


@dataclass(frozen=True)
class Row:
    """A method with an optimizer: the chosen step size and the runs of all seeds with it."""

    method: str
    optimizer: str
    lr: float
    edge: bool
    results: tuple[fr.Result, ...]

    @property
    def mean(self) -> float:
        """The mean test accuracy at the end, in per cent."""
        return 100 * statistics.mean(result.score_last for result in self.results)

    def cells(self) -> Sequence[str]:
        """One line of the table."""
        first, spread = self.results[0], 100 * statistics.stdev(result.score_last for result in self.results)
        return (
            METHODS[self.method],
            self.optimizer,
            f"{self.lr:g}{' (edge)' if self.edge else ''}",
            f"{self.mean:.1f} ± {spread:.1f}",
            f"{first.bytes / first.client_updates / 1e3:.1f}",
            f"{first.bytes / 1e6:.1f}",
        )


def validated(workload: Workload, *run: Any) -> float:
    """How good a run is on its validation samples at its end; a run that diverged is worse than all others."""
    try:
        result = workload.run(*run)
    except fr.DivergedError:
        return -1.0
    values = [row["validation_accuracy"] for row in result.history if row.get("validation_accuracy") is not None]
    return statistics.mean(values[-5:])


def tuned(workload: Workload, method: str, optimizer: str, runs: Path, seeds: Sequence[int]) -> Row:
    """Choose the step size, then run all seeds with it."""
    grid = STEP_SIZES[OPTIMIZERS[optimizer]["optimizer"]]
    scores = {lr: validated(workload, method, optimizer, lr, TUNING_SEED, runs) for lr in grid}
    best = max(scores, key=lambda lr: scores[lr])
    results = tuple(workload.run(method, optimizer, best, seed, runs) for seed in seeds)
    return Row(method, optimizer, best, best in (grid[0], grid[-1]), results)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """All rows in Markdown."""
    yield "| method | optimizer | step size | accuracy, % | kB a client update | MB |"
    yield "|---|---|---:|---:|---:|---:|"
    yield from (f"| {' | '.join(row.cells())} |" for row in rows)


def reading(rows: Sequence[Row]) -> str:
    """The table in words."""
    sentences = []
    for method, title in METHODS.items():
        of_method = {row.optimizer: row.mean for row in rows if row.method == method}
        if not of_method:
            continue
        ranked = sorted(of_method, key=lambda name: of_method[name], reverse=True)
        sentences.append(f"{title}: " + ", ".join(f"{name} {of_method[name]:.1f}" for name in ranked) + ".")
    return " ".join(sentences)


def page(found: Sequence[tuple[Workload, list[Row]]]) -> Iterator[str]:
    """docs/optimizer-state.md."""
    yield "# What becomes of Adam's memory between hops"
    yield ""
    yield textwrap.fill(
        "Made by `benchmarks/optimizer_state.py --write`. Every client has one class (α = 0). Test accuracy, mean of "
        f"the last rounds, mean ± standard deviation over {len(SEEDS)} seeds. The step size of every line is the best "
        f"of six on validation samples (a fifth of every client) of another seed; “edge” marks one at the end of its "
        "grid, where a further one might be better. Bytes include setup and what travels with the model.",
        120,
    )
    for workload, rows in found:
        size = ", ".join(f"{name} {value}" for name, value in workload.settings.items())
        yield from ("", f"## {workload.title}", "", f"{size}.", "", *table(rows), "")
        yield textwrap.fill(reading(rows), 120)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/optimizer-state.md")
    parser.add_argument("--runs", type=Path, default=Path("runs/optimizer-state"), help="where runs are kept")
    parser.add_argument("--smoke", action="store_true", help="check that it works; keep and write nothing")
    options = parser.parse_args()
    if options.smoke:
        with tempfile.TemporaryDirectory() as folder:
            rows = [
                tuned(SMOKE, "fedseq", optimizer, Path(folder), (1, 2)) for optimizer in ("SGD", "Adam, sent along")
            ]
        print("\n".join(table(rows)))
        return
    found = []
    for workload in available(WORKLOADS):
        rows = [
            tuned(workload, method, optimizer, options.runs, SEEDS) for method in METHODS for optimizer in OPTIMIZERS
        ]
        found.append((workload, rows))
    text = "\n".join(page(found)) + "\n"
    print(text)
    if options.write:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
