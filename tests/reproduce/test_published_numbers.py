"""Criteria on made-up runs: the published figures meet them, and figures that say the opposite do not."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature

import pytest

from fedrelay_reproduce import Measured, Results
from fedrelay_reproduce.catalogue import load_claims
from fedrelay_reproduce.claims.c19_spfl import OTHERS
from fedrelay_reproduce.verdicts import judge

CLAIMS = load_claims()
Scores = Mapping[str, Mapping[str, float]]


def verdict(number: int, scores: Scores, **measures: float) -> str:
    """The verdict if runs end with these accuracies, by experiment and method; all have the other measures."""
    results = {
        experiment: Results(
            {name: Measured(name, {"accuracy": of, "accuracy_last": of, **measures}) for name, of in methods.items()}
        )
        for experiment, methods in scores.items()
    }
    return judge([CLAIMS[number].criterion(**results)])[0]


def gains(fedavg: float, *gained: float) -> Scores:
    names = ("strong", "two_tenths", "half", "one", "even")
    return {name: {"fedavg": fedavg, "spfl": fedavg + gain} for name, gain in zip(names, gained, strict=True)}


PUBLISHED_WFSL = {"everybody": 0.953, "genetic": 0.892, "random": 0.861}
ALONE = dict(zip(OTHERS, (0.7604, 0.7638, 0.7791, 0.8052, 0.7602, 0.7870, 0.7632), strict=True))
WITH_SPFL = dict(
    zip((f"spfl+{name}" for name in OTHERS), (0.7725, 0.7873, 0.809, 0.859, 0.7931, 0.7998, 0.7858), strict=True)
)
SPFL = {"warm": {"fedavg": 0.75, "spfl": 0.7888}, "others": {**ALONE, **WITH_SPFL}}


@pytest.mark.parametrize(
    ("number", "scores"),
    [
        (1, {"alpha_0": {"fedavg": 0.7127, "fedseq": 0.8189}}),
        (
            3,
            {
                "alpha_0": {"fedavg": 0.7127, "fedseq": 0.8189},
                "alpha_05": {"fedavg": 0.7739, "fedseq": 0.8277},
            },
        ),
        (5, {"alpha_0": {"fedavg": 0.7127}, "scaffold": {"scaffold": 0.7882}}),
        (11, {"alpha_0": {"fedseq": 0.8221}, "task2vec": {"fedseq": 0.8228}}),
        (12, {"one": {"fedseq": 0.82}, "two": {"fedseq": 0.82}, "four": {"fedseq": 0.81}}),
        (17, {"shards": PUBLISHED_WFSL, "ewc_all": {"ewc": 0.17, "ewc, one adam": 0.17}}),
        (19, {**SPFL, "work": {"fedavg, 10 epochs": 0.7828}}),
        (20, {"strong": {"spfl": 0.56}, "ten": {"fedavg, 10 epochs": 0.55}, "twenty": {"fedavg, 20 epochs": 0.554}}),
        (21, gains(0.5, 0.083, 0.076, 0.065, 0.034, 0.019)),
    ],
)
def test_published_figures_meet_the_criterion(number, scores):
    assert verdict(number, scores) == "holds"


@pytest.mark.parametrize(
    ("number", "scores"),
    [
        (1, {"alpha_0": {"fedavg": 0.7127, "fedseq": 0.7527}}),  # a gain of 4 points
        (
            3,
            {name: {"fedavg": 0.7, "fedseq": 0.8} for name in ("alpha_0", "alpha_05")},
        ),
        (11, {"alpha_0": {"fedseq": 0.8221}, "task2vec": {"fedseq": 0.81}}),
        (12, {"one": {"fedseq": 0.80}, "two": {"fedseq": 0.80}, "four": {"fedseq": 0.82}}),
        (17, {"shards": PUBLISHED_WFSL, "ewc_all": {"ewc": 0.94, "ewc, one adam": 0.17}}),  # only Adam was to blame
        (17, {"shards": {**PUBLISHED_WFSL, "random": 0.9}, "ewc_all": {"ewc": 0.1, "ewc, one adam": 0.1}}),
        (19, {**SPFL, "work": {"fedavg, 10 epochs": 0.80}}),  # it was the work
        (20, {"strong": {"spfl": 0.56}, "ten": {"fedavg, 10 epochs": 0.55}, "twenty": {"fedavg, 20 epochs": 0.57}}),
        (21, gains(0.5, 0.05, 0.05, 0.05, 0.05, 0.05)),
        (21, gains(0.5, 0.06, 0.01, 0.055, 0.1, 0.05)),  # the ends agree, the five do not fall
    ],
)
def test_figures_that_say_otherwise_do_not(number, scores):
    assert verdict(number, scores) == "does not hold"


def test_arithmetic_is_marked():
    marked = {number: [check.arithmetic for check in judge([_conditions(number)])[1]] for number in (4, 8, 13, 16)}
    assert marked == {4: [False, True], 8: [False, True], 13: [False, True], 16: [False, False, True, True]}
    assert all(check.arithmetic for check in judge([_conditions(25)])[1])


class _AnyMethod(Results):
    """Every method, with every measure equal to one."""

    def __missing__(self, name: str) -> Measured:
        return Measured(name, _Ones())


class _Ones(dict[str, float | None]):
    def get(self, name: str, default: object = None) -> float:
        return 1.0


def _conditions(number: int):
    claim = CLAIMS[number]
    return claim.criterion(**{name: _AnyMethod() for name in signature(claim.criterion).parameters})
