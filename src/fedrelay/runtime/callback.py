"""Callbacks: hooks that are called while a run goes on. They log, add numbers to a row of metrics, or stop the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from inspect import signature
from typing import Any, SupportsFloat

from torch import Tensor

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Experiment
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.result import Result
from fedrelay.tasks.task_facts import CLASSIFICATION, TaskFacts
from fedrelay.user_code import accepts, errors_in_own_part


class StopRun(Exception):
    """A request to stop the run after this round: return it from `Callback.on_round_end`, or raise it there.

    Args:
        reason: Why; recorded as `result.stopped`.

    Example:
        >>> StopRun("accurate enough").reason
        'accurate enough'
    """

    def __init__(self, reason: str) -> None:
        self.reason = " ".join(str(reason).split())
        if not self.reason:
            raise ValueError("StopRun needs a reason")
        super().__init__(self.reason)


class CurrentModel:
    """The model after a round, computed when it is first used: where models wait in slots, it is their mean."""

    def __init__(self, weights: Callable[[], Tensor], state_dict: Callable[[Tensor], Mapping[str, Tensor]]) -> None:
        self._weights, self._state_dict = weights, state_dict

    @cached_property
    def weights(self) -> Tensor:
        """The model as one flat tensor."""
        return self._weights()

    @cached_property
    def state_dict(self) -> Mapping[str, Tensor]:
        """The model under the module's own names, copied."""
        return self._state_dict(self.weights)


@dataclass(frozen=True)
class RoundContext:
    """A finished round, as callbacks see it."""

    experiment: Experiment
    round: int
    """The number of the round, from 1."""

    plan: RoundPlan
    """How models travelled, after faults."""

    row: Row | None
    """A copy of its line of metrics; None in rounds without an evaluation."""

    model: CurrentModel
    task: TaskFacts = CLASSIFICATION
    """What is learned, and the metric that the run is judged by: `context.row[context.task.headline]`."""

    @property
    def state_dict(self) -> Mapping[str, Tensor]:
        """The current model, for `module.load_state_dict`; built when it is first used."""
        return self.model.state_dict


class Callback:
    """Is called while a run goes on. Override the hooks you need.

    Any other object with at least one of these hooks is accepted as well. A run that is resumed without its callbacks
    goes on without what they add.

    Example:
        >>> import fedrelay as fr
        >>> class GoodEnough(fr.Callback):
        ...     def on_round_end(self, context):
        ...         if context.row is not None and context.row["accuracy"] > 0.5:
        ...             return fr.StopRun("more than half of the test samples are right")
        >>> result = fr.run("fedseq", clients=20, rounds=30, callbacks=GoodEnough())
        >>> result.stopped
        'more than half of the test samples are right'
    """

    def on_profiling_progress(self, done: int, clients: int) -> None:
        """Before the run starts, `done` of `clients` clients have computed their profile."""

    def on_run_start(self, experiment: Experiment, round: int) -> None:
        """The run starts, or goes on after `round` rounds; not called if it is complete already."""

    def on_evaluation(self, context: RoundContext) -> Mapping[str, float | None] | None:
        """A round was evaluated. Return numbers to add to its row, by new names: finite numbers, or None."""

    def on_round_end(self, context: RoundContext) -> StopRun | None:
        """A round is over. Return `StopRun("the reason")` to stop the run."""

    def on_interrupt(self) -> None:
        """Ctrl-C was pressed; the run stops after this round."""

    def on_run_end(self, result: Result) -> None:
        """The run is complete: all rounds are done, or it was stopped by its settings or a callback."""


HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_"))

Callbacks = Callback | Sequence[Callback]
"""What `callbacks=` accepts."""


class CombinedCallback(Callback):
    """Calls several callbacks, in order. The first request to stop counts."""

    def __init__(self, *callbacks: Callback) -> None:
        self.callbacks = callbacks

    def on_profiling_progress(self, done: int, clients: int) -> None:
        for each in self.callbacks:
            each.on_profiling_progress(done, clients)

    def on_run_start(self, experiment: Experiment, round: int) -> None:
        for each in self.callbacks:
            each.on_run_start(experiment, round)

    def on_evaluation(self, context: RoundContext) -> dict[str, float | None]:
        """Each callback finds in the row what those before it have added."""
        added: dict[str, float | None] = {}
        for each in self.callbacks:
            added |= each.on_evaluation(replace(context, row={**(context.row or {}), **added})) or {}
        return added

    def on_round_end(self, context: RoundContext) -> StopRun | None:
        requests = [each.on_round_end(context) for each in self.callbacks]
        return next(filter(None, requests), None)

    def on_interrupt(self) -> None:
        for each in self.callbacks:
            each.on_interrupt()

    def on_run_end(self, result: Result) -> None:
        for each in self.callbacks:
            each.on_run_end(result)


class CheckedCallback(Callback):
    """A callback of the user's: its mistakes become one line, and what it returns is checked.

    Raises:
        SpecError: The object has none of the hooks, or one of them takes other parameters.
    """

    def __init__(self, own: object) -> None:
        self.own, kind = own, type(own).__name__
        found = {name: getattr(own, name) for name in HOOKS if hasattr(own, name)}
        if not found:
            raise SpecError(f"callbacks: {kind} has none of the hooks {', '.join(HOOKS)}")
        for name, hook in found.items():
            _check_parameters(f"{kind}.{name}", hook, list(signature(getattr(Callback, name)).parameters)[1:])

    def on_profiling_progress(self, done: int, clients: int) -> None:
        self._call("on_profiling_progress", done, clients)

    def on_run_start(self, experiment: Experiment, round: int) -> None:
        self._call("on_run_start", experiment, round)

    def on_evaluation(self, context: RoundContext) -> Mapping[str, float | None]:
        found = self._call("on_evaluation", context)
        with errors_in_own_part(self.own, "on_evaluation", kind="callback"):
            return _checked_numbers(found, context.row or {})

    def on_round_end(self, context: RoundContext) -> StopRun | None:
        found = self._call("on_round_end", context)
        with errors_in_own_part(self.own, "on_round_end", kind="callback"):
            if found is not None and not isinstance(found, StopRun):
                raise TypeError(f"must return None or StopRun(reason), got {type(found).__name__}")
        return found

    def on_interrupt(self) -> None:
        self._call("on_interrupt")

    def on_run_end(self, result: Result) -> None:
        self._call("on_run_end", result)

    def _call(self, name: str, *arguments: object) -> Any:
        """Call a hook, if the object has it; a request to stop that it raises counts as returned."""
        hook = getattr(self.own, name, None)
        with errors_in_own_part(self.own, name, kind="callback"):
            try:
                return hook(*arguments) if hook is not None else None
            except StopRun as request:
                if name != "on_round_end":
                    raise TypeError("StopRun is for on_round_end only") from None
                return request


def as_callback(given: object) -> Callback:
    """One callback from a callback, from any object with some of the hooks, from a list of them, or from None.

    Raises:
        SpecError: An object has none of the hooks, or one of them takes other parameters.
    """
    several = given if isinstance(given, Sequence) else [] if given is None else [given]
    return CombinedCallback(*map(CheckedCallback, several))


def _check_parameters(name: str, hook: object, expected: Sequence[str]) -> None:
    wanted = f"must be a method with the parameters ({', '.join(expected)})"
    if not callable(hook):
        raise SpecError(f"callbacks: {name} {wanted}, got {hook!r}")
    if not accepts(hook, *expected):  # hooks are called with positional arguments
        raise SpecError(f"callbacks: {name} {wanted}, got ({', '.join(signature(hook).parameters)})")


def _checked_numbers(found: object, row: Row) -> dict[str, float | None]:
    """Numbers for a row, whose names must be new."""
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise TypeError(f"must return a mapping of names to numbers, or None, got {type(found).__name__}")
    for name in found:
        if not isinstance(name, str) or not name:
            raise TypeError(f"names must be text, got {name!r}")
        if name in row:
            raise ValueError(f"{name!r} is in the row already")
    return {name: _checked_number(name, value) for name, value in found.items()}


def _checked_number(name: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, SupportsFloat):
        raise TypeError(f"{name!r} must be a number or None, got {type(value).__name__}")
    number = value if isinstance(value, int) else float(value)
    if not math.isfinite(number):
        raise ValueError(f"{name!r} must be finite or None, got {number}")
    return number
