"""What attacks achieved: accuracy lost to swapped labels, and samples drawn by an attacking client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.report.comparison_summary import attack_damages
from fedrelay.report.format import NONE, count, percent, spread, whole
from fedrelay.report.terminal.table_shapes import plain_table
from fedrelay.robustness.gan_attack_run import GanAttackResult
from fedrelay.runtime.comparison_result import ComparisonResult

LEVELS = (0.6, 0.7, 0.8)
"""Accuracies of the received model at which attackers are compared."""

GanOutcomes = Mapping[str, Sequence[GanAttackResult]]
"""Method → what its attacker drew, seed by seed."""

HINT = "FID uses features of a small network trained here: compare within this table only; larger is a weaker attack"
HINT_OF_OWN_FEATURES = "FID uses the features you passed in; larger is a weaker attack"


def attack_damage_table(outcome: ComparisonResult) -> RenderableType | None:
    """Show accuracy under attack and what it lost, also on the swapped classes; None if no method was attacked."""
    found = attack_damages(outcome)
    if not found:
        return None
    levels = ("accuracy", "drop", "on_classes", "drop_on_classes")
    heads = ("\nattacked", "\naccuracy %", "\ndrop", "swapped\nclasses %", "\ndrop")
    table = plain_table(*heads, numeric=True)
    table.columns[0].no_wrap = True
    for name, damage in found.items():
        table.add_row(name, *(spread(damage[level], len(outcome[name].results)) for level in levels))
    attackers, flips = (_range([damage[what] for damage in found.values()]) for what in ("attackers", "flips"))
    hints = [
        f"drop: points lost against the same method and seed without attack, last {outcome.comparison.eval.averaged}",
        f"attackers: {attackers} clients, {flips} labels exchanged",
    ]
    alone = ", ".join(name for name, damage in found.items() if damage["reference"] is None)
    notes = [Text(f"  {alone}: not compared without attack, so no drop", style="yellow")] if alone else []
    return Group(table, Text(), *(Text(f"  {hint}", style="dim") for hint in hints), *notes)


def gan_attack_facts(outcomes: GanOutcomes) -> dict[str, Any]:
    """Return every hop at every attacker, for `results.json` and `--json`."""
    return {
        method: {
            "attacker": found[0].attacker,
            "runs": [
                {
                    "seed": outcome.result.experiment.seed,
                    "accuracy": outcome.result.accuracy,
                    "weights_sha256": outcome.result.weights_sha256,
                    "visits": [asdict(observation) for observation in outcome.observations],
                }
                for outcome in found
            ],
        }
        for method, found in outcomes.items()
    }


def gan_attack_table(outcomes: GanOutcomes, hint: str = HINT) -> RenderableType:
    """Show distances at equal accuracies of the received model, and at the end.

    Means are over the runs that reached the accuracy.
    """
    table = plain_table("method", "hops", "behind others", "model", "runs", "FID previous", "FID all", numeric=True)
    for method, found in outcomes.items():
        visits = (
            fmean(len(outcome.observations) for outcome in found),
            fmean(outcome.behind_others for outcome in found),
        )
        reached = {f"≥ {percent(level, 0)}": [outcome.first_at(level) for outcome in found] for level in LEVELS}
        last = [outcome.observations[-1] if outcome.observations else None for outcome in found]
        for label, moments in {**reached, "last": last}.items():
            observations = [observation for observation in moments if observation is not None]
            distances = ([each.fid_previous for each in observations], [each.fid_all for each in observations])
            runs = f"{len(observations)} of {len(found)}"
            table.add_row(method, *map(count, visits), label, runs, *map(_mean, distances))
    return Group(table, Text(), Text(f"  {hint}", style="dim"))


def unvisited_attackers(outcomes: GanOutcomes) -> list[str]:
    """Return a message for every attacker that no model visited."""
    return [
        f"{method}, seed {outcome.result.experiment.seed}: client {outcome.attacker} was never visited, "
        "so it saw nothing and drew nothing; use more rounds or another --attacker"
        for method, found in outcomes.items()
        for outcome in found
        if not outcome.observations
    ]


def _mean(distances: Iterable[float | None]) -> str:
    known = [distance for distance in distances if distance is not None]
    return f"{fmean(known):.3g}" if known else NONE


def _range(numbers: Sequence[float]) -> str:
    least, most = whole(min(numbers)), whole(max(numbers))
    return least if least == most else f"{least} to {most}"
