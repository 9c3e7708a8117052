"""What the criterion of a claim is written with: measured numbers, arithmetic on them, and checks.

A criterion is a Python function. It takes the results of the claim's experiments with one seed and returns checks:

    def criterion(skewed: Results) -> list[Condition]:
        gain = skewed["fedseq"].accuracy_last - skewed["fedavg"].accuracy_last
        return [Check("FedSeq gains at least 5 points", gain, ">=", 0.05)]

A number may be missing, because a run diverged for example. Arithmetic passes that on, and the check is inconclusive.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

import fedrelay as fr
from fedrelay.experiment.spec import unknown

MEASURES: dict[str, str] = {
    "accuracy": "test accuracy after the last round",
    "accuracy_last": "mean test accuracy of the last `eval.last` evaluations",
    "accuracy_best": "the highest test accuracy of all evaluations",
    "loss": "test loss after the last round",
    "f1": "macro F1 after the last round",
    "oscillation": "mean change from one evaluation to the next, over the second half",
    "client_updates": "hops in all rounds",
    "longest_route": "clients on the longest route",
    "virtual_seconds": "time by the virtual clock",
    "transfers": "models sent, in all rounds or, of a plan, in one",
    "s2c": "transfers from the server to a client",
    "c2s": "transfers from a client to the server",
    "c2c": "transfers from client to client",
    "bytes": "size of all transfers",
    "accuracy_classes": "accuracy on `eval.classes` alone, such as the classes that attackers exchange",
    "parameters": "trained weights of the model",
    "hops": "hops in a round",
    "chains": "models that travel in a round",
    "median_cpd": "how much groups differ: median class probability distance",
    "balance_ratio": "rarest over most frequent class in a group, mean over groups",
    "covered_classes": "share of all classes in a group, mean over groups",
    "groups": "number of groups",
    "same_class": "mean distance of clients with the same main class",
    "other_class": "mean distance of clients with different main classes",
    "fid_60": "FID-cnn between the attacker's images and all clients' images, when the received model is nearest to "
    "60 % accuracy and within 5 points",
    "fid_70": "the same for 70 %",
    "fid_80": "the same for 80 %",
    "model_60": "accuracy of the received model nearest to 60 %",
    "model_70": "the same for 70 %",
    "model_80": "the same for 80 %",
    "visits_60": "number of hops at the attacker up to the model nearest to 60 %",
    "visits_70": "the same for 70 %",
    "visits_80": "the same for 80 %",
    "visits": "number of hops at the attacker",
}
"""Every measure that a criterion may use."""

EQUAL_COSTS = {"accuracy_at_equal_time": "virtual_seconds", "accuracy_at_equal_bytes": "bytes"}
"""What is shown beside the measures where methods of an experiment spend different amounts of a cost: the accuracy of
each when it had spent as much as the cheapest spends in all."""

PERCENT = {
    "accuracy", "accuracy_last", "accuracy_best", "accuracy_at_equal_time", "accuracy_at_equal_bytes", "f1",
    "accuracy_classes", "oscillation", "covered_classes",
    "model_60", "model_70", "model_80",
}  # fmt: skip
"""Measures that are shown in percent."""

Unit = Literal["", "%", "points"]
BinaryMethod = Callable[["Number", "Number | float"], "Number"]


def _operators(function: Callable[[float, float], float]) -> tuple[BinaryMethod, BinaryMethod]:
    """An operator of `Number`, and the same with a plain number on the left."""
    return (lambda self, other: combined(function, self, other)), (lambda self, other: combined(function, other, self))


@dataclass(frozen=True)
class Number:
    """A number measured with one seed.

    A target that a run never reached counts as reached one round after its last (`soon`). It might also be reached any
    time later (`late`). The two are equal for all other numbers.
    """

    soon: float
    late: float
    missing: str | None = None
    """Why the number is not known."""

    unit: Unit = ""
    """`%` of a measure that is shown in percent, `points` of a difference of such measures."""

    __add__, __radd__ = _operators(operator.add)
    __sub__, __rsub__ = _operators(operator.sub)
    __mul__, __rmul__ = _operators(operator.mul)
    __truediv__, __rtruediv__ = _operators(operator.truediv)

    def __neg__(self) -> Number:
        return combined(operator.neg, self)

    def __abs__(self) -> Number:
        return combined(abs, self)


Operand = Number | float


def number(value: Operand) -> Number:
    """Make a `Number` of a plain number."""
    return value if isinstance(value, Number) else Number(float(value), float(value))


def missing(reason: str) -> Number:
    """A number that is not known."""
    return Number(math.nan, math.nan, reason)


def combined(function: Callable[..., float], *values: Operand) -> Number:
    """Apply a function of plain numbers; the result is missing if one of them is."""
    numbers = [number(value) for value in values]
    reason = next((each.missing for each in numbers if each.missing is not None), None)
    if reason is not None:
        return missing(reason)
    try:
        soon, late = (function(*values) for values in zip(*((each.soon, each.late) for each in numbers), strict=True))
        return Number(soon, late, unit=_unit(function, [each.unit for each in numbers]))
    except ZeroDivisionError:
        return missing("division by zero")


def _unit(function: Callable[..., float], units: Sequence[Unit]) -> Unit:
    """The unit of a result; plain numbers have none and take that of the others."""
    if function is operator.truediv:
        return ""
    if function is operator.sub and all(unit == "%" for unit in units):
        return "points"
    return next((unit for unit in units if unit), "")


def least(*values: Operand) -> Number:
    """The smallest of several numbers."""
    return combined(lambda *given: min(given), *values)


def greatest(*values: Operand) -> Number:
    """The largest of several numbers."""
    return combined(lambda *given: max(given), *values)


def mean(*values: Operand) -> Number:
    """The mean of several numbers."""
    return combined(lambda *given: fmean(given), *values)


def spread(*values: Operand) -> Number:
    """The largest of several numbers minus the smallest."""
    return combined(lambda *given: max(given) - min(given), *values)


@dataclass(frozen=True)
class Measured:
    """What was measured of one method or grouping with one seed: `measured.accuracy_last` is a `Number`."""

    name: str
    values: Mapping[str, float | None]
    curve: Sequence[Mapping[str, Any]] = ()
    """The evaluations of a run."""

    rounds: int = 0
    problem: str | None = None
    """Why there are no values, or why a run ended early."""

    def __getattr__(self, measure: str) -> Number:
        if measure not in MEASURES:
            raise AttributeError(unknown("measure", measure, MEASURES))
        value = self.values.get(measure)
        if self.problem is not None:
            return missing(f"{self.name}: {self.problem}")
        if value is None:
            return missing(f"{self.name} has no {measure}")
        return Number(float(value), float(value), unit="%" if measure in PERCENT else "")

    def cost_to(self, accuracy: Operand, cost: str) -> Number:
        """What a run spent until it reached an accuracy."""
        goal = number(accuracy)
        if goal.missing is not None:
            return goal
        if self.problem is not None and not self.curve:
            return missing(f"{self.name}: {self.problem}")
        last = self.curve[-1] if self.curve else {"round": 1, cost: 1}
        one_round_more = last[cost] * (self.rounds + 1) / max(1, last["round"])
        soon, late = (
            next((float(row[cost]) for row in self.curve if row["accuracy"] >= wanted), float(never))
            for wanted, never in ((goal.soon, one_round_more), (goal.late, math.inf))
        )
        return Number(soon, late)


def rounds_to(run: Measured, accuracy: Operand) -> Number:
    """Rounds until a run reached an accuracy."""
    return run.cost_to(accuracy, "round")


def updates_to(run: Measured, accuracy: Operand) -> Number:
    """Client updates until a run reached an accuracy."""
    return run.cost_to(accuracy, "client_updates")


def time_to(run: Measured, accuracy: Operand) -> Number:
    """Virtual seconds until a run reached an accuracy."""
    return run.cost_to(accuracy, "virtual_seconds")


def speed_up(baseline: Measured, run: Measured, accuracy: Operand) -> Number:
    """How many times fewer rounds a run needs than the baseline to reach an accuracy."""
    return rounds_to(baseline, accuracy) / rounds_to(run, accuracy)


class Results(dict[str, Measured]):
    """The results of one experiment with one seed, by the labels of its methods or groupings."""

    def __missing__(self, name: str) -> Measured:
        raise fr.SpecError(unknown("method or grouping", name, self))


Sign = Literal[">=", ">", "<=", "<", "=="]


@dataclass(frozen=True)
class Check:
    """A comparison of two numbers, and what it says in words.

    An arithmetic check follows from definitions, so no experiment could contradict the paper by it. It is shown, but
    has no say in the verdict unless a claim has no other checks.
    """

    text: str
    left: Operand
    sign: Sign
    right: Operand
    arithmetic: bool = False


@dataclass(frozen=True)
class Combination:
    """Several conditions: all of them, any of them, or not the one."""

    kind: Literal["all", "any", "not"]
    parts: tuple[Condition, ...]


Condition = Check | Combination
Criterion = Callable[..., Sequence[Condition]]


def all_of(*parts: Condition) -> Combination:
    """A condition that holds if all parts hold."""
    return Combination("all", parts)


def any_of(*parts: Condition) -> Combination:
    """A condition that holds if one part holds."""
    return Combination("any", parts)


def negated(part: Condition) -> Combination:
    """A condition that holds if the part does not."""
    return Combination("not", (part,))
