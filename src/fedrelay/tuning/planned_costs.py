"""What a tuning will cost, from the plans of its methods alone. Nothing is trained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fedrelay.experiment.method import build_method
from fedrelay.experiment.prepare import prepare
from fedrelay.experiment.spec import Experiment
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.round_loop import is_evaluated
from fedrelay.tuning.score import Rung, rungs
from fedrelay.tuning.trial_runs import NO_OWN_INPUTS, OwnInputs
from fedrelay.tuning.tuned_methods import TunedMethod, TuningPlan

_NOTHING: Row = {"round": 0, "client_updates": 0, "bytes": 0, "virtual_seconds": 0.0}


@dataclass(frozen=True)
class PlannedCosts:
    """What the trials of a method and its runs in the comparison will cost, at least without extensions."""

    method: TunedMethod
    runs: int
    """Runs that are started: trials and seeds, and the comparison."""

    full: Row | None
    """Costs of one run of full length; None where clients have to train before groups are known."""

    tuning: Row | None
    """Costs of all trials, with all seeds."""

    comparison: Row | None


def planned_costs(plan: TuningPlan, own: OwnInputs = NO_OWN_INPUTS) -> list[PlannedCosts]:
    """The costs of every method. Faults are not counted, nor stops by patience or a target."""
    return [_planned(plan, method, own) for method in plan.methods]


def _planned(plan: TuningPlan, method: TunedMethod, own: OwnInputs) -> PlannedCosts:
    tuning = plan.tuning
    tune, runs = tuning.tune, tuning.tune.trials * len(tuning.tuning_seeds) + len(tuning.seeds)
    [experiment] = plan.experiments(method, method.space.points()[:1])
    if build_method(experiment).profiles_clients:
        return PlannedCosts(method, runs, None, None, None)
    run = prepare(experiment, federation=own.federation, module=own.module, task=own.task)
    so_far = run.costs.setup_line() or _NOTHING
    rows = [{name: so_far.get(name, 0) for name in _NOTHING}]
    ladder = rungs(tune.rungs, tuning.rounds, tuning.stop)
    while not ladder[-1].reached(rows[-1]):
        cost = run.costs.total([run.planner.plan(len(rows))])
        rows.append({name: rows[-1][name] + cost["rounds" if name == "round" else name] for name in _NOTHING})
    ends = [next(row for row in rows if _ends(row, rung, ladder[-1], experiment)) for rung in ladder]
    going, spent = tune.trials, _times(ends[0], tune.trials)
    for lower, upper in pairwise(ends):
        going = (going + 1) // 2
        spent = _sum(spent, _times(_sum(upper, _times(lower, -1)), going))
    return PlannedCosts(
        method, runs, ends[-1], _times(spent, len(tuning.tuning_seeds)), _times(ends[-1], len(tuning.seeds))
    )


def _ends(row: Row, rung: Rung, last: Rung, experiment: Experiment) -> bool:
    """Whether a trial ends there: it pauses at the first evaluation that is at its rung, or at the end of the run."""
    evaluated = row["round"] > 0 and is_evaluated(experiment, row["round"])
    return last.reached(row) or (evaluated and rung.reached(row))


def total(costs: Sequence[Row | None]) -> Row:
    """The sum of all costs that are known."""
    found = dict(_NOTHING)
    for row in costs:
        found = found if row is None else _sum(found, row)
    return found


def _times(row: Row, factor: int) -> Row:
    return {name: factor * value for name, value in row.items()}


def _sum(one: Row, other: Row) -> Row:
    return {name: value + other[name] for name, value in one.items()}
