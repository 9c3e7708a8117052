"""How much two methods differ, seed by seed, and which of several differences are more than chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from fedrelay.metrics.student_t import two_sided_p_value, two_sided_quantile

LEVEL = 0.05
"""How likely it may be to call any difference more than chance that is none."""

_ROUNDING = 1e-12
"""Relative size of differences between numbers that are equal but for rounding."""

SEEDS_OF_AN_EFFECT_SIZE = 3
"""With two seeds, the correction for small samples leaves nothing of an effect size."""


@dataclass(frozen=True)
class PairedDifference:
    """The differences of two methods, one for each seed."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        return fmean(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation; not known with a single seed: infinite. Mere rounding counts as none."""
        if len(self.values) < 2:
            return math.inf
        found = stdev(self.values)
        return found if found > _ROUNDING * max(map(abs, self.values)) else 0.0

    @property
    def standard_error(self) -> float:
        """The standard error of the mean; not known with a single seed: infinite."""
        return self.deviation / math.sqrt(len(self.values))

    @property
    def p_value(self) -> float:
        """How likely so large a mean is if there is no difference: two-sided t-test with n − 1 degrees of freedom.

        >>> round(PairedDifference((0.05, 0.1, 0.05)).p_value, 3)
        0.057
        """
        if self.standard_error == 0:
            return 0.0 if self.mean else 1.0
        return two_sided_p_value(self.mean / self.standard_error, len(self.values) - 1)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean, by Student's t; None with a single seed.

        >>> low, high = PairedDifference((0.05, 0.1, 0.05)).interval
        >>> round(low, 3), round(high, 3)
        (-0.005, 0.138)
        """
        if len(self.values) < 2:
            return None
        margin = margin_of_mean(self.deviation, len(self.values))
        return self.mean - margin, self.mean + margin

    @property
    def effect_size(self) -> float | None:
        """Hedges' g of paired values: mean / standard deviation of the differences, corrected for few seeds.

        The correction is exact (a ratio of gamma functions), not its usual approximation. None with fewer than three
        seeds, and where all differences are equal.

        >>> round(PairedDifference((0.05, 0.1, 0.05)).effect_size, 2)
        1.3
        """
        if len(self.values) < SEEDS_OF_AN_EFFECT_SIZE or not self.deviation:
            return None
        freedom = len(self.values) - 1
        log_correction = math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2) - math.log(freedom / 2) / 2
        return math.exp(log_correction) * self.mean / self.deviation


def margin_of_mean(deviation: float, count: int) -> float:
    """Half the width of the 95 % confidence interval of a mean, by Student's t; infinite with one value.

    Args:
        deviation: The sample standard deviation.
        count: How many values.
    """
    if count < 2:
        return math.inf
    return two_sided_quantile(LEVEL, count - 1) * deviation / math.sqrt(count)


def adjusted_p_values(differences: Sequence[PairedDifference]) -> list[float]:
    """The p-values with Holm's correction for their number: compare each with the level of the whole family.

    >>> [round(p, 3) for p in adjusted_p_values([PairedDifference((0.05, 0.1, 0.05)), PairedDifference((1.0, -1.0))])]
    [0.114, 1.0]
    """
    p_values = [each.p_value if len(each.values) > 1 else 1.0 for each in differences]
    adjusted, least = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = least
    return adjusted


def more_than_chance(differences: Sequence[PairedDifference], level: float = LEVEL) -> list[bool]:
    """Which differences are more than chance, with Holm's correction for their number.

    Args:
        differences: All that are looked at together.
        level: How likely it may be that any of them is wrongly called more than chance.

    >>> more_than_chance([PairedDifference((1.0, 1.1, 1.0)), PairedDifference((1.0, -1.0, 0.5))])
    [True, False]
    """
    return [p_value <= level for p_value in adjusted_p_values(differences)]


@dataclass(frozen=True)
class DifferenceToBaseline:
    """How much a method differs from the baseline, on the seeds that both have."""

    seeds: tuple[int, ...]
    difference: PairedDifference | None
    """Method minus baseline, seed by seed; None if they share no seed."""

    adjusted_p_value: float | None
    """With Holm's correction for the number of methods; None with fewer than two seeds."""

    @property
    def more_than_chance(self) -> bool:
        return self.adjusted_p_value is not None and self.adjusted_p_value <= LEVEL


Scores = Mapping[int, float]
"""Seed → score."""


def differences_to_baseline(baseline: Scores, others: Mapping[str, Scores]) -> dict[str, DifferenceToBaseline]:
    """Compare several methods with one, seed by seed.

    Args:
        baseline: The scores of the method to compare with; scores that are not known are NaN.
        others: The scores of the other methods, by name.

    >>> found = differences_to_baseline({1: 0.5, 2: 0.6}, {"fedseq": {1: 0.7, 2: 0.9, 3: 0.8}})
    >>> found["fedseq"].seeds, round(found["fedseq"].difference.mean, 3)
    ((1, 2), 0.25)
    """
    pairs = {
        name: {
            seed: score - baseline[seed]
            for seed, score in scores.items()
            if seed in baseline and not math.isnan(score - baseline[seed])
        }
        for name, scores in others.items()
    }
    measured = {name: PairedDifference(tuple(found.values())) for name, found in pairs.items() if found}
    tested = [name for name, difference in measured.items() if len(difference.values) > 1]
    adjusted = dict(zip(tested, adjusted_p_values([measured[name] for name in tested]), strict=True))
    return {
        name: DifferenceToBaseline(tuple(found), measured.get(name), adjusted.get(name))
        for name, found in pairs.items()
    }
