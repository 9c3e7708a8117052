"""Observers may have any of the hooks."""

from __future__ import annotations

import pytest

import fedrelay as fr
from fedrelay.runtime.observer import HOOKS, Observer, as_observer

SMALL = {"data": "digits", "clients": 6, "rounds": 2, "fraction": 0.5, "model": "mlp", "workers": 1}


def test_a_subclass_overrides_the_hooks_it_needs():
    class Rounds(fr.Observer):
        seen: tuple[int, ...] = ()

        def on_round_end(self, round, row):
            self.seen += (round,)

    observer = Rounds()
    fr.run("fedavg", **SMALL, observer=observer)
    assert observer.seen == (1, 2)


def test_any_object_with_some_of_the_hooks_will_do():
    class Starts:
        def __init__(self):
            self.seen = []

        def on_run_start(self, experiment, round):
            self.seen.append((experiment.method, round))

    observer = Starts()
    fr.run("fedavg", **SMALL, observer=observer)
    assert observer.seen == [("fedavg", 0)]


def test_an_object_without_hooks_is_refused_before_the_run():
    class Old:
        def round_done(self, round, row):
            """A hook of older versions."""

    with pytest.raises(
        fr.SpecError, match="observer: Old has none of the hooks on_profiling_progress, on_run_start, on_round_end"
    ):
        fr.run("fedavg", **SMALL, observer=Old())


class Short(fr.Observer):
    def on_round_end(self, round):
        """The row is missing."""


class Long:
    def on_run_start(self, experiment, round, more):
        """One parameter too many."""


class Flag:
    on_stopping = True


@pytest.mark.parametrize(
    ("observer", "message"),
    [
        (Short(), r"Short.on_round_end must be a method with the parameters \(round, row\), got \(round\)"),
        (Long(), r"Long.on_run_start must be .* \(experiment, round\), got \(experiment, round, more\)"),
        (Flag(), r"Flag.on_stopping must be a method with the parameters \(\), got True"),
    ],
)
def test_a_hook_with_other_parameters_is_refused_before_the_run(observer, message):
    with pytest.raises(fr.SpecError, match=f"^observer: {message}$"):
        fr.run("fedavg", **SMALL, observer=observer)


def test_a_hook_may_take_any_arguments():
    class Any:
        seen = 0

        def on_round_end(self, *arguments, more=None):
            self.seen += len(arguments)

    observer = Any()
    fr.run("fedavg", **SMALL, observer=observer)
    assert observer.seen == 4


def test_without_an_observer_all_hooks_do_nothing():
    observer = as_observer(None)
    assert all(callable(getattr(observer, hook)) for hook in HOOKS)
    assert as_observer(observer) is observer
    assert {name for name in vars(Observer) if name.startswith("on_")} == set(HOOKS)
