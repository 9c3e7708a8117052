"""Every way of travelling in every kind of bad weather: what is left of the accuracy, with and without the guard.

    .venv/bin/python benchmarks/faults.py                          print the table
    .venv/bin/python benchmarks/faults.py --write                  and write docs/weather.md
    .venv/bin/python benchmarks/faults.py --seeds 1 --rounds 20    sooner

Runs are kept in a folder (--out), so that an interrupted table goes on where it stopped. A run that ends because its
model diverged, or because nobody's work was ever accepted, is shown as such, not as an accuracy.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay import compare
from fedrelay.comparison import Contender, Outcome

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
FAULTS: Mapping[str, Mapping[str, Any]] = {
    "dropout at 30 % of all turns": {"what": "dropout", "rate": 0.3},
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
    "one client in ten turns its update round": {"what": "sign-flip", "clients": ATTACKERS, "factor": 1},
    "one client in ten turns it round, five times as long": {"what": "sign-flip", "clients": ATTACKERS, "factor": 5},
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


def weathered(method: str, rounds: int, seeds: Sequence[int], out: Path) -> Outcome:
    """All runs of one method."""
    return compare(
        list(entrants(method)),
        data={"name": "digits", "clients": 100, "alpha": 0.0, "public": 10},
        train={"lr": 0.05, "batch_size": 8},
        rounds=rounds,
        seeds=list(seeds),
        out=out / method,
    )


def cell(contender: Contender) -> str:
    """The accuracy of one line, or how it ended."""
    ended = "diverged" if contender.diverged else "learnt nothing"
    found = contender.mean_std(lambda result: 100 * result.accuracy_last)
    if found is None:
        return ended
    deviation = f" ± {found[1]:.1f}" if len(contender.results) > 1 else ""
    lost = f" ({len(contender.failed)} {ended})" if contender.failed else ""
    return f"{found[0]:.1f}{deviation}{lost}"


def page(outcomes: Mapping[str, Outcome], rounds: int, seeds: Sequence[int], command: str) -> str:
    """The table as a page of the documentation."""
    head = (
        "# Bad weather\n\n"
        "Accuracy in percent on digits (100 clients, one class each, 20 % take part in a round), mean of the last ten "
        f"of {rounds} rounds, mean ± standard deviation over the seeds 1 to {len(seeds)}: without the guard → with it "
        "(`guard: {on_divergence: skip, norm: 3, tolerance: 0.3}`; the public set of ten samples a class is taken out "
        "of the test set of all runs). Clients that do not answer are skipped.\n\n"
        f"Made by `{command}`.\n"
    )
    lines = ["| weather | " + " | ".join(outcomes) + " |", "|---" * (len(outcomes) + 1) + "|"]
    for name in ("clean", *FAULTS):
        cells = [f"{cell(each[name])} → {cell(each[f'{name}, guarded'])}" for each in outcomes.values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return head + "\n" + "\n".join(lines) + "\n"


def main() -> None:
    """Run what is missing, then show the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("runs/faults"))
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS, metavar="METHOD")
    parser.add_argument("--write", action="store_true", help="write docs/weather.md")
    asked = parser.parse_args()
    seeds = range(1, asked.seeds + 1)
    outcomes = {method: weathered(method, asked.rounds, seeds, asked.out) for method in asked.methods}
    command = f"benchmarks/faults.py --rounds {asked.rounds} --seeds {asked.seeds} --write"
    if tuple(asked.methods) != METHODS:
        command += f" --methods {' '.join(asked.methods)}"
    text = page(outcomes, asked.rounds, seeds, command)
    print(text)
    if asked.write:
        (DOCS / "weather.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
