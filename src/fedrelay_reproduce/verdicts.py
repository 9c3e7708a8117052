"""Verdicts: how the numbers of a claim decide about it.

Second edition, 2026-11-17. The first, of 2026-11-16, had one standard error in rule 3; its verdicts are shown beside
those of today, with its criteria. Whoever wrote the criteria of this edition knew the numbers of the first. At scale
medium the settings are new, and criteria were fixed before their runs, except that of claim 17, which was committed
while its runs were under way. At scale small, runs whose settings have not changed have the seeds and the numbers of
the first edition: all runs of claims 8, 14, 24 and 26, some of 4, 18, 22, 23 and 29. There a criterion predicts
nothing. The criterion of claim 10 was committed together with its results.

Most criteria became stricter. These were relaxed: 3 (one comparison fewer), 10 (the mean of four greedy groupings
instead of the least), 12 (a tolerance of 1 point instead of 0.5), 15 (four rivals instead of eight; nothing about
NaiveGSP's speed), 16 (each share against one instead of the spread), 20 (FedAvg with one epoch is only shown; with it
the claim would not hold), 21 (.1 against .5 is left out), 26 (the mean of both methods instead of each).

1. Every check of a criterion gives one margin for each seed: by how much it is met, negative if it is not.
2. A check holds if its mean margin over seeds is positive (or zero, where equality is allowed). Otherwise it fails.
3. With two or more seeds, a check is inconclusive if the absolute value of its mean margin is smaller than twice its
   standard error over seeds. Beside it stands the 95 % interval of the margin, by Student's t over seeds, which are
   paired: 4.3 standard errors on either side with three seeds, 2.8 with five. So an interval may contain 0 although the
   check is decided: such a check is weak, and so is a verdict that rests on one. If the true margin is 0, chance
   decides a check of three seeds in 18 % of the cases, of five seeds in 12 %. The detectable effect belongs to the
   interval, not to two standard errors: the smallest true margin whose interval would be above 0 with a probability of
   80 %. Equalities (`==`) are exact: every seed must agree, and they are never inconclusive. Numbers are given as mean
   ± standard deviation over seeds. Nothing is corrected for the number of checks: a claim with three checks of three
   seeds fails by chance alone in about a quarter of the cases if all true margins are 0.
4. A check is inconclusive if a number is missing, or if a run diverged, unless the claim says how divergence counts.
5. A target that a run never reached counts as reached one round after its last. A check is inconclusive if a
   much later round would change the outcome, for a seed or for the mean over seeds, or if neither side reached the
   target.
6. A claim holds if all its checks hold, does not hold if any of them fails, and is inconclusive otherwise. Checks that
   are combined with `any_of` and `negated` follow the same logic. Checks of arithmetic are shown, but decide nothing:
   no experiment could contradict the paper by them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from fedrelay.metrics.paired_differences import PairedDifference
from fedrelay.metrics.student_t import two_sided_quantile
from fedrelay_reproduce.criteria import Check, Combination, Condition, Sign, Unit, number

Verdict = Literal["holds", "does not hold", "inconclusive"]
NEEDED_ERRORS = 2.0
"""How many standard errors a margin needs to decide."""

_WORTH: Mapping[Verdict, int] = {"does not hold": 0, "inconclusive": 1, "holds": 2}
_OPPOSITE: Mapping[Verdict, Verdict] = {
    "holds": "does not hold", "does not hold": "holds", "inconclusive": "inconclusive",
}  # fmt: skip


@dataclass(frozen=True)
class CheckResult:
    """A check over all seeds; `left`, `right` and `margins` have one number for each seed."""

    text: str
    sign: Sign
    verdict: Verdict
    left: tuple[float, ...] = ()
    right: tuple[float, ...] = ()
    margins: tuple[float, ...] = ()
    reason: str | None = None
    """Why it is inconclusive."""

    interval: tuple[float, float] | None = None
    """The 95 % interval of the mean margin; None with a single seed."""

    detectable: float | None = None
    """The smallest true margin that these seeds would show with a probability of 80 %."""

    arithmetic: bool = False
    unit: Unit = ""
    """The unit of both sides."""


def judge(seeds: Sequence[Sequence[Condition]]) -> tuple[Verdict, list[CheckResult]]:
    """Decide about a claim.

    Args:
        seeds: what the criterion returned for each seed.

    Returns:
        the verdict, and every check with its numbers.
    """
    judged = [_judge(condition) for condition in zip(*seeds, strict=True)]
    empirical = [verdict for verdict, checks in judged if not all(check.arithmetic for check in checks)]
    verdict = _worst(empirical or [verdict for verdict, _ in judged])
    return verdict, [check for _, checks in judged for check in checks]


def _judge(seeds: Sequence[Condition]) -> tuple[Verdict, list[CheckResult]]:
    """Decide about one condition, given for each seed."""
    first = seeds[0]
    if isinstance(first, Check):
        result = _check([each for each in seeds if isinstance(each, Check)])
        return result.verdict, [result]
    parts = [
        _judge(part) for part in zip(*(each.parts for each in seeds if isinstance(each, Combination)), strict=True)
    ]
    verdicts = [verdict for verdict, _ in parts]
    match first.kind:
        case "all":
            joined = _worst(verdicts)
        case "any":
            joined = max(verdicts, key=_WORTH.__getitem__)
        case "not":
            joined = _OPPOSITE[verdicts[0]]
    return joined, [check for _, checks in parts for check in checks]


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=_WORTH.__getitem__, default="inconclusive")


def _check(seeds: Sequence[Check]) -> CheckResult:
    """Decide about one check by rules 1 to 5."""
    text, sign, arithmetic = seeds[0].text, seeds[0].sign, seeds[0].arithmetic
    sides = [(number(check.left), number(check.right)) for check in seeds]
    reason = next((side.missing for pair in sides for side in pair if side.missing is not None), None)
    if reason is not None:
        return CheckResult(text, sign, "inconclusive", reason=reason, arithmetic=arithmetic)
    margins = [margin(sign, left.soon, right.soon) for left, right in sides]
    latest = [margin(sign, left.late, right.late) for left, right in sides]
    if any(_differs(sign, *pair) for pair in [*zip(margins, latest, strict=True), (_mean(margins), _mean(latest))]):
        reason = "the target was not reached in the rounds there were"
        return CheckResult(text, sign, "inconclusive", reason=reason, arithmetic=arithmetic)
    verdict, reason = decide(sign, margins)
    left, right = (tuple(pair[side].soon for pair in sides) for side in (0, 1))
    known = (None, None) if sign == "==" else (interval(margins), detectable(margins))
    unit = sides[0][0].unit or sides[0][1].unit
    return CheckResult(text, sign, verdict, left, right, tuple(margins), reason, *known, arithmetic, unit)


def margin(sign: Sign, left: float, right: float) -> float:
    """By how much a comparison is met; negative if it is not."""
    if sign == "==":
        return -abs(left - right) if left != right else 0.0
    return left - right if sign.startswith(">") else right - left


def met(sign: Sign, margin: float) -> bool:
    """Whether a margin is large enough; zero is, where equality is allowed."""
    return margin > 0 or (margin == 0 and "=" in sign)


def _differs(sign: Sign, soon: float, late: float) -> bool:
    """Whether it changes the outcome that a target might be reached much later."""
    return math.isnan(late) or met(sign, soon) != met(sign, late)


def _mean(margins: Sequence[float]) -> float:
    """The mean; `fmean` fails on infinities of both signs, here their mean is not a number."""
    return sum(margins) / len(margins)


def decide(sign: Sign, margins: Sequence[float]) -> tuple[Verdict, str | None]:
    """The verdict on one check, and the reason if it is inconclusive (rules 2 and 3)."""
    if not margins:
        return "inconclusive", "nothing was measured"
    if sign == "==":
        return ("holds" if all(margin == 0 for margin in margins) else "does not hold"), None
    mean = fmean(margins)
    if len(margins) > 1:
        error = PairedDifference(tuple(margins)).standard_error
        if abs(mean) < NEEDED_ERRORS * error:
            return "inconclusive", "the margin is smaller than two of its standard errors"
    return ("holds" if met(sign, mean) else "does not hold"), None


def interval(margins: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of the mean margin over seeds, by Student's t.

    >>> [round(bound, 3) for bound in interval([0.01, 0.02, 0.03])]
    [-0.005, 0.045]
    """
    return PairedDifference(tuple(margins)).interval


def detectable(margins: Sequence[float]) -> float | None:
    """The smallest true margin that as many seeds with this deviation show with a probability of 80 %.

    By the noncentral t distribution: the true margin is so many standard errors above 0 that t is beyond its 97.5 %
    quantile in 80 % of the cases.

    >>> round(detectable([0.01, 0.02, 0.03]), 3)
    0.033
    """
    from scipy.special import nctdtrinc  # slow to import

    if len(margins) < 2:
        return None
    freedom = len(margins) - 1
    errors = float(nctdtrinc(freedom, 0.2, two_sided_quantile(0.05, freedom)))
    return errors * PairedDifference(tuple(margins)).standard_error
