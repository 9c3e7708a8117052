"""The page of the contest: who won which cell, by how much, and how certain that is."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from contest_cells import FROZEN_ON

from fedrelay.metrics.paired_differences import PairedDifference, more_than_chance

BUDGETS = {"updates": "client updates", "bytes": "bytes", "time": "virtual time"}
OURS = "relay"
"""The entrant that is judged; the others of ours are rows of their own."""

Scores = Mapping[str, Sequence[float | None]]
Cells = Sequence[Mapping[str, Any]]


def mean(scores: Sequence[float | None]) -> float:
    """The mean score in per cent; a run that diverged counts as nothing learned."""
    return 100 * statistics.fmean(score or 0.0 for score in scores)


def best_rival(cell: Mapping[str, Any], budget: str) -> str:
    """The entrant that is not ours with the best mean on test samples: the hardest one to beat."""
    scores: Scores = cell["scores"][budget]
    return max((name for name in scores if name not in cell["ours"]), key=lambda name: mean(scores[name]))


def lead(cell: Mapping[str, Any], budget: str) -> PairedDifference:
    """How many points we are ahead of the best rival, seed by seed."""
    scores: Scores = cell["scores"][budget]
    pairs = zip(scores[OURS], scores[best_rival(cell, budget)], strict=True)
    return PairedDifference(tuple(100 * ((one or 0.0) - (two or 0.0)) for one, two in pairs))


def outcomes(cells: Cells, budget: str) -> list[str]:
    """Won or tied by two standard errors; lost if a deficit survives Holm's correction over all cells."""
    leads = [lead(cell, budget) for cell in cells]
    certain = more_than_chance(leads)
    found = []
    for each, is_certain in zip(leads, certain, strict=True):
        if each.mean > 2 * each.standard_error:
            found.append("won")
        elif each.mean < 0 and is_certain:
            found.append("lost")
        else:
            found.append("tied" if each.mean >= -2 * each.standard_error else "behind")
    return found


def page(cells: Cells) -> Iterator[str]:
    """docs/contest.md."""
    yield "# The contest"
    yield ""
    yield textwrap.fill(
        "Made by `benchmarks/contest.py --write`; its first lines say how. Test scores in per cent, means over seeds. "
        "The rival of a cell is the entrant besides ours with the best mean on its test samples. Won: ahead by more "
        "than two standard errors of the paired difference. Behind: a deficit of more than that. Lost: a deficit that "
        "survives Holm's correction over all cells of the table. A run that diverged counts as 0. `relay`, its "
        f"defaults and the rules of the contest were shaped on the cells for design and settled on {FROZEN_ON}, before "
        "any frozen cell was run; only frozen cells are evidence.",
        120,
    )
    yield from ("", "![Leads over the best rival, and all finalists, by cell](contest.png)")
    for frozen, title in ((False, "Cells for design"), (True, "Frozen cells")):
        chosen = [cell for cell in cells if cell["frozen"] == frozen]
        if chosen:
            yield from ("", f"## {title}")
            yield from ("", *_goals(chosen))
            for budget, words in BUDGETS.items():
                yield from ("", f"### Equal {words}", "", *_table(chosen, budget))
            yield from ("", "### One method for all cells", "", *_shortfalls(chosen))
    yield from ("", "## All finalists, equal client updates", "")
    for cell in cells:
        yield from (f"**{cell['title']}** ({cell['metric']})", "", *_finalists(cell), "")


AT_THE_TOP, LEAST_SHARE_AT_THE_TOP = ("won", "tied"), 0.8
STRONG_SKEW, LEAST_GAIN = 0.1, 2.0
"""Dirichlet's α up to which a gain over FedSeq of at least this many points was the goal."""


def _gains_over_fedseq(cells: Cells) -> list[float]:
    """How many points we are ahead of tuned FedSeq in each cell with strong skew, at equal client updates."""
    strong = [cell["scores"]["updates"] for cell in cells if cell["alpha"] is not None and cell["alpha"] <= STRONG_SKEW]
    return [mean(scores[OURS]) - mean(scores["fedseq"]) for scores in strong if "fedseq" in scores]


def _goals(cells: Cells) -> Iterator[str]:
    """What was hoped for before the first run, and what came of it."""
    results = {budget: outcomes(cells, budget) for budget in ("updates", "bytes")}
    pairs = list(zip(*results.values(), strict=True))
    lost = sum("lost" in pair for pair in pairs)
    top = sum(all(each in AT_THE_TOP for each in pair) for pair in pairs)
    gains = _gains_over_fedseq(cells)
    yield "| goal, at equal client updates and at equal bytes | found | |"
    yield "|---|---:|---|"
    yield f"| no cell lost | {lost} lost | {_met(lost == 0)} |"
    share = f"{100 * LEAST_SHARE_AT_THE_TOP:g} %"
    met = _met(top >= LEAST_SHARE_AT_THE_TOP * len(cells))
    yield f"| won or tied in at least {share} of the cells | {top} of {len(cells)} | {met} |"
    if gains:
        gain, wanted = statistics.median(gains), f"{LEAST_GAIN:g} points"
        words = f"median lead over tuned FedSeq at α ≤ {STRONG_SKEW:g} of at least {wanted}, at equal updates"
        yield f"| {words} | {gain:+.1f} | {_met(gain >= LEAST_GAIN)} |"


def _met(is_met: bool) -> str:
    return "met" if is_met else "**not met**"


def _table(cells: Cells, budget: str) -> Iterator[str]:
    yield "| cell | relay | best rival | | lead, points (95 %) | |"
    yield "|---|---:|---|---:|---:|---|"
    results = outcomes(cells, budget)
    for cell, outcome in zip(cells, results, strict=True):
        scores, rival, ahead = cell["scores"][budget], best_rival(cell, budget), lead(cell, budget)
        low, high = ahead.interval or (float("nan"), float("nan"))
        yield (
            f"| {cell['title']} | {mean(scores[OURS]):.1f} | {rival} | {mean(scores[rival]):.1f} | "
            f"{ahead.mean:+.1f} ({low:+.1f} … {high:+.1f}) | {outcome} |"
        )
    counted = ", ".join(f"{results.count(each)} {each}" for each in ("won", "tied", "behind", "lost"))
    yield from ("", f"Of {len(cells)} cells: {counted}.")


SHOWN_SHORTFALLS = 12


def shortfalls(cells: Cells) -> dict[str, list[float]]:
    """Entrant → how many points it is below the best of each cell in the screening; the smallest mean first."""
    scores = [{name: score for name, score, *_ in cell["screened"]} for cell in cells]
    names = dict.fromkeys(name for of_cell in scores for name in of_cell)
    found = {name: [100 * (max(each.values()) - each.get(name, 0.0)) for each in scores] for name in names}
    return dict(sorted(found.items(), key=lambda each: statistics.fmean(each[1])))


def _shortfalls(cells: Cells) -> Iterator[str]:
    yield textwrap.fill(
        f"How far below the best entrant of a cell each one is if it is used in all of them: the "
        f"{SHOWN_SHORTFALLS} with the smallest mean, and FedAvg and FedSeq. On the validation samples of the "
        "screening, with the settings tuned in each cell; one that always diverged has 0 there.",
        120,
    )
    yield from ("", "| entrant | mean shortfall, points | largest |", "|---|---:|---:|")
    for place, (name, of_cells) in enumerate(shortfalls(cells).items()):
        if place < SHOWN_SHORTFALLS or name in ("fedavg", "fedseq"):
            yield f"| {name} | {statistics.fmean(of_cells):.1f} | {max(of_cells):.1f} |"


def _finalists(cell: Mapping[str, Any]) -> Iterator[str]:
    screened = {name: (score, settings, trials) for name, score, settings, trials in cell["screened"]}
    yield "| entrant | test score | validation score, screening | chosen settings | trials |"
    yield "|---|---:|---:|---|---:|"
    scores: Scores = cell["scores"]["updates"]
    for name in sorted(scores, key=lambda name: mean(scores[name]), reverse=True):
        validation, settings, trials = screened[name]
        spread = 100 * statistics.stdev(score or 0.0 for score in scores[name])
        chosen = ", ".join(f"{path.rpartition('.')[2]} {value:g}" for path, value in settings.items())
        yield f"| {name} | {mean(scores[name]):.1f} ± {spread:.1f} | {100 * validation:.1f} | {chosen} | {trials} |"
