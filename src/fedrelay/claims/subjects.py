"""What criteria are about: one run, one way to group, one plan; their measures, and functions of them.

A measure is an attribute, `fedseq.accuracy_last`; a function looks at a whole curve, `rounds_to(fedseq, 0.7)`. What was
never reached is unknown but for a bound: functions are told what to put in its place (`never`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from fedrelay.cost.formulas import CostModel, paper_cost
from fedrelay.grouping.growth import alpha_for_full_parallel, mean_parallelism

Row = Mapping[str, Any]


class Undecided(Exception):
    """A criterion cannot be worked out, and why."""


@dataclass(frozen=True)
class Subject:
    """Something that was measured, once for every seed."""

    name: str
    values: Mapping[str, float | None]
    curve: Sequence[Row] = ()
    """The evaluations of a run."""

    rounds: int = 0
    problem: str | None = None
    """Why there are no values, or what ended a run before its time."""

    def measure(self, name: str) -> float:
        """One of its values."""
        if self.problem is not None:
            raise Undecided(f"{self.name}: {self.problem}")
        value = self.values.get(name)
        if value is None:
            raise Undecided(f"{self.name} has no {name}")
        return float(value)

    def costs_to(self, goal: float, cost: str) -> float | None:
        """What it took to come to an accuracy, or None where it never did; a run that diverged never did after that."""
        if self.problem is not None and not self.curve:
            raise Undecided(f"{self.name}: {self.problem}")
        reached = next((row for row in self.curve if row["accuracy"] >= goal), None)
        return None if reached is None else float(reached[cost])

    def bound(self, cost: str) -> float:
        """The least that something never reached would have cost: one round more than there were."""
        if not self.curve:
            return float(self.rounds + 1)
        last = self.curve[-1]
        return float(last[cost] * (self.rounds + 1) / max(1, last["round"]))


Never = Callable[[Subject, str], float]
"""What stands in for a cost of a subject that never got there."""


MEASURES: dict[str, str] = {
    "accuracy": "test accuracy after the last round",
    "accuracy_last": "mean of the last evaluations",
    "accuracy_best": "the highest of all evaluations",
    "loss": "test loss after the last round",
    "f1": "macro F1 after the last round",
    "oscillation": "mean change from one evaluation to the next, over the second half",
    "client_updates": "turns of clients, all rounds together",
    "longest_route": "clients in the longest chain",
    "virtual_seconds": "time by the virtual clock",
    "transfers": "models sent, all rounds together",
    "s2c": "of these from the server to a client",
    "c2s": "from a client to the server",
    "c2c": "from client to client",
    "bytes": "what all transfers weigh",
    "accuracy_classes": "accuracy on `eval.classes` alone, such as those that attackers exchange",
    "parameters": "weights that are trained",
    "hops": "turns of clients in a round",
    "chains": "models that travel in a round",
    "median_cpd": "how unlike groups are: median class probability distance",
    "balance_ratio": "rarest over commonest class in a group, mean",
    "covered_classes": "share of classes in a group, mean",
    "groups": "how many groups there are",
    "same_class": "mean distance of clients with the same main class",
    "other_class": "mean distance of clients with different main classes",
    "fid_60": "FID-cnn of what a spy draws from all clients' images, by the model received whose accuracy is nearest "
    "60 %, if within 5 points",
    "fid_70": "the same with 70 %",
    "fid_80": "the same with 80 %",
    "model_60": "the accuracy of that model; of the one nearest 60 %",
    "model_70": "of the one nearest 70 %",
    "model_80": "of the one nearest 80 %",
    "visits": "how often the spy was visited",
}
"""Every measure that a criterion may name."""


@dataclass(frozen=True)
class Function:
    """What a criterion may call: first so many subjects, then so many numbers; None: one or more."""

    subjects: int
    numbers: int | None
    apply: Callable[..., float]
    about: str
    per_run: bool = field(default=False)
    """Whether `apply` wants to know what stands for never, before all else."""


def _cost_to(cost: str) -> Callable[..., float]:
    def found(never: Never, subject: Subject, goal: float) -> float:
        reached = subject.costs_to(goal, cost)
        return never(subject, cost) if reached is None else reached

    return found


_rounds_to = _cost_to("round")


def _speed_up(never: Never, baseline: Subject, subject: Subject, goal: float) -> float:
    return _rounds_to(never, baseline, goal) / _rounds_to(never, subject, goal)


def _mean_groups(clients: float, beta: float, rounds: float) -> float:
    alpha = alpha_for_full_parallel(int(clients), int(rounds), beta=int(beta))
    return mean_parallelism(int(rounds), int(clients), growth="exp", alpha=alpha, beta=int(beta))


FUNCTIONS: dict[str, Function] = {
    "min": Function(0, None, lambda *values: min(values), "the least of its numbers"),
    "max": Function(0, None, lambda *values: max(values), "the greatest of its numbers"),
    "abs": Function(0, 1, abs, "without its sign"),
    "mean": Function(0, None, lambda *values: fmean(values), "the mean of its numbers"),
    "spread": Function(0, None, lambda *values: max(values) - min(values), "greatest less least"),
    "rounds_to": Function(1, 1, _rounds_to, "rounds to an accuracy", per_run=True),
    "updates_to": Function(1, 1, _cost_to("client_updates"), "client updates to an accuracy", per_run=True),
    "time_to": Function(1, 1, _cost_to("virtual_seconds"), "virtual seconds to an accuracy", per_run=True),
    "speed_up": Function(2, 1, _speed_up, "rounds of the first over rounds of the second to an accuracy", per_run=True),
    "mean_groups": Function(0, 3, _mean_groups, "FedSeq2Par's mean number of groups by clients, β and rounds"),
    "paper_cost": Function(0, 1, lambda clients: paper_cost(int(clients)), "transfers by SPFL's cost tables"),
    "gsp_seconds": Function(0, 1, lambda rounds: CostModel().communicating_seconds(int(rounds)), "FedGSP's T_comm"),
    "gsp_bytes": Function(0, 1, lambda rounds: CostModel().traffic_bytes(int(rounds)), "FedGSP's D_comm"),
}
"""Every function that a criterion may call."""
