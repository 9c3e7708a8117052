"""What attacks achieved: accuracy lost to swapped labels, and samples drawn by a spying client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.experiment.spec import ComparisonEntry
from fedrelay.metrics.curves import mean_std
from fedrelay.models.layout import weights_sha256
from fedrelay.report.format import NONE, count, percent, spread, whole
from fedrelay.report.terminal.tables import plain_table
from fedrelay.robustness.gan_attack_run import GanAttackResult
from fedrelay.runtime.comparison import ComparisonResult, MethodResults
from fedrelay.runtime.result import Result

MeanStd = tuple[float, float]
Value = Callable[[Result], float | None]

LEVELS = (0.6, 0.7, 0.8)
"""Accuracies of the received model at which spies are compared."""

GanOutcomes = Mapping[str, Sequence[GanAttackResult]]
"""Method → what its spy drew, seed by seed."""

HINT = "FID uses features of a small network trained here: compare within this table only; larger is a weaker attack"
HINT_OF_OWN_FEATURES = "FID uses the features you passed in; larger is a weaker attack"


@dataclass(frozen=True)
class AttackDamage:
    """One attacked method. Drops are computed seed by seed; None if no seed finished with and without attack."""

    name: str
    reference: str | None
    """The same method without attack, if it was compared."""

    runs: int
    accuracy: MeanStd | None
    drop: MeanStd | None
    on_classes: MeanStd | None
    """Accuracy on the swapped classes only."""

    drop_on_classes: MeanStd | None
    attackers: float
    flips: float

    def facts(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        numbers = {name: getattr(self, name) for name in ("accuracy", "drop", "on_classes", "drop_on_classes")}
        named = {
            name: {"mean": found[0], "std": found[1]} if found else {"mean": None, "std": None}
            for name, found in numbers.items()
        }
        return {"reference": self.reference, **named, "attackers": self.attackers, "flips": self.flips}


def attack_damages(outcome: ComparisonResult) -> list[AttackDamage]:
    """Measure the damage to every attacked method, in the order of the comparison."""
    entries = {entry.name: entry for entry in outcome.comparison.methods}
    clean = {_settings(entries[each.name]): each for each in reversed(outcome.methods) if not _attacked(each)}
    return [_damage(entry, clean.get(_settings(entries[entry.name]))) for entry in outcome.methods if _attacked(entry)]


def attack_damage_facts(outcome: ComparisonResult) -> dict[str, Any]:
    """Return all damages by method, for `results.json` and `--json`."""
    return {damage.name: damage.facts() for damage in attack_damages(outcome)}


def attack_damage_table(outcome: ComparisonResult) -> RenderableType:
    """Show accuracy under attack and what it lost, also on the swapped classes."""
    heads = ("accuracy %", "drop", "swapped\nclasses %", "drop")
    table = plain_table("\nattacked", *(head if "\n" in head else f"\n{head}" for head in heads), numeric=True)
    table.columns[0].no_wrap = True
    found = attack_damages(outcome)
    for damage in found:
        levels = (damage.accuracy, damage.drop, damage.on_classes, damage.drop_on_classes)
        table.add_row(damage.name, *(spread(each, damage.runs) for each in levels))
    alone = [damage.name for damage in found if damage.reference is None]
    hints = [
        f"drop: points lost against the same method and seed without attack, last {outcome.comparison.eval.last}",
        f"attackers: {_range([damage.attackers for damage in found])} clients, "
        f"{_range([damage.flips for damage in found])} labels exchanged",
    ]
    notes = [Text(f"  {', '.join(alone)}: not compared without attack, so no drop", style="yellow")] if alone else []
    return Group(table, Text(), *(Text(f"  {hint}", style="dim") for hint in hints), *notes)


def spy_facts(outcomes: GanOutcomes) -> dict[str, Any]:
    """Return every hop at every spy, for `results.json` and `--json`."""
    return {
        method: {"spy": found[0].attacker, "runs": [_spy_run_facts(outcome) for outcome in found]}
        for method, found in outcomes.items()
    }


def spy_table(outcomes: GanOutcomes, hint: str = HINT) -> RenderableType:
    """Show distances at equal accuracies of the received model, and at the end.

    Means are over the runs that reached the accuracy.
    """
    table = plain_table("method", "visits", "behind others", "model", "runs", "FID previous", "FID all", numeric=True)
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


def unvisited_spies(outcomes: GanOutcomes) -> list[str]:
    """Return a message for every spy that no model visited."""
    return [
        f"{method}, seed {outcome.result.experiment.seed}: client {outcome.attacker} was never visited, "
        "so it saw nothing and drew nothing; use more rounds or another --spy"
        for method, found in outcomes.items()
        for outcome in found
        if not outcome.observations
    ]


def _spy_run_facts(outcome: GanAttackResult) -> dict[str, Any]:
    return {
        "seed": outcome.result.experiment.seed,
        "accuracy": outcome.result.accuracy,
        "weights_sha256": weights_sha256(outcome.result.weights),
        "visits": [observation.facts() for observation in outcome.observations],
    }


def _mean(distances: Iterable[float | None]) -> str:
    known = [distance for distance in distances if distance is not None]
    return f"{fmean(known):.3g}" if known else NONE


def _range(numbers: Sequence[float]) -> str:
    least, most = whole(min(numbers)), whole(max(numbers))
    return least if least == most else f"{least} to {most}"


def _attacked(entry: MethodResults) -> bool:
    return any(result.attack for result in entry.results)


def _settings(entry: ComparisonEntry) -> str:
    """All settings of a method except its attack and its name."""
    return entry.model_dump_json(exclude={"attack", "label"})


def _damage(entry: MethodResults, reference: MethodResults | None) -> AttackDamage:
    results = entry.results
    before = {result.experiment.seed: result for result in reference.results} if reference else {}
    return AttackDamage(
        name=entry.name,
        reference=reference.name if reference else None,
        runs=len(results),
        accuracy=_over(results, lambda result: result.accuracy_last),
        drop=_over(results, _drop(before, lambda result: result.accuracy_last)),
        on_classes=_over(results, lambda result: result.accuracy_classes),
        drop_on_classes=_over(results, _drop(before, lambda result: result.accuracy_classes)),
        attackers=mean_std([len(result.attack["attackers"]) for result in results])[0],
        flips=mean_std([result.attack["flips"] for result in results])[0],
    )


def _over(results: tuple[Result, ...], value: Value) -> MeanStd | None:
    known = [found for result in results if (found := value(result)) is not None]
    return mean_std(known) if known else None


def _drop(before: dict[int, Result], value: Value) -> Value:
    """How much lower a value is than the same seed's value without attack."""

    def lost(result: Result) -> float | None:
        reference = before.get(result.experiment.seed)
        then, now = value(reference) if reference else None, value(result)
        return None if then is None or now is None else then - now

    return lost
