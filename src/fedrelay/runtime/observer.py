"""Observers of a run: hooks that are called while it goes on. They never change a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from inspect import signature
from typing import Protocol

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Experiment
from fedrelay.routes.arrival import Arrival
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.result import Row


class Observer:
    """Sees a run as it goes on, such as a progress bar. Override the hooks you need.

    Any other object with at least one of these hooks is accepted as well.

    Example:
        >>> class Printer(Observer):
        ...     def on_round_end(self, round, row):
        ...         print(round, row and row["accuracy"])
    """

    def on_profiling_progress(self, done: int, clients: int) -> None:
        """Before the run starts, `done` of `clients` clients have computed their profile."""

    def on_run_start(self, experiment: Experiment, round: int) -> None:
        """The run starts; `round` rounds are already done."""

    def on_round_end(self, round: int, row: Row | None) -> None:
        """A round is over; `row` is its line of metrics, None in rounds without an evaluation."""

    def on_stopping(self) -> None:
        """Ctrl-C was pressed; the run stops after this round."""


HOOKS = ("on_profiling_progress", "on_run_start", "on_round_end", "on_stopping")


def as_observer(given: object | None) -> Observer:
    """An observer with all hooks, from an observer, from any object with some of the hooks, or from None.

    Raises:
        SpecError: The object has none of the hooks, or one of them takes other parameters.
    """
    kind = type(given).__name__
    own = {name: getattr(given, name) for name in HOOKS if hasattr(given, name)}
    if given is not None and not own:
        raise SpecError(f"observer: {kind} has none of the hooks {', '.join(HOOKS)}")
    for name, hook in own.items():
        _check_parameters(f"{kind}.{name}", hook, list(signature(getattr(Observer, name)).parameters)[1:])
    if isinstance(given, Observer):
        return given
    observer = Observer()
    for name, hook in own.items():
        setattr(observer, name, hook)
    return observer


def _check_parameters(name: str, hook: object, expected: Sequence[str]) -> None:
    wanted = f"must be a method with the parameters ({', '.join(expected)})"
    if not callable(hook):
        raise SpecError(f"observer: {name} {wanted}, got {hook!r}")
    given = signature(hook)
    try:
        given.bind(*expected)  # hooks are called with positional arguments
    except TypeError:
        raise SpecError(f"observer: {name} {wanted}, got ({', '.join(given.parameters)})") from None


class CombinedObserver(Observer):
    """Calls several observers, in order."""

    def __init__(self, *observers: Observer) -> None:
        for name in HOOKS:
            setattr(self, name, partial(_call_all, [getattr(each, name) for each in observers]))


def _call_all(hooks: Sequence[Callable[..., None]], *arguments: object) -> None:
    for hook in hooks:
        hook(*arguments)


class HopTap(Protocol):
    """Sees models as clients receive them."""

    def hops_to_tap(self, plan: RoundPlan) -> tuple[tuple[int, int], ...]:
        """(route, index) of the hops whose received model is wanted."""

    def on_attempt_end(self, plan: RoundPlan, arrivals: Sequence[Arrival]) -> None:
        """The hops of an attempt are over. `Arrival.received_models` are valid during this call only."""
