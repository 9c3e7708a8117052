"""The configurations of a method that are tried: learning rates, each with one value of the method's setting."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedrelay.experiment.method_hyperparameters import Hyperparameter

LEAST_STEP = 2.0
"""The least factor between the largest learning rate and one beyond it."""


@dataclass(frozen=True)
class Point:
    """One configuration: a learning rate, and the value of the method's setting, if it has one."""

    lr: float
    value: Any = None


@dataclass(frozen=True)
class SearchSpace:
    """The learning rates of a method, and its setting."""

    rates: tuple[float, ...]
    hyperparameter: Hyperparameter | None = None

    @classmethod
    def around(cls, lr: float, span: float, count: int, hyperparameter: Hyperparameter | None = None) -> SearchSpace:
        """Learning rates with equal factors between them, from `lr / span` to `lr · span`."""
        places = [2 * place / (count - 1) - 1 for place in range(count)]
        return cls(tuple(_rounded(lr * span**place) for place in places), hyperparameter)

    def points(self) -> list[Point]:
        """One point for each learning rate, so that all methods have equally many.

        The values of the method's setting are dealt out in turn: each meets learning rates over the whole range.
        """
        values = self.hyperparameter.values if self.hyperparameter is not None else (None,)
        return [Point(lr, values[place % len(values)]) for place, lr in enumerate(self.rates)]

    def beyond(self, best: Point, tried: Iterable[Point]) -> Point | None:
        """The next point if the best learning rate is the smallest or largest that was tried; None if it is not."""
        rates = sorted(point.lr for point in tried)
        step = max(LEAST_STEP, (self.rates[-1] / self.rates[0]) ** (1 / (len(self.rates) - 1)))
        if best.lr == rates[-1]:
            return Point(_rounded(best.lr * step), best.value)
        return Point(_rounded(best.lr / step), best.value) if best.lr == rates[0] else None

    def settings(self, point: Point) -> dict[str, Any]:
        """The settings of a point by their place in a spec."""
        return {
            "train.lr": point.lr,
            **({self.hyperparameter.key: point.value} if self.hyperparameter is not None else {}),
        }


def _rounded(value: float) -> float:
    """Three significant digits: no more are ever needed, and people read them."""
    return float(f"{value:.3g}") if math.isfinite(value) and value else value
