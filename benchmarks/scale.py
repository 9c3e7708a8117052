"""Time, memory and files by number of clients: 10³ … 10⁶ synthetic clients, 100 of them per round.

    .venv/bin/python benchmarks/scale.py                 print the table
    .venv/bin/python benchmarks/scale.py --write         also write docs/scale.md and docs/scale.png
    .venv/bin/python benchmarks/scale.py --most 100000   stop earlier
    .venv/bin/python benchmarks/scale.py --smoke         one small size once, a few rounds

FedAvg samples clients; FedSeq forms random groups of all of them and samples groups.

Every size runs in its own process, and the sizes alternate, so that other load on the machine does not hit only one of
them. Times are CPU times of the main process and all workers, which hardly depend on other load.
Memory is the sum of the peaks of the main process and all workers; shared pages are counted more than once, so the true
number is lower.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import active_children, get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

DOCS = Path(__file__).parent.parent / "docs"
GOAL_RATIO, GOAL_BYTES, GOAL_FIRST_ROUND = 1.2, 2 * 10**9, 3.0
VISITED, ROUNDS, WARM_UP, WORKERS = 100, 30, 5, 2
METHODS = {"fedavg": "FedAvg", "fedseq": "FedSeq"}

Runs = list[dict[str, float]]
Found = dict[tuple[str, int], Runs]
"""What was measured, by method and number of clients."""


def cpu_seconds(process: BaseProcess) -> float:
    """The CPU time of a worker so far; a worker has one thread."""
    return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0]) / 1e9


def measure(method: str, clients: int, rounds: int) -> dict[str, float]:
    """One federation in this process: seconds a round (mean), until the end of round 1, peak memory and file size."""
    import fedrelay as fr
    from fedrelay.data.synthetic import LogNormalSizes, SyntheticFederation

    class Stopwatch(fr.Callback):
        """Notes when rounds end."""

        def __init__(self) -> None:
            self.work: list[float] = []
            """Seconds of CPU time of all processes so far."""

        def on_round_end(self, context: fr.RoundContext) -> None:
            self.work.append(time.process_time() + sum(map(cpu_seconds, active_children())))

    began = time.process_time()
    federation = SyntheticFederation(clients, alpha=1.0, beta=1.0, size_rule=LogNormalSizes(log_std=0.0))
    watch = Stopwatch()
    settings = {"rounds": rounds, "fraction": VISITED / clients, "every": 10, "workers": WORKERS}
    with TemporaryDirectory() as folder:
        fr.run(method, data=federation, callbacks=watch, out=Path(folder) / "run", **settings)
        files = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    laps = [later - sooner for sooner, later in pairwise(watch.work)][WARM_UP:]
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "work": statistics.fmean(laps),
        "first_round": watch.work[0] - began,
        "bytes": 1024.0 * (own + WORKERS * children),
        "files": files,
    }


def repetitions(sizes: list[int], repeats: int, rounds: int = ROUNDS) -> Found:
    """Every method and size as often as asked, in turn. Processes begin with the little that this one has imported."""
    found: Found = {(method, size): [] for method in METHODS for size in sizes}
    for repeat in range(repeats):
        for method, size in found:
            print(f"repetition {repeat + 1} of {repeats}: {METHODS[method]}, {size:,} clients …", file=sys.stderr)
            with ProcessPoolExecutor(1, get_context("fork")) as process:
                found[method, size].append(process.submit(measure, method, size, rounds).result())
    return found


def table(found: Found) -> str:
    """Median and range of every method and size, as Markdown."""
    lines = [
        "| method | clients | CPU per round, ms | range | CPU until the end of round 1, s "
        "| peak memory, MB | files, kB |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for (method, size), runs in found.items():
        work = [1e3 * run["work"] for run in runs]
        first = statistics.median(run["first_round"] for run in runs)
        memory, files = max(run["bytes"] for run in runs) / 1e6, max(run["files"] for run in runs) / 1e3
        times = [f"{statistics.median(work):.1f}", f"{min(work):.1f}–{max(work):.1f}"]
        cells = [METHODS[method], f"{size:,}", *times, f"{first:.2f}", f"{memory:,.0f}", f"{files:,.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(found: Found) -> str:
    """Whether the goals are met."""
    sentences = []
    for method, name in METHODS.items():
        medians = [statistics.median(run["work"] for run in runs) for (of, _), runs in found.items() if of == method]
        ratio = medians[-1] / medians[0]
        flat = "met" if ratio <= GOAL_RATIO else "NOT met"
        sentences.append(f"{name}: {ratio:.2f}× (goal at most {GOAL_RATIO}×: {flat}).")
    last = max(size for _, size in found)
    first = statistics.median(run["first_round"] for run in found["fedseq", last])
    soon = "met" if first < GOAL_FIRST_ROUND else "NOT met"
    memory = max(run["bytes"] for runs in found.values() for run in runs)
    small = "met" if memory < GOAL_BYTES else "NOT met"
    return (
        f"CPU time per round, last size over first: {' '.join(sentences)} "
        f"FedSeq with {last:,} clients ends its first round after {first:.1f} s of CPU time "
        f"(goal under {GOAL_FIRST_ROUND} s: {soon}). "
        f"Peak memory: {memory / 1e9:.2f} GB (goal under {GOAL_BYTES / 1e9:.0f} GB: {small})."
    )


def draw(found: Found, path: Path) -> None:
    """Time and memory against the number of clients."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    slowest = 0.0
    for (method, name), colour in zip(METHODS.items(), ("#0072B2", "#D55E00"), strict=True):
        of_method = {size: runs for (of, size), runs in found.items() if of == method}
        sizes, laps = list(of_method), [[1e3 * run["work"] for run in runs] for runs in of_method.values()]
        medians = [statistics.median(runs) for runs in laps]
        slowest = max(slowest, *medians)
        left.plot(sizes, medians, "o-", color=colour, label=name)
        left.fill_between(sizes, [min(r) for r in laps], [max(r) for r in laps], color=colour, alpha=0.2, linewidth=0)
        right.plot(sizes, [max(run["bytes"] for run in runs) / 1e9 for runs in of_method.values()], "o-", color=colour)
    left.set(xscale="log", xlabel="clients", ylabel="CPU ms a round", ylim=(0, 1.5 * slowest))
    left.legend(frameon=False)
    right.set(xscale="log", xlabel="clients", ylabel="peak memory, GB", ylim=(0, 2))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{VISITED} clients visited a round", fontsize=11)
    figure.savefig(path, dpi=160)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=1_000_000, help="the largest number of clients")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions of every size")
    parser.add_argument("--write", action="store_true", help="write docs/scale.md and docs/scale.png")
    parser.add_argument("--smoke", action="store_true", help="check that it works; write nothing")
    options = parser.parse_args()
    if options.smoke:
        found = repetitions([VISITED], repeats=1, rounds=WARM_UP + 2)
        print(table(found), verdict(found), sep="\n\n")
        return
    sizes = [size for size in (1_000, 10_000, 100_000, 1_000_000) if size <= options.most]
    if not sizes or options.repeats < 1:
        parser.error("--most must be at least 1000 and --repeats at least 1")
    found = repetitions(sizes, options.repeats)
    print(table(found), verdict(found), sep="\n\n")
    if options.write:
        draw(found, DOCS / "scale.png")
        page = (
            "# Scale\n\nSynthetic clients of equal size; methods train on "
            f"{VISITED} of them per round with {WORKERS} workers. FedSeq forms random groups of all. CPU time is that "
            "of the main process and all workers. "
            "Made by `benchmarks/scale.py --write`.\n\n"
            f"{table(found)}\n\n{verdict(found)}\n\n![Time and memory by number of clients](scale.png)\n"
        )
        (DOCS / "scale.md").write_text(page)


if __name__ == "__main__":
    main()
