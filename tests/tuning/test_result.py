"""Standings and leads, with made-up numbers."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.tuning.tiny import tiny_tuning

from fedrelay.report.tuning_summary import reason
from fedrelay.tasks.task_facts import CLASSIFICATION
from fedrelay.tuning.result import Standing, TuningResult


class Made(TuningResult):
    """A result whose standings are given."""

    given: tuple[Standing, ...] = ()

    @property
    def standings(self):
        return tuple(sorted(self.given, key=self._rank))


def made(*standings, **settings):
    result = Made(tiny_tuning(seeds=[7, 8, 9], **settings), CLASSIFICATION, (), (), None, None)
    object.__setattr__(result, "given", standings)
    return result


def standing(name, *scores, costs=(), failed=0, pooled=False):
    return Standing(name, scores, costs or (None,) * len(scores), failed, pooled)


A, B = standing("a", 0.9, 0.8, 0.7), standing("b", 0.85, 0.7, 0.65)


def test_the_best_mean_on_test_samples_is_recommended():
    result = made(B, A)
    assert [each.name for each in result.standings] == ["a", "b"]
    assert result.recommended == A


def test_failed_methods_and_pooled_data_are_never_recommended():
    pooled, failed = standing("centralized", 1, 1, 1, pooled=True), standing("c", 1.0, 1.0, failed=1)
    assert [each.name for each in made(failed, pooled, B).standings] == ["b", "centralized", "c"]
    assert made(failed).recommended is None
    assert made(pooled).recommended is None
    assert reason(made(failed)) == "No method finished every seed of the comparison, so none is recommended."


def test_a_lead_is_measured_seed_by_seed():
    result = made(A, B)
    mean, error = result.lead_over(B)
    assert mean == pytest.approx((0.05 + 0.1 + 0.05) / 3)
    gaps = (0.05, 0.1, 0.05)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / 2)
    assert error == pytest.approx(deviation / math.sqrt(3))
    assert result.is_clear(B)
    near = standing("near", 0.7, 0.85, 0.75)
    assert not made(A, near).is_clear(near)
    assert "The lead over near is too small to be sure" in reason(made(A, near))
    assert made(A, replace(B, scores=(0.1,))).lead_over(replace(B, scores=(0.1,))) is None


def test_the_least_cost_wins_where_the_objective_is_a_cost():
    tune = {"objective": "updates"}
    dear = standing("dear", 0.9, 0.9, 0.9, costs=(30.0, 30.0, 30.0))
    cheap = standing("cheap", 0.8, 0.8, 0.8, costs=(10.0, 20.0, 15.0))
    missed = standing("missed", 0.95, 0.95, 0.95, costs=(5.0, None, 5.0))
    result = made(dear, missed, cheap, tune=tune, stop={"target": 0.8})
    assert [each.name for each in result.standings] == ["cheap", "dear", "missed"]
    assert result.lead_over(dear)[0] == 15.0
    assert reason(result).startswith(
        "cheap reaches 80.0 % on validation samples at the least cost with 3 fresh seeds: 15 client updates."
    )
    nobody = made(missed, tune=tune, stop={"target": 0.8})
    assert reason(nobody) == "No method reached 80.0 % with every seed; missed came closest."
