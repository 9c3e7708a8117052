"""What attacks did: every attacked method beside the same method without an attack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.experiment.spec import ComparisonEntry
from fedrelay.metrics.curves import mean_std
from fedrelay.report.format import spread, whole
from fedrelay.report.tables import plain_table
from fedrelay.runtime.comparison import ComparisonResult, MethodResults
from fedrelay.runtime.result import Result

MeanStd = tuple[float, float]
Value = Callable[[Result], float | None]


@dataclass(frozen=True)
class Damage:
    """One method under attack. A drop is taken seed by seed; None where no seed came through in both."""

    name: str
    reference: str | None
    """The same method without an attack, where that was compared."""

    runs: int
    accuracy: MeanStd | None
    drop: MeanStd | None
    on_classes: MeanStd | None
    """Accuracy on the swapped classes alone."""

    drop_on_classes: MeanStd | None
    attackers: float
    flips: float

    def facts(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        numbers = {name: getattr(self, name) for name in ("accuracy", "drop", "on_classes", "drop_on_classes")}
        named = {
            name: {"mean": found[0], "std": found[1]} if found else {"mean": None, "std": None}
            for name, found in numbers.items()
        }
        return {"reference": self.reference, **named, "attackers": self.attackers, "flips": self.flips}


def damages(outcome: ComparisonResult) -> list[Damage]:
    """One for each method that was attacked, in the order of the comparison."""
    entrants = {entrant.name: entrant for entrant in outcome.comparison.methods}
    clean = {_settings(entrants[each.name]): each for each in reversed(outcome.contenders) if not _attacked(each)}
    return [
        _damage(contender, clean.get(_settings(entrants[contender.name])))
        for contender in outcome.contenders
        if _attacked(contender)
    ]


def damage_facts(outcome: ComparisonResult) -> dict[str, Any]:
    """All damages by the name of the method, as `results.json` and `--json` have them."""
    return {damage.name: damage.facts() for damage in damages(outcome)}


def damage_table(outcome: ComparisonResult) -> RenderableType:
    """Accuracy under attack, what it lost, and how the swapped classes fared."""
    heads = ("accuracy %", "drop", "swapped\nclasses %", "drop")
    table = plain_table("\nattacked", *(head if "\n" in head else f"\n{head}" for head in heads), numeric=True)
    table.columns[0].no_wrap = True
    found = damages(outcome)
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


def _range(numbers: Sequence[float]) -> str:
    least, most = whole(min(numbers)), whole(max(numbers))
    return least if least == most else f"{least} to {most}"


def _attacked(contender: MethodResults) -> bool:
    return any(result.attack for result in contender.results)


def _settings(entrant: ComparisonEntry) -> str:
    """All that was said of a method but for its attack and its name."""
    return entrant.model_dump_json(exclude={"attack", "label"})


def _damage(contender: MethodResults, reference: MethodResults | None) -> Damage:
    results = contender.results
    before = {result.experiment.seed: result for result in reference.results} if reference else {}
    return Damage(
        name=contender.name,
        reference=reference.name if reference else None,
        runs=len(results),
        accuracy=_over(results, lambda result: result.accuracy_last),
        drop=_over(results, _against(before, lambda result: result.accuracy_last)),
        on_classes=_over(results, lambda result: result.accuracy_classes),
        drop_on_classes=_over(results, _against(before, lambda result: result.accuracy_classes)),
        attackers=mean_std([len(result.attack["attackers"]) for result in results])[0],
        flips=mean_std([result.attack["flips"] for result in results])[0],
    )


def _over(results: tuple[Result, ...], value: Value) -> MeanStd | None:
    known = [found for result in results if (found := value(result)) is not None]
    return mean_std(known) if known else None


def _against(before: dict[int, Result], value: Value) -> Value:
    """How much lower a value is than that of the same seed before."""

    def lost(result: Result) -> float | None:
        reference = before.get(result.experiment.seed)
        then, now = value(reference) if reference else None, value(result)
        return None if then is None or now is None else then - now

    return lost
