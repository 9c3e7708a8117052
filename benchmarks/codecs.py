"""Accuracy against bytes: the same runs with every codec.

    .venv/bin/python benchmarks/codecs.py           run what is missing, print the page
    .venv/bin/python benchmarks/codecs.py --write   also write docs/codecs-benchmark.md and its picture
    .venv/bin/python benchmarks/codecs.py --smoke   one method, two rounds

Runs are kept in `--runs` and continued there. Data sets that are not found are left out. Step sizes are the same for
all codecs: those of float32 were not tuned for any of them.
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

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg": ("fedavg", {}),
    "FedSeq": ("fedseq", {}),
    "SPFL": ("spfl", {}),
    "FedGSP": ("fedgsp", {}),
}
"""Title → method and options."""

CODECS: dict[str, dict[str, Any]] = {
    "float32": {},
    "float16": {"codec": "float16"},
    "bfloat16": {"codec": "bfloat16"},
    "int8": {"codec": "int8"},
    "top-k, 10 %": {"codec": "top-k", "keep": 0.1},
    "top-k, 1 %": {"codec": "top-k", "keep": 0.01},
    "top-k, 1 %, no feedback": {"codec": "top-k", "keep": 0.01, "error_feedback": False},
}
MARKERS = dict(zip(CODECS, "osD^vP*", strict=True))
WITH_TOP_K = ("FedAvg", "FedGSP")
"""Methods whose models pass through the server after every client."""

SEEDS = (1, 2, 3)
DOCS = Path(__file__).parent.parent / "docs"


@dataclass(frozen=True)
class Workload:
    """A data set dealt out to clients, and how long it is trained."""

    data: str
    title: str
    settings: dict[str, Any]
    methods: tuple[str, ...] = tuple(METHODS)

    def run(self, method: str, codec: str, seed: int, runs: Path) -> fr.Result:
        """One run, continued where it was stopped."""
        name, options = METHODS[method]
        out = runs / self.data / f"{name}-{codec.replace(' ', '')}-seed{seed}"
        if (out / "run.json").exists():
            return fr.resume(out)
        settings = {**self.settings, **options, "transfer": CODECS[codec], "seed": seed, "out": out}
        return fr.run(name, data=self.data, **settings)


SMALL = {"fraction": 0.2, "batch_size": 10, "eval": {"every": 2, "last": 5}, "workers": 1}
WORKLOADS = (
    Workload("digits", "Digits", {**SMALL, "clients": 50, "alpha": 0.0, "rounds": 40, "model": "mlp", "lr": 0.1}),
    Workload(
        "fashion-mnist",
        "Fashion-MNIST",
        {
            **SMALL,
            "clients": 50,
            "alpha": 0.0,
            "rounds": 40,
            "model": "mlp",
            "lr": 0.03,
            "samples": 3000,
            "test_samples": 1000,
        },
    ),
    Workload(
        "cifar10",
        "CIFAR-10",
        {
            **SMALL,
            "clients": 20,
            "alpha": 0.5,
            "rounds": 60,
            "model": "cnn-s",
            "lr": 0.05,
            "samples": 4000,
            "test_samples": 1000,
        },
        methods=("FedAvg", "FedSeq", "FedGSP"),
    ),
)
SMOKE = Workload(
    "digits", "Smoke", {**SMALL, "clients": 10, "rounds": 2, "samples": 200, "progress": False}, ("FedAvg",)
)


@dataclass(frozen=True)
class Row:
    """A method with a codec, and its runs of all seeds."""

    method: str
    codec: str
    results: tuple[fr.Result, ...]

    @property
    def accuracy(self) -> float:
        """The mean test accuracy at the end, in per cent."""
        return 100 * statistics.mean(result.score_last for result in self.results)

    @property
    def megabytes(self) -> float:
        """Megabytes of a run, setup included."""
        return statistics.mean(result.bytes for result in self.results) / 1e6

    def cells(self, plain: Row) -> Sequence[str]:
        """One line of the table, beside the same method with float32."""
        spread = 100 * statistics.stdev(result.score_last for result in self.results)
        share = 100 * self.megabytes / plain.megabytes
        return (self.method, self.codec, f"{self.accuracy:.1f} ± {spread:.1f}", f"{self.megabytes:.1f}", f"{share:.0f}")


def rows_of(workload: Workload, runs: Path, seeds: Sequence[int]) -> list[Row]:
    """All rows of a workload."""
    return [
        Row(method, codec, tuple(workload.run(method, codec, seed, runs) for seed in seeds))
        for method in workload.methods
        for codec, transfer in CODECS.items()
        if transfer.get("codec") != "top-k" or method in WITH_TOP_K
    ]


def table(rows: Sequence[Row]) -> Iterator[str]:
    """All rows in Markdown."""
    plain = {row.method: row for row in rows if row.codec == "float32"}
    yield "| method | codec | accuracy, % | MB | % of float32 |"
    yield "|---|---|---:|---:|---:|"
    yield from (f"| {' | '.join(row.cells(plain[row.method]))} |" for row in rows)


def span(values: Sequence[float], form: str) -> str:
    """The least and the largest of some numbers, or one if they look the same."""
    least, most = format(min(values), form), format(max(values), form)
    return least if least == most else f"{least} to {most}"


def reading(rows: Sequence[Row]) -> str:
    """What each codec costs and saves over all methods."""
    plain = {row.method: row for row in rows if row.codec == "float32"}
    sentences = []
    for codec in list(CODECS)[1:]:
        found = [row for row in rows if row.codec == codec]
        if not found:
            continue
        changes = [row.accuracy - plain[row.method].accuracy for row in found]
        shares = [100 * row.megabytes / plain[row.method].megabytes for row in found]
        sentences.append(f"{codec}: {span(changes, '+.1f')} points for {span(shares, '.0f')} % of the bytes.")
    return "\n".join(f"- {each}" for each in sentences)


def page(found: Sequence[tuple[Workload, list[Row]]], command: str) -> str:
    """docs/codecs-benchmark.md."""
    head = textwrap.fill(
        f"Made by `{command}`. Test accuracy, mean of the last five evaluations; mean ± standard deviation over "
        f"{len(SEEDS)} seeds. Bytes are those of the ledger in both directions. Top-k is shown for methods whose "
        "models pass through the server after every client; its downloads are float32. Step sizes are the same for all "
        "codecs. [codecs.md](codecs.md) says what is encoded.",
        120,
    )
    parts = ["# Accuracy against bytes", head, "![Accuracy against bytes](codecs.png)"]
    for workload, rows in found:
        size = ", ".join(
            f"{name} {value}" for name, value in workload.settings.items() if name not in ("eval", "workers")
        )
        parts += [f"## {workload.title}", f"{textwrap.fill(size, 118)}.", "\n".join(table(rows)), reading(rows)]
    return "\n\n".join(parts) + "\n"


def draw(found: Sequence[tuple[Workload, list[Row]]], path: Path) -> None:
    """One panel for each workload: a line for each method, a marker for each codec."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.lines import Line2D

    colours = dict(zip(METHODS, plt.get_cmap("tab10").colors, strict=False))  # type: ignore[attr-defined]
    figure, panels = plt.subplots(1, len(found), figsize=(4.2 * len(found), 4.0), squeeze=False, layout="constrained")
    for axes, (workload, rows) in zip(panels[0], found, strict=True):
        for row in rows:
            spread = 100 * statistics.stdev(result.score_last for result in row.results)
            axes.errorbar(
                row.megabytes, row.accuracy, spread, color=colours[row.method], marker=MARKERS[row.codec], ms=6, lw=0.8
            )
        axes.set_xscale("log")
        axes.set_title(workload.title, fontsize=10)
        axes.set_xlabel("MB sent, both directions")
        axes.grid(alpha=0.3)
    panels[0][0].set_ylabel("accuracy, %")
    shown_methods, shown_codecs = (
        {getattr(row, each) for _, rows in found for row in rows} for each in ("method", "codec")
    )
    methods = [Line2D([], [], color=colours[name], lw=3, label=name) for name in METHODS if name in shown_methods]
    codecs = [
        Line2D([], [], color="grey", ls="", marker=MARKERS[name], label=name) for name in CODECS if name in shown_codecs
    ]
    figure.legend(handles=[*methods, *codecs], loc="outside lower center", ncols=2 * len(found), fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/codecs-benchmark.md and its picture")
    parser.add_argument("--runs", type=Path, default=Path("runs/codecs"), help="where runs are kept")
    parser.add_argument("--smoke", action="store_true", help="check that it works; keep and write nothing")
    options = parser.parse_args()
    if options.smoke:
        with tempfile.TemporaryDirectory() as folder:
            found = [(SMOKE, rows_of(SMOKE, Path(folder), (1, 2)))]
            print(page(found, "benchmarks/codecs.py --smoke"))
            draw(found, Path(folder) / "codecs.png")
        return
    found = []
    for workload in available(WORKLOADS):
        found.append((workload, rows_of(workload, options.runs, SEEDS)))
        text = page(found, "benchmarks/codecs.py --write")
        if options.write:
            (DOCS / "codecs-benchmark.md").write_text(text, encoding="utf-8")
            draw(found, DOCS / "codecs.png")
    print(text)


if __name__ == "__main__":
    main()
