"""The trials of a tuning as Optuna studies, for Optuna's dashboard and plots.

Optuna does not choose: its samplers propose trials, and its pruner stops them, in the order in which others end, so a
choice would depend on the number of cores and on interruptions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrelay.engines.quiet_logging import errors_only
from fedrelay.tasks.task_facts import TaskFacts
from fedrelay.tuning.result import MethodTuning
from fedrelay.tuning.score import Rung
from fedrelay.tuning.successive_halving import Trial

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

log = logging.getLogger("fedrelay.tuning")


def write_studies(path: Path, methods: Sequence[MethodTuning], ladder: Sequence[Rung], task: TaskFacts) -> None:
    """Write one study for each method to a journal file; without Optuna, a warning says how to get it.

    Read it with `optuna.load_study(study_name="fedseq", storage=JournalStorage(JournalFileBackend(path)))`.
    """
    try:
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend
    except ImportError:
        log.warning("%s was not written: Optuna is not installed; pip install 'fedrelay[tune]'", path.name)
        return
    path.unlink(missing_ok=True)
    with errors_only("optuna"):
        storage = JournalStorage(JournalFileBackend(str(path)))
        direction = "maximize" if task.headline_info.higher_is_better else "minimize"
        for method in methods:
            study = optuna.create_study(storage=storage, study_name=method.name, direction=direction)
            study.add_trials([_frozen(method, trial, ladder) for trial in method.choice.trials])


def _frozen(method: MethodTuning, trial: Trial, ladder: Sequence[Rung]) -> FrozenTrial:
    """A trial in Optuna's words: its intermediate values are those at the rungs, by round."""
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
    from optuna.trial import TrialState, create_trial

    space, rates = method.method.space, [each.point.lr for each in method.choice.trials]
    distributions: dict[str, BaseDistribution] = {"train.lr": FloatDistribution(min(rates), max(rates), log=True)}
    if space.hyperparameter is not None:
        distributions[space.hyperparameter.key] = CategoricalDistribution(space.hyperparameter.values)
    finished = trial.extension or len(trial.scores) == len(ladder)
    failed = trial.score.value is None
    reached = ladder[-1:] if trial.extension else ladder[: len(trial.scores)]
    values: dict[int, Any] = {
        round(rung.share * rung.rounds): score.value
        for rung, score in zip(reached, trial.scores, strict=True)
        if score.value is not None
    }
    return create_trial(
        state=TrialState.FAIL if failed else TrialState.COMPLETE if finished else TrialState.PRUNED,
        value=None if failed else trial.score.value,
        params=space.settings(trial.point),
        distributions=distributions,
        intermediate_values=values,
        user_attrs={"cost": trial.score.cost, "problem": trial.score.problem, "extension": trial.extension},
    )
