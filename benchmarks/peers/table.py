"""From measured times to ratios, goals and tables. Pure: no clock, no processes, nothing but arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

Measured = Mapping[tuple[str, str], Sequence[float]]
"""(contender, case) → what was measured, one value for each repetition."""

FEDRELAY = "FedRelay"
CHAINS, ONE_WORKER = "FedRelay FedSeq, two workers", "FedRelay FedSeq, one worker"
BARE, BARE_ONE = "bare PyTorch, all cores", "bare PyTorch, one core"
FLOWER, NVFLARE = "Flower", "NVFlare cyclic"
PFL = ("pfl, one process per core", "pfl, one process")
PFL_BY_HAND = "pfl, one process per core, channels-last by hand"
HANDOVER = "handover"
"""Not a contender: the share of a hop that is spent between clients."""


@dataclass(frozen=True)
class Spread:
    """The median of some values, and how far they lie apart."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Sum up at least one value."""
        ordered = sorted(values)
        return cls(median(ordered), ordered[0], ordered[-1])

    def shown(self, unit: str = "") -> str:
        """`4.2× (3.9–4.4)`."""
        middle, least, most = (brief(value) for value in (self.middle, self.least, self.most))
        return f"{middle}{unit} ({least}–{most})"

    def times(self, factor: float) -> Spread:
        """In another unit."""
        return Spread(factor * self.middle, factor * self.least, factor * self.most)


@dataclass(frozen=True)
class Goal:
    """How many times longer others should take than `than`; of several others the fastest counts.

    Where there is no `than`, a share that is at most the bound. Without a bound, a ratio to judge others by: nothing
    that runs on all cores can gain more from them than loops that only train.
    """

    title: str
    case: str
    others: tuple[str, ...]
    bound: float | None
    than: str | None = FEDRELAY

    def measured(self, times: Measured) -> Spread | None:
        """The ratio of every repetition, or nothing where somebody was not measured.

        Without the fastest of several others the ratio would look better than it is, so all of them are needed.
        """
        needed = (*self.others, self.than) if self.than else self.others
        if not all(times.get((contender, self.case)) for contender in needed):
            return None
        fastest = min((times[other, self.case] for other in self.others), key=median)
        return Spread.of(ratios(fastest, times[self.than, self.case]) if self.than else fastest)

    def verdict(self, spread: Spread) -> str:
        """Whether the median keeps the bound."""
        if self.bound is None:
            return ""
        kept = spread.middle <= self.bound if self.than is None else spread.middle >= self.bound
        return "met" if kept else "**not met**"

    def row(self, times: Measured) -> tuple[str, ...]:
        """Title, bound, what was measured, and the verdict."""
        sign, unit, factor = ("≤", " %", 100) if self.than is None else ("≥", "×", 1)
        bound = "" if self.bound is None else f"{sign} {brief(factor * self.bound)}{unit}"
        spread = self.measured(times)
        if spread is None:
            return self.title, bound, "not measured", "—"
        return self.title, bound, spread.times(factor).shown(unit), self.verdict(spread)


GOALS = (
    Goal("convolutional: Flower / FedRelay", "conv", (FLOWER,), 4),
    Goal("convolutional: pfl / FedRelay", "conv", PFL, 2.5),
    Goal("convolutional: bare PyTorch on all cores / FedRelay", "conv", (BARE,), 0.9),
    Goal("dense, 10 clients: Flower / FedRelay", "dense", (FLOWER,), 80),
    Goal("dense, 10 clients: pfl / FedRelay", "dense", PFL, 10),
    Goal("dense, 100 clients: pfl / FedRelay", "dense-100", PFL, 20),
    Goal("FedSeq, convolutional: handover as a share of a hop", "conv", (HANDOVER,), 0.02, than=None),
    Goal("FedSeq, convolutional: one worker / two workers", "conv", (ONE_WORKER,), 1.8, than=CHAINS),
    Goal("the machine itself, convolutional: bare PyTorch on one core / on all", "conv", (BARE_ONE,), None, than=BARE),
    Goal("the machine itself, dense: bare PyTorch on one core / on all", "dense", (BARE_ONE,), None, than=BARE),
    Goal("hop of NVFlare's cyclic workflow / hop with one worker", "conv", (NVFLARE,), 30, than=ONE_WORKER),
)


def ratios(theirs: Sequence[float], ours: Sequence[float]) -> list[float]:
    """Their time over ours, repetition by repetition: what slows the whole machine for a while cancels out."""
    return [their / our for their, our in zip(theirs, ours, strict=False)]


def goals_table(times: Measured, goals: Sequence[Goal] = GOALS) -> str:
    """All goals and whether they are met."""
    return markdown(("ratio", "goal", "measured", "verdict"), (goal.row(times) for goal in goals))


def times_table(times: Measured, cases: Mapping[str, str]) -> str:
    """Milliseconds for one client update: a row for each contender, a column for each case (name → title)."""
    contenders = dict.fromkeys(contender for contender, _ in times if contender != HANDOVER)

    def rows() -> Iterator[tuple[str, ...]]:
        for contender in contenders:
            cells = (times.get((contender, case)) for case in cases)
            yield contender, *(Spread.of(values).times(1000).shown() if values else "" for values in cells)

    return markdown(("ms per client update", *cases.values()), rows())


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def brief(value: float) -> str:
    """Three digits, more only before the point."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
