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


def standing(name, *scores, validation=None, costs=(), pooled=False):
    return Standing(name, validation or scores, scores, costs or (None,) * len(scores), pooled)


A, B = standing("a", 0.9, 0.8, 0.7), standing("b", 0.85, 0.7, 0.65)


def test_the_best_mean_on_validation_samples_is_recommended_whatever_test_samples_say():
    better_tested = replace(B, scores=(1.0, 1.0, 1.0))
    result = made(better_tested, A)
    assert [each.name for each in result.standings] == ["a", "b"]
    assert result.recommended == A
    assert result.recommended.score == pytest.approx(0.8)
    assert result.lead_over(better_tested).mean == pytest.approx(-0.2)
    assert result.certainty(better_tested) == "close"
    assert reason(result) == (
        "a has the best validation accuracy within 4 rounds, with 3 fresh seeds: 80.0 %, and 80.0 % on test samples. "
        "The lead over b on test samples may be chance: use more --seeds to be sure."
    )


def test_methods_without_a_number_for_every_seed_and_pooled_data_are_never_recommended():
    pooled, failed = standing("centralized", 1, 1, 1, pooled=True), standing("c", 1.0, None, 1.0)
    assert (failed.missing, failed.score) == (1, 1.0)
    assert [each.name for each in made(failed, pooled, B).standings] == ["b", "centralized", "c"]
    assert made(failed).recommended is None
    assert made(pooled).recommended is None
    assert made(failed, B).lead_over(failed) is None
    assert made(failed, B).certainty(failed) == "unknown"
    assert reason(made(failed)) == "No method has a number for every seed of the comparison, so none is recommended."


def test_a_lead_is_measured_seed_by_seed():
    lead = made(A, B).lead_over(B)
    assert lead.values == pytest.approx((0.05, 0.1, 0.05))
    mean = 0.2 / 3
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in (0.05, 0.1, 0.05)) / 2)
    assert (lead.mean, lead.standard_error) == pytest.approx((mean, deviation / math.sqrt(3)))


def test_four_standard_errors_of_three_seeds_may_be_chance():
    assert made(A, B).certainty(B) == "close"  # p = 0.057
    far, farther = standing("far", 0.5, 0.42, 0.3), standing("farther", 0.3, 0.2, 0.11)
    result = made(A, far, farther)
    assert [result.certainty(each) for each in (far, farther)] == ["clear", "clear"]
    assert reason(result).endswith("The lead over every other method on test samples is more than chance.")


def test_one_seed_cannot_tell():
    result = Made(tiny_tuning(seeds=[7]), CLASSIFICATION, (), (), None, None)
    object.__setattr__(result, "given", (standing("a", 0.9), other := standing("b", 0.1)))
    assert result.certainty(other) == "unknown"
    assert reason(result).endswith("One seed cannot tell whether the lead is more than chance: use more --seeds.")


def test_the_least_cost_wins_where_the_objective_is_a_cost():
    tune = {"objective": "updates"}
    dear = standing("dear", 0.9, 0.9, 0.9, costs=(30.0, 31.0, 30.0))
    cheap = standing("cheap", 0.8, 0.8, 0.8, costs=(15.0, 15.0, 15.0))
    missed = standing("missed", 0.95, 0.95, 0.95, costs=(5.0, None, 5.0))
    result = made(dear, missed, cheap, tune=tune, stop={"target": 0.8})
    assert [each.name for each in result.standings] == ["cheap", "dear", "missed"]
    assert result.lead_over(dear).values == (15.0, 16.0, 15.0)
    assert reason(result) == (
        "cheap reaches 80.0 % on validation samples at the least cost with 3 fresh seeds: 15 client updates; it has "
        "80.0 % on test samples. Not every seed of missed reached it. "
        "The lead over all others that did is more than chance."
    )
    nobody = made(missed, replace(missed, name="neither"), tune=tune, stop={"target": 0.8})
    assert [nobody.certainty(each) for each in nobody.rivals] == ["unknown"]
    assert reason(nobody) == (
        "No method reached 80.0 % with every seed; missed has the best validation accuracy: 95.0 %, "
        "and 95.0 % on test samples."
    )
