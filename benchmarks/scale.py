"""Time and memory by number of clients: 10³ … 10⁶ synthetic clients, 100 of them per round.

    .venv/bin/python benchmarks/scale.py                 print the table
    .venv/bin/python benchmarks/scale.py --write         also write docs/scale.md and docs/scale.png
    .venv/bin/python benchmarks/scale.py --most 100000   stop earlier
    .venv/bin/python benchmarks/scale.py --smoke         one small size once

Every size runs in its own process, and the sizes alternate, so that other load on the machine does not hit only one of
them. Memory is the sum of the peaks of the main process and all workers; shared pages are counted more than once, so
the true number is lower.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"
GOAL_RATIO, GOAL_BYTES = 1.2, 2 * 10**9
VISITED, ROUNDS, WARM_UP, WORKERS = 100, 30, 5, 2


def measure(clients: int) -> dict[str, float]:
    """One federation in this process: seconds a round (median) and peak memory."""
    import fedrelay as fr
    from fedrelay.data.synthetic import LogNormalSizes, SyntheticFederation

    class Stopwatch(fr.Callback):
        """Notes when rounds end."""

        def __init__(self) -> None:
            self.moments: list[float] = []

        def on_round_end(self, context: fr.RoundContext) -> None:
            self.moments.append(time.perf_counter())

    began = time.perf_counter()
    federation = SyntheticFederation(clients, alpha=1.0, beta=1.0, size_rule=LogNormalSizes(log_std=0.0))
    watch = Stopwatch()
    settings = {"rounds": ROUNDS, "fraction": VISITED / clients, "every": 10, "workers": WORKERS}
    fr.run("fedavg", data=federation, callbacks=watch, **settings)
    laps = [later - sooner for sooner, later in zip(watch.moments, watch.moments[1:], strict=False)][WARM_UP:]
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {
        "seconds": statistics.median(laps),
        "first_round": watch.moments[0] - began,
        "bytes": 1024.0 * (own + WORKERS * children),
    }


def repetitions(sizes: list[int], repeats: int) -> dict[int, list[dict[str, float]]]:
    """Every size as often as asked, in turn."""
    found: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    for repeat in range(repeats):
        for size in sizes:
            print(f"repetition {repeat + 1} of {repeats}: {size:,} clients …", file=sys.stderr)
            child = subprocess.run(
                [sys.executable, __file__, "--measure", str(size)], stdout=subprocess.PIPE, text=True, check=True
            )
            found[size].append(json.loads(child.stdout))
    return found


def table(found: dict[int, list[dict[str, float]]]) -> str:
    """Median and range of every size, and the ratio to the first, as Markdown."""
    lines = [
        "| clients | ms per round (median) | range | start to end of round 1, s | peak memory, MB |",
        "|---:|---:|---:|---:|---:|",
    ]
    for size, runs in found.items():
        laps = [1e3 * run["seconds"] for run in runs]
        first = statistics.median(run["first_round"] for run in runs)
        memory = max(run["bytes"] for run in runs) / 1e6
        median, lowest, highest = statistics.median(laps), min(laps), max(laps)
        lines.append(f"| {size:,} | {median:.1f} | {lowest:.1f}–{highest:.1f} | {first:.2f} | {memory:,.0f} |")
    return "\n".join(lines)


def verdict(found: dict[int, list[dict[str, float]]]) -> str:
    """Whether the goals are met."""
    medians = [statistics.median(run["seconds"] for run in runs) for runs in found.values()]
    ratio, memory = medians[-1] / medians[0], max(run["bytes"] for runs in found.values() for run in runs)
    flat = "met" if ratio <= GOAL_RATIO else "NOT met"
    small = "met" if memory < GOAL_BYTES else "NOT met"
    return (
        f"Time per round, last size over first: {ratio:.2f}× (goal at most {GOAL_RATIO}×: {flat}). "
        f"Peak memory: {memory / 1e9:.2f} GB (goal under {GOAL_BYTES / 1e9:.0f} GB: {small})."
    )


def draw(found: dict[int, list[dict[str, float]]], path: Path) -> None:
    """Time and memory against the number of clients."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    sizes = list(found)
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
    laps = [[1e3 * run["seconds"] for run in runs] for runs in found.values()]
    medians = [statistics.median(runs) for runs in laps]
    left.plot(sizes, medians, "o-", color="#0072B2")
    left.fill_between(sizes, [min(r) for r in laps], [max(r) for r in laps], color="#0072B2", alpha=0.2, linewidth=0)
    left.set(xscale="log", xlabel="clients", ylabel="ms a round", ylim=(0, 1.5 * max(medians)))
    right.plot(sizes, [max(run["bytes"] for run in runs) / 1e9 for runs in found.values()], "o-", color="#D55E00")
    right.set(xscale="log", xlabel="clients", ylabel="peak memory, GB", ylim=(0, 2))
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{VISITED} clients visited a round", fontsize=11)
    figure.savefig(path, dpi=160)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measure", type=int, metavar="CLIENTS", help="measure one size in this process, print JSON")
    parser.add_argument("--most", type=int, default=1_000_000, help="the largest number of clients")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions of every size")
    parser.add_argument("--write", action="store_true", help="write docs/scale.md and docs/scale.png")
    parser.add_argument("--smoke", action="store_true", help="check that it works; write nothing")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    if options.smoke:
        found = repetitions([VISITED], repeats=1)
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
            "# Scale\n\nSynthetic clients of equal size; FedAvg trains on "
            f"{VISITED} of them per round with {WORKERS} workers. Made by `benchmarks/scale.py --write`.\n\n"
            f"{table(found)}\n\n{verdict(found)}\n\n![Time and memory by number of clients](scale.png)\n"
        )
        (DOCS / "scale.md").write_text(page)


if __name__ == "__main__":
    main()
