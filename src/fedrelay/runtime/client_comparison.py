"""What every client gains or loses by taking part: each method against `local`, client by client.

Rule: the gain of a client is the metric on its held-out samples with the method, minus that of the model which it
trained alone (`local`), seed by seed; of errors, the other way round. Two 95 % intervals tell what it is worth: one
over seeds (Student's t of paired differences), one over samples (percentiles of differences on the same resamples of
the held-out samples, averaged over seeds). A client gains or loses for certain if it holds out at least ten samples,
the interval over samples is known, and both lie on one side of 0; with one seed, that over samples alone. They are not
corrected for the number of clients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedrelay.metrics.client_spread import ClientSpread, client_spread
from fedrelay.metrics.paired_differences import LEVEL, PairedDifference
from fedrelay.runtime.client_scores import ClientScores, why_without_value
from fedrelay.runtime.html_table import html_table
from fedrelay.tasks.task_facts import TaskFacts

Interval = tuple[float, float]
Effect = Literal["gains", "loses", "unclear"]

LEAST_SAMPLES = 10
"""Held-out samples below which nothing is certain: resamples of a few samples hardly differ."""

_MOST_NAMED = 5
_LEAST_DEFINED = 0.9
"""Share of resamples on which the metric must be defined for an interval."""


@dataclass(frozen=True)
class ClientGain:
    """One client with one method, beside training alone."""

    client: int
    name: str
    method: str
    train_samples: int
    """The mean over seeds, as are the held-out samples: where these are drawn, they may differ."""

    held_out: int
    score: float | None
    """The metric with the method, as a mean over seeds; None where it is undefined."""

    alone: float | None
    """The same of the model that the client trained alone; None where `local` was not compared."""

    over_seeds: PairedDifference | None
    """The gain of each seed."""

    over_samples: Interval | None
    """The 95 % bootstrap interval of the mean gain over the held-out samples."""

    reason: str = ""
    """Why it has no score, if it has none."""

    @property
    def gain(self) -> float | None:
        """The mean gain over seeds; of errors, what they are lower by."""
        return None if self.over_seeds is None else self.over_seeds.mean

    @property
    def interval_over_seeds(self) -> Interval | None:
        """The 95 % interval over seeds; None with fewer than two."""
        return None if self.over_seeds is None else self.over_seeds.interval

    @property
    def effect(self) -> Effect | None:
        """Whether the client gains or loses for certain; None without a gain."""
        if self.over_seeds is None:
            return None
        if self.held_out < LEAST_SAMPLES or self.over_samples is None:  # seeds do not show what other samples would
            return "unclear"
        known = [each for each in (self.interval_over_seeds, self.over_samples) if each is not None]
        if all(low > 0 for low, _ in known):
            return "gains"
        return "loses" if all(high < 0 for _, high in known) else "unclear"


@dataclass(frozen=True, repr=False)
class ClientComparison:
    """All clients with all methods of a comparison. Iterate over it for plain rows."""

    task: TaskFacts
    scores: Mapping[str, Mapping[int, ClientScores]]
    """Method → seed → the scores of its clients, where single clients were evaluated."""

    alone: str | None
    """The name of the method in which clients train alone, if it was compared."""

    @cached_property
    def gains(self) -> dict[str, list[ClientGain]]:
        """Method → all its clients, in the order of their numbers."""
        return {name: [self._gain(name, client) for client in sorted(found)] for name, found in self._lines.items()}

    def spread(self, method: str) -> ClientSpread | None:
        """How the metric of a method spreads over clients, as means over seeds; None where no client has it."""
        known = [(each.name, each.score, each.train_samples) for each in self.gains[method]]
        found = [(name, value, size) for name, value, size in known if value is not None]
        if not found:
            return None
        names, values, sizes = zip(*found, strict=True)
        return client_spread(names, values, sizes, higher_is_better=self.task.headline_info.higher_is_better)

    @property
    def compared(self) -> list[str]:
        """The methods that are compared with training alone."""
        return [name for name in self.scores if self.alone is not None and name != self.alone]

    def who_loses(self, method: str) -> str:
        """One line: which clients lose by taking part.

        Args:
            method: The name of a method of the comparison, other than `local`.
        """
        found = self.gains[method]
        by_effect: dict[Effect | None, list[ClientGain]] = {}
        for each in sorted(found, key=lambda each: each.gain if each.gain is not None else math.inf):
            by_effect.setdefault(each.effect, []).append(each)
        gaining, losing, unclear = (by_effect.get(each, []) for each in ("gains", "loses", "unclear"))
        text = self._listed(losing) if losing else "nobody for certain" if unclear or not gaining else "nobody"
        parts = [text]
        if unclear:
            parts.append(f"unclear for {self._listed(unclear)}")
        if gaining:
            everybody = len(gaining) == len(found)
            parts.append(f"{'all' if everybody else ''} {len(gaining)} of {len(found)} gain".strip())
        if unknown := by_effect.get(None):
            parts.append(f"unknown for {', '.join(shown_name(each.name) for each in unknown[:_MOST_NAMED])}")
        return f"Who loses by taking part in {method}: {'; '.join(parts)}."

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for name, clients in self.gains.items():
            for each in clients:
                (seeds_low, seeds_high), (samples_low, samples_high) = (
                    ends or (None, None) for ends in (each.interval_over_seeds, each.over_samples)
                )
                yield {
                    "method": name,
                    "client": each.client,
                    "name": each.name,
                    "train_samples": each.train_samples,
                    "held_out": each.held_out,
                    "metric": self.task.headline,
                    "score": each.score,
                    "alone": each.alone,
                    "gain": each.gain,
                    "seeds": 0 if each.over_seeds is None else len(each.over_seeds.values),
                    "seeds_low": seeds_low,
                    "seeds_high": seeds_high,
                    "samples_low": samples_low,
                    "samples_high": samples_high,
                    "effect": each.effect,
                    "reason": each.reason,
                }

    def __repr__(self) -> str:
        lines = [self.who_loses(name) for name in self.compared]
        return f"ClientComparison({', '.join(self.scores)})" + "".join(f"\n{line}" for line in lines)

    def _repr_html_(self) -> str:
        rows = list(self)
        cells = [["" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
                  for value in row.values()] for row in rows]  # fmt: skip
        return html_table(list(rows[0]) if rows else [], cells)

    def _listed(self, clients: Sequence[ClientGain]) -> str:
        named = [f"{shown_name(each.name)} ({self._points(each.gain)})" for each in clients[:_MOST_NAMED]]
        more = len(clients) - len(named)
        return ", ".join(named) + (f" and {more} more" if more else "")

    def _points(self, gain: float | None) -> str:
        return "unknown" if gain is None else self.task.headline_info.difference(gain)

    @cached_property
    def _lines(self) -> dict[str, dict[int, dict[int, Mapping[str, Any]]]]:
        """Method → client → seed → its line."""
        found: dict[str, dict[int, dict[int, Mapping[str, Any]]]] = {name: {} for name in self.scores}
        for name, of_seeds in self.scores.items():
            for seed, scores in of_seeds.items():
                for line in scores.lines:
                    found[name].setdefault(line["client"], {})[seed] = line
        return found

    def _gain(self, method: str, client: int) -> ClientGain:
        found = self._lines[method][client]
        first, last = next(iter(found.values())), list(found.values())[-1]
        name, metric = first["name"], self.task.headline
        scores = _known({seed: line["scores"].get(metric) for seed, line in found.items()})
        alone = self._alone(client) if method != self.alone else {}
        shared = [seed for seed in scores if seed in alone]
        sign = 1 if self.task.headline_info.higher_is_better else -1
        differences = tuple(sign * (scores[seed] - alone[seed]) for seed in shared)
        drawn = self._resampled_gains(method, name, shared, sign)
        interval = None if drawn is None else _percentiles(drawn)
        reason = "" if scores else last.get("not_evaluated") or why_without_value(self.task, metric, last)
        return ClientGain(
            client,
            name,
            method,
            round(fmean(line["train_samples"] for line in found.values())),
            round(fmean(line["held_out"] for line in found.values())),
            fmean(scores.values()) if scores else None,
            fmean(alone.values()) if alone else None,
            PairedDifference(differences) if differences else None,
            interval,
            reason,
        )

    def _alone(self, client: int) -> dict[int, float]:
        """Seed → the metric of a client that trains alone."""
        found = self._lines[self.alone].get(client, {}) if self.alone is not None else {}
        return _known({seed: line["scores"].get(self.task.headline) for seed, line in found.items()})

    def _resampled_gains(self, method: str, name: str, seeds: Sequence[int], sign: int) -> NDArray[np.float64] | None:
        """The gain on each resample, as a mean over seeds; NaN where it is undefined. None without resamples."""
        if self.alone is None:
            return None
        pairs = [
            (self.scores[method][seed].resamples.get(name), self.scores[self.alone][seed].resamples.get(name))
            for seed in seeds
        ]
        if not pairs or any(first is None or second is None or len(first) != len(second) for first, second in pairs):
            return None
        drawn = np.array([[np.array(each, np.float64) for each in pair] for pair in pairs])
        gains: NDArray[np.float64] = sign * (drawn[:, 0] - drawn[:, 1]).mean(axis=0)
        return gains


def _percentiles(gains: NDArray[np.float64]) -> Interval | None:
    """The 95 % interval of resampled gains; None where too many are undefined."""
    defined = gains[np.isfinite(gains)]
    if len(defined) < _LEAST_DEFINED * len(gains):
        return None
    low, high = np.quantile(defined, [LEVEL / 2, 1 - LEVEL / 2])
    return float(low), float(high)


def shown_name(name: str) -> str:
    """The name of a client in tables and sentences: `client 7` where it is only a number."""
    return f"client {name}" if name.isdecimal() else name


def _known(values: Mapping[int, float | None]) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if value is not None}
