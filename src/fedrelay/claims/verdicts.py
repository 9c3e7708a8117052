"""Verdicts: what becomes of a claim once its numbers are there. These rules were fixed before anything was run.

Rule 5 has been made sharper since, so that more is inconclusive; nothing was ever made milder.

1. Every comparison of a criterion gives one margin for each seed: by how much it is kept, negative where it is not.
2. A comparison holds if the mean margin over seeds is positive (or zero, where equality is allowed), else it fails.
3. With two or more seeds it is inconclusive if the mean margin is smaller, in absolute value, than its standard error
   over seeds. That is a low bar: of comparisons between equals, with three seeds, a fifth would hold and a fifth would
   fail. Equalities (`==`) are exact: every seed must agree, and there is no doubt.
4. It is inconclusive if a number is missing, or if a run diverged, unless the claim says how divergence counts.
5. A target that was never reached within the rounds of a run counts as reached one round later. If it would make a
   difference, for a seed or for the mean over seeds, that it might be much later, or if both sides never got there, the
   comparison is inconclusive.
6. A claim holds if all its comparisons hold, does not hold if any of them fails, and is inconclusive otherwise; parts
   joined by `or` and `not` likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from fedrelay.claims.criteria import Comparison, Criterion, Dotted, Scope, kept
from fedrelay.claims.subjects import Never, Subject, Undecided

Verdict = Literal["holds", "does not hold", "inconclusive"]
_WORTH: Mapping[Verdict, int] = {"does not hold": 0, "inconclusive": 1, "holds": 2}
_OPPOSITE: Mapping[Verdict, Verdict] = {"holds": "does not hold", "does not hold": "holds"}

Resolve = Callable[[Dotted], Subject]
"""What names stand for with one seed."""


@dataclass(frozen=True)
class Finding:
    """One comparison with its numbers."""

    text: str
    verdict: Verdict
    left: tuple[float, ...] = ()
    right: tuple[float, ...] = ()
    margins: tuple[float, ...] = ()
    """One for each seed."""

    reason: str | None = None
    """Why it is inconclusive."""


@dataclass(frozen=True)
class Judgement:
    """What a criterion amounts to, and all its comparisons."""

    verdict: Verdict
    findings: tuple[Finding, ...]


def judge(criteria: Sequence[Criterion], seeds: Sequence[Resolve]) -> Judgement:
    """The verdict on a claim: all its criteria, over all seeds."""
    judged = [_judge(criterion, seeds) for criterion in criteria]
    return Judgement(_worst(each.verdict for each in judged), tuple(f for each in judged for f in each.findings))


def _judge(criterion: Criterion, seeds: Sequence[Resolve]) -> Judgement:
    if isinstance(criterion, Comparison):
        finding = _find(criterion, seeds)
        return Judgement(finding.verdict, (finding,))
    parts = [_judge(part, seeds) for part in criterion.parts]
    verdicts = [part.verdict for part in parts]
    match criterion.kind:
        case "all":
            verdict = _worst(verdicts)
        case "any":
            verdict = max(verdicts, key=_WORTH.__getitem__)
        case _:
            verdict = _OPPOSITE.get(verdicts[0], verdicts[0])
    return Judgement(verdict, tuple(finding for part in parts for finding in part.findings))


def _worst(verdicts: Iterable[Verdict]) -> Verdict:
    return min(verdicts, key=_WORTH.__getitem__, default="inconclusive")


def _find(comparison: Comparison, seeds: Sequence[Resolve]) -> Finding:
    """One comparison over all seeds."""
    try:
        sides = [_sides(comparison, resolve, Subject.bound) for resolve in seeds]
        margins = [comparison.margin(*each) for each in sides]
        latest = [comparison.margin(*_sides(comparison, resolve, _endless)) for resolve in seeds]
        if any(map(_differs(comparison), margins, latest)) or (
            seeds and _differs(comparison)(*map(_mean, (margins, latest)))
        ):
            raise Undecided("the target was not reached in the rounds there were")
    except Undecided as error:
        return Finding(str(comparison), "inconclusive", reason=str(error))
    verdict, reason = decide(comparison.sign, margins)
    left, right = zip(*sides, strict=True) if sides else ((), ())
    return Finding(str(comparison), verdict, left, right, tuple(margins), reason)


def _sides(comparison: Comparison, resolve: Resolve, never: Never) -> tuple[float, float]:
    scope = Scope(resolve, never)
    return scope.value(comparison.left), scope.value(comparison.right)


def _endless(subject: Subject, cost: str) -> float:
    """Never, taken at its word."""
    return math.inf


def _differs(comparison: Comparison) -> Callable[[float, float], bool]:
    """Whether it makes a difference that what was never reached might be reached much later."""

    def different(soon: float, late: float) -> bool:
        return math.isnan(late) or comparison.keeps(soon) != comparison.keeps(late)

    return different


def _mean(margins: Sequence[float]) -> float:
    """As usual, and not a number where one margin is endless this way and another that way."""
    return sum(margins) / len(margins)


def decide(sign: str, margins: Sequence[float]) -> tuple[Verdict, str | None]:
    """The verdict on one comparison, and why if there is none."""
    if not margins:
        return "inconclusive", "nothing was measured"
    if sign == "==":
        return ("holds" if all(margin == 0 for margin in margins) else "does not hold"), None
    mean = fmean(margins)
    if len(margins) > 1:
        error = stdev(margins) / math.sqrt(len(margins))
        if abs(mean) < error:
            return "inconclusive", f"the margin {mean:.4g} is smaller than its standard error {error:.4g}"
    return ("holds" if kept(sign, mean) else "does not hold"), None
