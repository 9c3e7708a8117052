"""Groups that models travel through."""

from __future__ import annotations

from fedrelay.routes.base import PlanningContext

GROUPS = tuple((3 * i, 3 * i + 1, 3 * i + 2) for i in range(6))


def context(groups=GROUPS, fraction=0.5, seed=1, rounds=60, **more):
    return PlanningContext(sum(map(len, groups)), fraction, seed, groups, rounds, **more)
