"""Verdicts: how the numbers of a claim decide about it. These rules were fixed before anything was run.

Rule 5 has been made stricter since, so that more is inconclusive. No rule was ever relaxed.

1. Every check of a criterion gives one margin for each seed: by how much it is met, negative if it is not.
2. A check holds if its mean margin over seeds is positive (or zero, where equality is allowed). Otherwise it fails.
3. With two or more seeds, a check is inconclusive if the absolute value of its mean margin is smaller than its standard
   error over seeds. That is a low bar: if two methods are in truth equal, then with three seeds a fifth of such checks
   hold and a fifth fail. Equalities (`==`) are exact: every seed must agree, and they are never inconclusive.
4. A check is inconclusive if a number is missing, or if a run diverged, unless the claim says how divergence counts.
5. A target that a run never reached counts as reached one round after its last. A check is inconclusive if a
   much later round would change the outcome, for a seed or for the mean over seeds, or if neither side reached the
   target.
6. A claim holds if all its checks hold, does not hold if any of them fails, and is inconclusive otherwise. Checks that
   are combined with `any_of` and `negated` follow the same logic.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from fedrelay_reproduce.criteria import Check, Combination, Condition, Sign, number

Verdict = Literal["holds", "does not hold", "inconclusive"]
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


def judge(seeds: Sequence[Sequence[Condition]]) -> tuple[Verdict, list[CheckResult]]:
    """Decide about a claim.

    Args:
        seeds: what the criterion returned for each seed.

    Returns:
        the verdict, and every check with its numbers.
    """
    judged = [_judge(condition) for condition in zip(*seeds, strict=True)]
    return _worst(verdict for verdict, _ in judged), [check for _, checks in judged for check in checks]


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
    text, sign = seeds[0].text, seeds[0].sign
    sides = [(number(check.left), number(check.right)) for check in seeds]
    reason = next((side.missing for pair in sides for side in pair if side.missing is not None), None)
    if reason is not None:
        return CheckResult(text, sign, "inconclusive", reason=reason)
    margins = [margin(sign, left.soon, right.soon) for left, right in sides]
    latest = [margin(sign, left.late, right.late) for left, right in sides]
    if any(_differs(sign, *pair) for pair in [*zip(margins, latest, strict=True), (_mean(margins), _mean(latest))]):
        return CheckResult(text, sign, "inconclusive", reason="the target was not reached in the rounds there were")
    verdict, reason = decide(sign, margins)
    left, right = (tuple(pair[side].soon for pair in sides) for side in (0, 1))
    return CheckResult(text, sign, verdict, left, right, tuple(margins), reason)


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
        error = stdev(margins) / math.sqrt(len(margins))
        if abs(mean) < error:
            return "inconclusive", f"the margin {mean:.4g} is smaller than its standard error {error:.4g}"
    return ("holds" if met(sign, mean) else "does not hold"), None
