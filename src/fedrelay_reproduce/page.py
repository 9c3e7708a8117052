"""Results for people: tables for the terminal, the page `docs/reproduction.md`, and the short table of README.md."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from statistics import fmean, stdev

from rich.console import Group, RenderableType
from rich.text import Text

import fedrelay as fr
from fedrelay.report.format import NONE, duration, plural
from fedrelay.report.terminal.run_tables import plain_table
from fedrelay_reproduce import claims as claims_package
from fedrelay_reproduce import criteria, verdicts
from fedrelay_reproduce.claim import Claim
from fedrelay_reproduce.estimate import Estimate
from fedrelay_reproduce.results import NOT_RUN, Entry

Claims = Mapping[int, Claim]
Entries = Mapping[int, Entry]

COLOURS = {"holds": "green", "does not hold": "red", "inconclusive": "yellow", NOT_RUN: "dim"}

PERCENT = {
    "accuracy", "accuracy_last", "accuracy_best", "f1", "accuracy_classes", "oscillation", "covered_classes",
    "model_60", "model_70", "model_80",
}  # fmt: skip
"""Measures that are shown in percent."""

MARKS = {"holds": "", "does not hold": " ✗", "inconclusive": " ?"}
"""What follows the numbers of a check."""

LEAST_DEVIATION = 1e-6
"""A deviation below this share of the mean is rounding."""

MOST_CHECKS = 4
"""How many checks of a claim the table of all claims shows."""

HEADLINES = (1, 2, 10, 14, 15, 17, 18, 19, 21, 22, 25)
"""The claims of the short table."""

BEGIN, END = "<!-- claims: written by fedrelay reproduce --write -->", "<!-- end of claims -->"
"""The short table is written between these marks."""

FUNCTIONS = (
    "rounds_to", "updates_to", "time_to", "speed_up", "least", "greatest", "mean", "spread", "all_of", "any_of",
    "negated",
)  # fmt: skip

TEMPLATE = files(__package__).joinpath("page.md")
"""The page without results. {{rules}}, {{results}} and {{words}} are filled in."""


def claims_table(claims: Sequence[Claim]) -> RenderableType:
    """All claims in one line each."""
    table = plain_table("", "claim", "holds if")
    for claim in claims:
        table.add_row(str(claim.number), claim.title, Text(claim.sections["Holds if"], style="dim"))
    return table


def estimate_table(estimates: Sequence[Estimate], processes: int) -> RenderableType:
    """How long every claim will take."""
    table = plain_table("claim", "runs", "time, one core", numeric=True)
    for each in estimates:
        claim, left = each.claim.claim, each.runs
        title = f"{claim.number:>2}  {claim.title}"
        if each.claim.obstacle is not None:
            table.add_row(title, NONE, Text("not possible", "dim"))
        else:
            table.add_row(title, str(left or "done"), duration(each.seconds) if left else NONE)
    total = sum(each.seconds for each in estimates)
    hint = f"  all together about {duration(total / processes)} on {plural(processes, 'core')}"
    return Group(table, Text(), Text(hint))


def results_table(claims: Claims, entries: Sequence[Entry]) -> RenderableType:
    """Claim, paper, ours, verdict."""
    table = plain_table("claim", "paper", "ours", "verdict")
    for entry in entries:
        claim = claims[entry["claim"]]
        table.add_row(
            f"{claim.number:>2}  {claim.title}",
            Text(claim.sections["In short"], style="dim"),
            "\n".join(our_numbers(entry)),
            Text(verdict_words(entry), style=COLOURS[entry["verdict"]]),
        )
    return table


def our_numbers(entry: Entry) -> Iterator[str]:
    """Both sides of every check, or why there are none."""
    if entry["verdict"] == NOT_RUN:
        yield entry["reason"] or NONE
    for check in entry.get("checks", ()):
        if check["margins"]:
            yield f"{spread(check['left'])} {check['sign']} {spread(check['right'])}{MARKS[check['verdict']]}"
        else:
            yield str(check["reason"])


def verdict_words(entry: Entry) -> str:
    """The verdict, marked if it is based on little."""
    if entry["verdict"] == NOT_RUN:
        return NOT_RUN
    marks = (["smoke"] if entry["scale"] == "smoke" else []) + (["one seed"] if len(entry["seeds"]) == 1 else [])
    return f"{entry['verdict']} ({', '.join(marks)})" if marks else str(entry["verdict"])


def tally(claims: Claims, entries: Entries) -> str:
    """`Of 29 claims 20 hold, …`."""
    found = Counter(entries[number]["verdict"] if number in entries else NOT_RUN for number in claims)
    words = {"holds": "hold", "does not hold": "do not", "inconclusive": "are inconclusive", NOT_RUN: "were not run"}
    parts = [f"{found[verdict]} {text}" for verdict, text in words.items() if found[verdict] or verdict != NOT_RUN]
    return f"Of {found.total()} claims {', '.join(parts)}."


def spread(values: Sequence[float]) -> str:
    """Mean ± deviation with two digits of the deviation, or the number itself if all agree."""
    mean, deviation = fmean(values), stdev(values) if len(values) > 1 else 0.0
    if deviation <= abs(mean) * LEAST_DEVIATION:
        return _number(mean)
    decimals = max(0, 1 - math.floor(math.log10(deviation)))
    return f"{mean:,.{decimals}f} ± {deviation:,.{decimals}f}"


def reproduction_page(claims: Claims, entries: Entries, pictures: Mapping[int, str]) -> str:
    """The page: rules, a table of all claims, then claim by claim; `pictures` are addresses by claim."""
    sections = [_section(claim, entries.get(number), pictures.get(number)) for number, claim in claims.items()]
    parts = {
        "rules": inspect.getdoc(verdicts) or "",
        "results": "\n".join([_overview(claims, entries), *sections]),
        "words": _vocabulary(),
    }
    page = TEMPLATE.read_text(encoding="utf-8")
    for name, text in parts.items():
        page = page.replace(f"{{{{{name}}}}}", text)
    return page


def _vocabulary() -> str:
    """Functions and measures for criteria."""
    functions = {name: (inspect.getdoc(getattr(criteria, name)) or "").rstrip(".") for name in FUNCTIONS}
    lines = ["| function | what it is |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in functions.items())]
    lines += ["", "| measure | what it is |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{name}` | {text} |" for name, text in criteria.MEASURES.items())])


def _overview(claims: Claims, entries: Entries) -> str:
    lines = ["| # | claim | paper | ours | scale | time | verdict |", "|---|---|---|---|---|---|---|"]
    for number, claim in claims.items():
        entry = entries.get(number) or _nothing(claim)
        ran = entry["verdict"] != NOT_RUN
        costs = (entry["scale"], duration(entry["seconds"])) if ran else (NONE, NONE)
        lines.append(_row(claim, entry, f"[{claim.title}](#claim-{number})", *costs))
    about = (
        "The time is the wall-clock time of all runs of a claim, each on one core of a machine that also did other "
        "work; claims that share runs count them twice."
    )
    return "\n".join([*lines, "", tally(claims, entries), about, ""])


def _row(claim: Claim, entry: Entry, link: str, *costs: str) -> str:
    """Number, claim, paper, ours, what it cost, verdict."""
    known = list(our_numbers(entry)) if entry["verdict"] != NOT_RUN else [NONE]
    left_out = [f"… and {len(known) - MOST_CHECKS} more"] if len(known) > MOST_CHECKS else []
    numbers = "<br>".join([*known[:MOST_CHECKS], *left_out])
    cells = (str(claim.number), link, claim.sections["In short"], numbers, *costs, verdict_words(entry))
    return f"| {' | '.join(map(_cell, cells))} |"


def headline_table(claims: Claims, entries: Entries, page: str) -> str:
    """The most important claims, for README.md; `page` is where all of them are."""
    lines = ["| # | claim | paper | ours | verdict |", "|---|---|---|---|---|"]
    for number in HEADLINES:
        if number in claims:
            claim = claims[number]
            lines.append(_row(claim, entries.get(number) or _nothing(claim), f"[{claim.title}]({page}#claim-{number})"))
    return "\n".join([*lines, "", f"{tally(claims, entries)} [All of them]({page}).", ""])


def with_headlines(text: str, table: str) -> str:
    """The page with the table between its marks."""
    if not (text.count(BEGIN) == text.count(END) == 1 and text.index(BEGIN) < text.index(END)):
        raise fr.SpecError(f"the table of claims needs one {BEGIN} and one {END} after it")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}{END}{rest.partition(END)[2]}"


def _section(claim: Claim, entry: Entry | None, picture: str | None) -> str:
    entry = entry or _nothing(claim)
    words = claim.sections
    lines = [f"## Claim {claim.number}", "", f"**{claim.title}** — {words['Source']}", ""]
    lines += [f"Published: {words['Published']}", "", f"Holds if: {words['Holds if']}{_file(claim)}", ""]
    lines += [f"Scale small: {words['Scale small']}", ""] if "Scale small" in words else []
    if entry["verdict"] == NOT_RUN:
        return "\n".join([*lines, f"**Not run**{': ' + entry['reason'] if entry['reason'] else '.'}", ""])
    lines += [f"**{verdict_words(entry).capitalize()}**", "", *_checks(entry), "", *_measures(claim, entry), ""]
    lines += [*(f"- {run}" for run in entry["failed_runs"]), ""] if entry["failed_runs"] else []
    reading = claim.reading(entry["scale"], entry["verdict"])
    lines += [reading, ""] if reading else []
    lines += [f"![curves of claim {claim.number}]({picture})", ""] if picture else []
    return "\n".join([*lines, _footnote(claim, entry), ""])


def _file(claim: Claim) -> str:
    """A link to the file of a claim, if it is one of ours."""
    package, _, name = claim.criterion.__module__.rpartition(".")
    path = f"src/{package.replace('.', '/')}/{name}.py"
    return f" ([criterion](../{path}))" if package == claims_package.__name__ else ""


def _checks(entry: Entry) -> Iterator[str]:
    """Every check with its numbers."""
    yield "| check | left | | right | margin | verdict |"
    yield "|---|---|---|---|---|---|"
    for check in entry["checks"]:
        left, right, margin = (spread(check[side]) if check[side] else NONE for side in ("left", "right", "margins"))
        reason = f": {check['reason']}" if check["reason"] else ""
        cells = (check["text"], left, check["sign"], right, margin, f"{check['verdict']}{reason}")
        yield f"| {' | '.join(map(_cell, cells))} |"


def _measures(claim: Claim, entry: Entry) -> Iterator[str]:
    """What else was measured, one table for each experiment."""
    for experiment, measured in entry["measured"].items():
        known = {each for of in measured.values() for each, values in of.items() if any(v is not None for v in values)}
        shown = [measure for measure in claim.shown if measure in known]
        if not shown:
            continue
        yield ""
        yield f"| {experiment.replace('_', ' ')} | {' | '.join(map(_heading, shown))} |"
        yield "|---|" + "---:|" * len(shown)
        for name, values in measured.items():
            yield f"| {name} | {' | '.join(_measure(each, values.get(each, ())) for each in shown)} |"


def _footnote(claim: Claim, entry: Entry) -> str:
    scale = "" if entry["scale"] == "small" else f" --scale {entry['scale']}"
    known = entry["versions"]
    versions = ", ".join(f"{name} {known[name]}" for name in ("fedrelay", "torch", "python") if name in known)
    command = f"`fedrelay reproduce {claim.number}{scale} --seeds {len(entry['seeds'])}`"
    return f"<sub>{command} · its runs took {duration(entry['seconds'])} · {versions}</sub>"


def _nothing(claim: Claim) -> Entry:
    return {"claim": claim.number, "verdict": NOT_RUN, "reason": None, "scale": "small"}


def _heading(measure: str) -> str:
    return measure.replace("_", " ") + (", %" if measure in PERCENT else "")


def _measure(name: str, values: Sequence[float | None]) -> str:
    known = [100 * value if name in PERCENT else value for value in values if value is not None]
    if not known:
        return "no result" if values else NONE
    return spread(known) + ("" if len(known) == len(values) else f" ({len(known)} of {len(values)} runs)")


def _number(value: float) -> str:
    """Four digits, or no fraction where there is none."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 10000 else f"{value:.4g}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
