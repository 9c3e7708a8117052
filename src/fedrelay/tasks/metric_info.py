"""What a reader must know of a metric. Nothing here needs PyTorch, so tables and `--help` can use it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MetricInfo:
    """What a reader must know of a metric: which direction is better, and how it is shown."""

    higher_is_better: bool = True
    percent: bool = True
    """Whether it lies between 0 and 1 and is shown as a percentage."""

    needs: str = ""
    """What samples need to have, or the metric is undefined: `samples of both classes`."""

    def gain(self, value: float) -> float:
        """The value, or its negative where less is better: a greater gain is always better."""
        return value if self.higher_is_better else -value

    @property
    def why_undefined(self) -> str:
        """Why samples may leave the metric without a value."""
        return f"it needs {self.needs}" if self.needs else "the samples do not determine it"

    def difference(self, value: float) -> str:
        """A difference of two values with its sign: `+3.1` in points of percent, `-0.0123` if it is no share."""
        text = f"{100 * value:+.1f}" if self.percent else f"{value:+.3g}"
        return text if float(text) else text[1:]


LOSS = MetricInfo(higher_is_better=False, percent=False)
