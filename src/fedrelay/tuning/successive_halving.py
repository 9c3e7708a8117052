"""Successive halving of one method's trials, with more trials beyond the learning rates if the best is at their edge.

All trials of a rung are compared at once, after the last of them has arrived. So the choice depends on the scores
alone: not on the number of cores, nor on the order in which trials end, nor on interruptions.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from fedrelay.tuning.score import TrialScore
from fedrelay.tuning.search_space import Point, SearchSpace


@dataclass(frozen=True)
class Trial:
    """A configuration, and its scores at the rungs that it has reached."""

    number: int
    point: Point
    scores: tuple[TrialScore, ...] = ()
    extension: bool = False
    """Whether it is beyond the learning rates of the search space; it goes to the last rung at once."""

    @property
    def score(self) -> TrialScore:
        """The score at the highest rung so far."""
        return self.scores[-1]


@dataclass(frozen=True)
class WantedScore:
    """A trial whose score at a rung is wanted."""

    trial: Trial
    rung: int


@dataclass(frozen=True)
class Choice:
    """All trials of a method, and the best of those that came to the end."""

    trials: tuple[Trial, ...]
    best: Trial
    at_edge: bool
    """Whether the best learning rate is still the smallest or largest after all extensions."""


Search = Generator[list[WantedScore], Sequence[TrialScore], Choice]
"""Yields the scores that are wanted next, is sent them in the same order, and returns the choice."""


def search(space: SearchSpace, rungs: int, extensions: int, *, higher_is_better: bool) -> Search:
    """Find the best point of a search space.

    Args:
        space: The points.
        rungs: How often trials are compared; after each but the last, the better half goes on.
        extensions: The most trials beyond the learning rates of the space.
        higher_is_better: How values of the metric are read.
    """
    trials = [Trial(number, point) for number, point in enumerate(space.points(), 1)]
    going = list(trials)
    for rung in range(rungs):
        scores = yield [WantedScore(trial, rung) for trial in going]
        scored = [replace(trial, scores=(*trial.scores, score)) for trial, score in zip(going, scores, strict=True)]
        for trial in scored:
            trials[trial.number - 1] = trial
        ranked = sorted(scored, key=lambda trial: trial.score.rank(higher_is_better))
        going = ranked if rung == rungs - 1 else ranked[: (len(ranked) + 1) // 2]
    best = going[0]
    for _ in range(extensions if best.score.value is not None else 0):
        point = space.beyond(best.point, (trial.point for trial in trials))
        if point is None:
            break
        new = Trial(len(trials) + 1, point, extension=True)
        [score] = yield [WantedScore(new, rungs - 1)]
        trials.append(replace(new, scores=(score,)))
        best = min(best, trials[-1], key=lambda trial: trial.score.rank(higher_is_better))
    at_edge = space.beyond(best.point, (trial.point for trial in trials)) is not None
    return Choice(tuple(trials), best, at_edge)
