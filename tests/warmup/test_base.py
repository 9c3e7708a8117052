"""Phases of a warm-up of the user's own."""

from __future__ import annotations

from typing import ClassVar

import pytest

import fedrelay as fr
from fedrelay.experiment.method_catalogue import METHODS, MethodEntry
from fedrelay.merge.mean import Mean
from fedrelay.routes.singletons import Singletons
from fedrelay.warmup.base import Phase

PHASES = {
    "numbers": [1],
    "class": [Phase(1, Singletons, (), Mean())],
    "merge": [Phase(1, Singletons(), (), None)],
    "term": [Phase(1, Singletons(), (Mean(),), Mean())],
    "rounds": [Phase(0, Singletons(), (), Mean())],
    "half": [Phase(1.5, Singletons(), (), Mean())],
    "none": None,
    "good": [Phase(1, Singletons(), (), Mean())],
}


class Odd(fr.Warmup):
    length: ClassVar[str] = "rounds"
    rounds: int = 1
    which: str = "good"

    def phases(self):
        return PHASES[self.which]


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("numbers", "TypeError: must return Phase objects, got 1"),
        ("class", "TypeError: a Phase needs a Routing, got <class 'fedrelay.routes.singletons.Singletons'>"),
        ("merge", "TypeError: a Phase needs a Merge, got None"),
        ("term", "TypeError: a Phase needs a Term, got Mean(weights='samples')"),
        ("rounds", "ValueError: a Phase has at least 1 round, got 0"),
        ("half", "TypeError: rounds of a Phase must be a whole number, got 1.5"),
        ("none", "TypeError: 'NoneType' object is not iterable"),
    ],
)
def test_other_things_than_phases_are_refused(monkeypatch, which, message):
    monkeypatch.setitem(METHODS, "odd", MethodEntry("", warmup=Odd))
    with pytest.raises(fr.SpecError) as refused:
        fr.run("odd", clients=4, rounds=2, workers=1, warmup={"which": which})
    assert str(refused.value).startswith(f"warm-up 'Odd', phases: {message}")


def test_phases_may_be_a_list(monkeypatch):
    monkeypatch.setitem(METHODS, "odd", MethodEntry("", warmup=Odd))
    assert fr.run("odd", clients=4, rounds=2, workers=1).rounds == 2
