"""A prepared run with another number of rounds, if the rounds that are done do not depend on it."""

from __future__ import annotations

from dataclasses import replace

from fedrelay.cost.cost_model import CostModel
from fedrelay.errors import SpecError
from fedrelay.experiment.prepare import PreparedRun
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.runtime.planner import Planner
from fedrelay.user_code import is_built_in


def extended(run: PreparedRun, rounds: int, done: int) -> PreparedRun:
    """The same run with another number of rounds.

    Args:
        run: The run as it was prepared.
        rounds: The new number of rounds.
        done: The number of rounds that are done.

    Raises:
        SpecError: Rounds that are done would have been different in a run of that length.
    """
    before = run.prepared
    _refuse_settings_that_depend_on_rounds(before)
    experiment = before.experiment.model_copy(update={"rounds": rounds})
    prepared = replace(before, experiment=experiment, phases=before.method.phases(rounds))
    costs = CostModel(prepared)
    longer = PreparedRun(prepared, Planner(prepared, costs), costs)
    _refuse_other_plans(run, longer, done)
    prepared.method.merge.check_arrival_count(lambda: len(longer.planner.plan(rounds).routes))
    return longer


def _refuse_settings_that_depend_on_rounds(prepared: PreparedExperiment) -> None:
    for route in (phase.route for phase in prepared.phases):
        if route.setting_that_depends_on_rounds:
            raise _refusal(route.setting_that_depends_on_rounds, route.advice_for_longer_runs)
    if prepared.experiment.train.depends_on_rounds:
        raise _refusal("train.schedule", "set train.schedule=constant")


def _refusal(setting: str, advice: str) -> SpecError:
    return SpecError(
        f"rounds: cannot be changed, because {setting} depends on the number of rounds: the rounds that are done would "
        f"have been different; {_start_anew(advice)}"
    )


def _start_anew(advice: str) -> str:
    return "start a new run" + (f"; in a run to extend later, {advice}" if advice else "")


def _refuse_other_plans(run: PreparedRun, longer: PreparedRun, done: int) -> None:
    """Compare plans where nobody promises that they are the same."""
    for phase in run.prepared.phases:
        route = phase.route
        if is_built_in(type(route)) and not route.depends_on_arrival_times and not route.may_depend_on_rounds:
            continue
        for round in range(phase.first, min(phase.last, done) + 1):
            then, now = (each.planner.plan(round) for each in (run, longer))
            if then.routes != now.routes or then.merges != now.merges:
                own = "" if is_built_in(type(route)) else f" {type(route).__name__!r}"
                raise SpecError(
                    f"rounds: cannot be changed, because the route{own} of {run.prepared.experiment.method!r} plans "
                    f"round {round} in another way if the run has {longer.prepared.experiment.rounds} rounds; "
                    f"{_start_anew(route.advice_for_longer_runs)}"
                )
