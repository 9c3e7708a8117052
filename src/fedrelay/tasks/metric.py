"""How a metric is read. Nothing here needs PyTorch, so tables and `--help` can use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """How a metric is read."""

    higher_is_better: bool = True
    percent: bool = True
    """Whether it lies between 0 and 1 and is shown as a percentage."""


LOSS = Metric(higher_is_better=False, percent=False)
