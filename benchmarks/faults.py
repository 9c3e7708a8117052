"""Every way of travelling in every kind of bad weather: what is left of the accuracy, with and without the guard.

    .venv/bin/python benchmarks/faults.py                          print the table
    .venv/bin/python benchmarks/faults.py --write                  and write docs/weather.md and docs/weather.png
    .venv/bin/python benchmarks/faults.py --seeds 1 --rounds 20    sooner
    .venv/bin/python benchmarks/faults.py --smoke                  one method, one round

Runs are kept in a folder (--out), so that an interrupted table goes on where it stopped. A run that ends because its
model diverged, or because nobody's work was ever accepted, is shown as such, not as an accuracy. The page is written
anew after every method.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay import compare
from fedrelay.runtime.comparison import ComparisonResult, MethodResults

DOCS = Path(__file__).parent.parent / "docs"
METHODS = (
    "fedavg", "fedcyclic", "fedstar", "fedseq", "fedseqinter", "fedasyncseq", "fedseq2par", "fedgsp", "wfsl", "spfl",
)  # fmt: skip
"""One for every route."""

OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "fedgsp": {"route": {"beta": 4}},
    "wfsl": {"warmup": {"cycles": 10}},
    "spfl": {"fraction": 0.1},  # each of its models visits all others' clients: a hundred turns a round are enough
}
ATTACKERS = tuple(range(0, 100, 10))
DROPOUT, TURNED, TURNED_LONG = (
    "dropout at 30 % of all turns",
    "one client in ten turns its update round",
    "one client in ten turns it round, five times as long",
)
FAULTS: Mapping[str, Mapping[str, Any]] = {
    DROPOUT: {"what": "dropout", "rate": 0.3},
    "30 % of clients gone from round 10 on": {"what": "gone", "rate": 0.3, "first": 10},
    "10 % hang until the timeout": {"what": "hang", "rate": 0.1},
    "10 % of messages lost": {"what": "lost", "rate": 0.1},
    "10 % of messages twice": {"what": "duplicated", "rate": 0.1},
    "20 % ten times slower": {"what": "straggler", "rate": 0.2, "factor": 10},
    "5 % not a number": {"what": "nan", "rate": 0.05},
    "5 % infinite": {"what": "inf", "rate": 0.05},
    "5 % of another shape": {"what": "shape", "rate": 0.05},
    "5 % zeroed": {"what": "zero", "rate": 0.05},
    "5 % a thousand times larger": {"what": "explode", "rate": 0.05, "factor": 1000},
    TURNED: {"what": "sign-flip", "clients": ATTACKERS, "factor": 1},
    TURNED_LONG: {"what": "sign-flip", "clients": ATTACKERS, "factor": 5},
    "one client in ten sends its update ten times": {"what": "replace", "clients": ATTACKERS, "factor": 10},
}
DEFENCE = {"on_divergence": "skip", "norm": 3.0, "tolerance": 0.3}
"""The same for all methods and faults, and fixed before the first run of the table.

What `tolerance` means was changed once, after a first table in which it refused honest clients: see docs/faults.md.
"""


def entrants(method: str) -> Iterator[dict[str, Any]]:
    """A method in fair weather, then in every other, without and with the guard."""
    own = OPTIONS.get(method, {})
    yield {"method": method, "label": "clean", **own}
    yield {"method": method, "label": "clean, guarded", "guard": DEFENCE, **own}
    for name, fault in FAULTS.items():
        yield {"method": method, "label": name, "faults": [fault], **own}
        yield {"method": method, "label": f"{name}, guarded", "faults": [fault], "guard": DEFENCE, **own}


def with_faults(method: str, rounds: int, seeds: Sequence[int], out: Path, workers: int = 0) -> ComparisonResult:
    """All runs of one method; `workers` as in `engine.workers`."""
    return compare(
        list(entrants(method)),
        data={"name": "digits", "clients": 100, "alpha": 0.0, "public": 10},
        train={"lr": 0.05, "batch_size": 8},
        rounds=rounds,
        workers=workers,
        seeds=list(seeds),
        out=out / method,
    )


def cell(contender: MethodResults) -> str:
    """The accuracy of one line, or how it ended."""
    ended = "diverged" if contender.diverged else "learnt nothing"
    found = contender.mean_std(lambda result: 100 * result.accuracy_last)
    if found is None:
        return ended
    deviation = f" ± {found[1]:.1f}" if len(contender.results) > 1 else ""
    lost = f" ({len(contender.failed)} {ended})" if contender.failed else ""
    return f"{found[0]:.1f}{deviation}{lost}"


def kept(outcome: ComparisonResult, weather: str, *, guarded: bool) -> float | None:
    """What is left of the accuracy in fair weather, as a share; None where any run has no result."""
    contender = outcome[f"{weather}, guarded" if guarded else weather]
    found, clean = (each.mean_std(lambda result: result.accuracy_last) for each in (contender, outcome["clean"]))
    return None if found is None or clean is None or contender.failed else found[0] / clean[0]


def said(share: float | None) -> str:
    """A share as the page says it."""
    return "nothing, runs are lost" if share is None else f"{100 * share:.1f} %"


def held(share: float | None, yardstick: float) -> str:
    """Whether a yardstick is reached."""
    return "holds" if share is not None and share >= yardstick else "does not hold"


def findings(outcomes: Mapping[str, ComparisonResult]) -> Iterator[str]:
    """What the table says of the yardsticks that were set before it was made."""
    if "fedseq" in outcomes:
        share = kept(outcomes["fedseq"], DROPOUT, guarded=False)
        yield (
            f"**Dropout.** FedSeq with 30 % dropout at every hop keeps {said(share)} of its clean accuracy; "
            f"the yardstick of 95 % {held(share, 0.95)}. "
            "[faults.md](faults.md#recovery) says how it goes on: 60 rounds are more than the table has."
        )
    for weather, words in ((TURNED, "as it is"), (TURNED_LONG, "five times as long")):
        shares = {
            name: tuple(kept(outcome, weather, guarded=guarded) for guarded in (False, True))
            for name, outcome in outcomes.items()
        }
        least, most = (pick(without or 0.0 for without, _ in shares.values()) for pick in (min, max))
        short = [f"{name} ({said(within)})" for name, (_, within) in shares.items() if held(within, 0.9) != "holds"]
        yield (
            f"**One client in ten turns its update round, {words}.** Without the guard methods keep {100 * least:.1f} "
            f"to {100 * most:.1f} % of their clean accuracy; with it the yardstick of 90 % holds for "
            f"{len(shares) - len(short)} of {len(shares)} methods{', not for ' + ', '.join(short) if short else ''}."
        )
    guarded = [outcome[f"{name}, guarded"] for outcome in outcomes.values() for name in ("clean", *FAULTS)]
    results = [result for contender in guarded for result in contender.results]
    lost = sum(len(contender.failed) for contender in guarded)
    odd = sum(not bool(result.weights.isfinite().all()) for result in results)
    yield (
        f"**No run lost.** Of {len(results) + lost} runs with the guard {lost} ended early, and {odd} of the merged "
        "models have values that are not finite."
    )
    costs = {name: kept(outcome, "clean", guarded=True) for name, outcome in outcomes.items()}
    price = [f"{name} {said(share)}" for name, share in costs.items()]
    yield f"**Fair weather.** What the guard leaves of the clean accuracy: {', '.join(price)}."


def page(outcomes: Mapping[str, ComparisonResult], rounds: int, seeds: Sequence[int], command: str) -> str:
    """The table as a page of the documentation."""
    head = (
        "# Bad weather\n\n"
        "Accuracy in percent on digits (100 clients, one class each, 20 % take part in a round, of SPFL 10 %), mean of "
        f"the last ten of {rounds} rounds, mean ± standard deviation over the seeds 1 to {len(seeds)}: without the "
        "guard → with it (`guard: {on_divergence: skip, norm: 3, tolerance: 0.3}`, the same everywhere; the public set "
        "of ten samples a class is taken out of the test set of all runs). Clients that do not answer are skipped. "
        "What the guard looks at, and what was changed about it after a first table, is said in "
        "[faults.md](faults.md).\n\n"
        f"Made by `{command}`.\n"
    )
    lines = ["| weather | " + " | ".join(outcomes) + " |", "|---" * (len(outcomes) + 1) + "|"]
    for name in ("clean", *FAULTS):
        cells = [f"{cell(each[name])} → {cell(each[f'{name}, guarded'])}" for each in outcomes.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    picture = "![What is left of the accuracy in fair weather, without and with the guard](weather.png)"
    points = "\n".join(f"- {each}" for each in findings(outcomes))
    return f"{head}\n" + "\n".join(lines) + f"\n\n{picture}\n\n{points}\n"


def draw(outcomes: Mapping[str, ComparisonResult], path: Path) -> None:
    """Two maps side by side: shares of the clean accuracy, without and with the guard; grey where runs are lost."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    weathers = ("clean", *FAULTS)
    figure, maps = plt.subplots(1, 2, figsize=(4 + 0.9 * len(outcomes), 4.6), sharey=True, layout="constrained")
    for axes, guarded in zip(maps, (False, True), strict=True):
        shares = [[kept(outcome, name, guarded=guarded) for outcome in outcomes.values()] for name in weathers]
        cells = [[float("nan") if share is None else 100 * share for share in row] for row in shares]
        image = axes.imshow(cells, vmin=0, vmax=100, cmap="viridis", aspect="auto")
        axes.set_facecolor("lightgrey")
        axes.set_xticks(range(len(outcomes)), list(outcomes), rotation=45, ha="right", fontsize=7)
        axes.set_yticks(range(len(weathers)), weathers, fontsize=7)
        axes.set_title("with the guard" if guarded else "without the guard", fontsize=9)
        for row, column in ((row, column) for row in range(len(weathers)) for column in range(len(outcomes))):
            share = shares[row][column]
            text, dark = ("–", False) if share is None else (f"{100 * share:.0f}", share < 0.6)
            axes.text(column, row, text, ha="center", va="center", fontsize=6, color="white" if dark else "black")
    figure.colorbar(image, ax=maps, label="% of the clean accuracy", shrink=0.8)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run what is missing, then show the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/faults"))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS, metavar="METHOD")
    parser.add_argument("--write", action="store_true", help="write docs/weather.md and docs/weather.png")
    parser.add_argument("--smoke", action="store_true", help="only see that it works; keeps and writes nothing")
    asked = parser.parse_args()
    if asked.smoke:
        with tempfile.TemporaryDirectory() as folder:
            outcome = {"fedavg": with_faults("fedavg", 1, [1], Path(folder), workers=1)}
            print(page(outcome, 1, [1], "benchmarks/faults.py --smoke"))
            draw(outcome, Path(folder) / "weather.png")
        return
    seeds = range(1, asked.seeds + 1)
    command = f"benchmarks/faults.py --rounds {asked.rounds} --seeds {asked.seeds} --write"
    if tuple(asked.methods) != METHODS:
        command += f" --methods {' '.join(asked.methods)}"
    outcomes: dict[str, ComparisonResult] = {}
    for method in asked.methods:
        outcomes[method] = with_faults(method, asked.rounds, seeds, asked.out)
        if asked.write:
            (DOCS / "weather.md").write_text(page(outcomes, asked.rounds, seeds, command), encoding="utf-8")
            draw(outcomes, DOCS / "weather.png")
    print(page(outcomes, asked.rounds, seeds, command))


if __name__ == "__main__":
    main()
