"""Results for people: tables for the terminal, the page `docs/reproduction.md`, and the short table of README.md."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from statistics import fmean, stdev
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

import fedrelay as fr
from fedrelay.report.format import NONE, duration, plural
from fedrelay.report.terminal.table_shapes import plain_table
from fedrelay_reproduce import claims as claims_package
from fedrelay_reproduce import criteria, tuning, verdicts
from fedrelay_reproduce.claim import Claim
from fedrelay_reproduce.estimate import Estimate
from fedrelay_reproduce.first_edition import first_edition
from fedrelay_reproduce.results import NOT_RUN, Entry

Claims = Mapping[int, Claim]
Entries = Mapping[int, Entry]

COLOURS = {"holds": "green", "does not hold": "red", "inconclusive": "yellow", NOT_RUN: "dim"}

COSTS = ("client_updates", "bytes", "virtual_seconds")
"""What every comparison shows beside the measures of a claim."""

SIGNS = {">=": "≥", ">": ">", "<=": "≤", "<": "<", "==": "="}

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
"""The page without results. {{rules}}, {{tuning}}, {{results}} and {{words}} are filled in."""


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
            left, right = (side_words(check, side) for side in ("left", "right"))
            interval = f", margin {margin_words(check)}" if check.get("interval") else ""
            yield f"{left} {SIGNS[check['sign']]} {right}{interval}{MARKS[check['verdict']]}"
        else:
            yield str(check["reason"])


def verdict_words(entry: Entry) -> str:
    """The verdict, marked if it is based on little."""
    if entry["verdict"] == NOT_RUN:
        return NOT_RUN
    marks = (["smoke"] if entry["scale"] == "smoke" else []) + (["one seed"] if len(entry["seeds"]) == 1 else [])
    if _is_arithmetic(entry):
        marks.append("arithmetic alone")
    elif _rests_on_weak_checks(entry):
        marks.append("weakly")
    if remark := entry.get("remark"):
        marks.append(remark)
    return f"{entry['verdict']} ({', '.join(marks)})" if marks else str(entry["verdict"])


def _is_arithmetic(entry: Entry) -> bool:
    """Whether all checks follow from definitions."""
    checks = entry.get("checks", ())
    return bool(checks) and all(check.get("arithmetic") for check in checks)


def _rests_on_weak_checks(entry: Entry) -> bool:
    """Whether a claim might be decided otherwise if its weak checks were: it takes all to hold, and one to fail."""
    decisive = [each for each in entry.get("checks", ()) if not each.get("arithmetic")]
    weak = [_is_weak(each) for each in decisive if each["verdict"] == entry["verdict"]]
    return any(weak) if entry["verdict"] == "holds" else bool(weak) and all(weak)


def _is_weak(check: Entry) -> bool:
    """Whether a check is decided although the interval of its margin contains 0."""
    low, high = check.get("interval") or (0.0, 0.0)
    return bool(check["verdict"] != "inconclusive" and low < 0 < high)


def side_words(check: Entry, side: str) -> str:
    """One side of a check over all seeds: `71.3 ± 0.5 %`."""
    return _with_unit(spread(_scaled(check, check[side])), check.get("unit")) if check[side] else NONE


def margin_words(check: Entry) -> str:
    """The mean margin with its 95 % interval: `6.1 [2.0, 10.2] points`."""
    if not check["margins"]:
        return NONE
    interval, unit = check.get("interval"), "points" if check.get("unit") else None
    if not interval or interval[0] == interval[1]:
        return _with_unit(spread(_scaled(check, check["margins"])), unit)
    mean, low, high = _scaled(check, (fmean(check["margins"]), *interval))
    decimals = max(0, 1 - math.floor(math.log10((high - low) / 2)))
    mean, low, high = (round(value, decimals) + 0.0 for value in (mean, low, high))  # no -0.0
    return _with_unit(f"{mean:,.{decimals}f} [{low:,.{decimals}f}, {high:,.{decimals}f}]", unit)


def _with_unit(words: str, unit: str | None) -> str:
    return f"{words} {unit}" if unit else words


def _scaled(check: Entry, values: Sequence[float]) -> list[float]:
    """The numbers of a check as they are shown: shares in percent."""
    return [100 * value for value in values] if check.get("unit") else list(values)


def tally(claims: Claims, entries: Entries) -> str:
    """`Of 29 claims 20 hold, …`."""
    known = [entries.get(number) or _nothing(claim) for number, claim in claims.items()]
    found = Counter("arithmetic" if _is_arithmetic(entry) else entry["verdict"] for entry in known)
    one = {"holds": "holds", "does not hold": "does not", "inconclusive": "is inconclusive", NOT_RUN: "was not run"}
    many = {"holds": "hold", "does not hold": "do not", "inconclusive": "are inconclusive", NOT_RUN: "were not run"}
    parts = [
        f"{found[verdict]} {(one if found[verdict] == 1 else many)[verdict]}{_limits(known, verdict)}"
        for verdict in many
        if found[verdict] or verdict != NOT_RUN
    ]
    rest = "rests" if found["arithmetic"] == 1 else "rest"
    parts += [f"{found['arithmetic']} {rest} on arithmetic alone"] if found["arithmetic"] else []
    ours = any(map(_is_ours, claims.values()))
    return f"Of {found.total()} claims {', '.join(parts)}." + (f" {first_edition().tally}" if ours else "")


def _limits(entries: Sequence[Entry], verdict: str) -> str:
    """What limits a verdict, for the claims that have it: ` (1 of them weakly; claim 24: stand-in data)`."""
    empirical = [entry for entry in entries if entry["verdict"] == verdict and not _is_arithmetic(entry)]
    weak = sum(map(_rests_on_weak_checks, empirical))
    parts = [f"{weak} of them weakly"] if weak else []
    parts += [f"claim {entry['claim']}: {entry['remark']}" for entry in empirical if entry.get("remark")]
    return f" ({'; '.join(parts)})" if parts else ""


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
        "tuning": (inspect.getdoc(tuning) or "").partition("\n\n")[2],
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
    first = _first_verdicts(claims)
    lines = _heads("# | claim | paper | ours | scale | time | verdict", first)
    for number, claim in claims.items():
        entry = entries.get(number) or _nothing(claim)
        ran = entry["verdict"] != NOT_RUN
        costs = (entry["scale"], duration(entry["seconds"])) if ran else (NONE, NONE)
        lines.append(_row(claim, entry, f"[{claim.title}](#claim-{number})", *costs) + first.get(number, ""))
    about = (
        "The time is the wall-clock time of all runs of a claim, each on one core of a machine that was busy with "
        "other work: at most so much is needed, often far less. Claims that share runs count them twice."
    )
    return "\n".join([*lines, "", tally(claims, entries), about, ""])


def _first_verdicts(claims: Claims) -> dict[int, str]:
    """The last cell of a row for each of our claims: its verdict in the first edition."""
    known = first_edition().claims
    return {number: f" {known[number].verdict} |" for number, claim in claims.items() if _is_ours(claim)}


def _heads(heads: str, first: Mapping[int, str]) -> list[str]:
    """The first two lines of a table of claims."""
    columns = f"{heads} | first edition" if first else heads
    return [f"| {columns} |", "|---" * (columns.count("|") + 1) + "|"]


def _row(claim: Claim, entry: Entry, link: str, *costs: str) -> str:
    """Number, claim, paper, ours, what it cost, verdict."""
    known = list(our_numbers(entry)) if entry["verdict"] != NOT_RUN else [NONE]
    left_out = [f"… and {len(known) - MOST_CHECKS} more"] if len(known) > MOST_CHECKS else []
    numbers = "<br>".join([*known[:MOST_CHECKS], *left_out])
    cells = (str(claim.number), link, claim.sections["In short"], numbers, *costs, verdict_words(entry))
    return f"| {' | '.join(map(_cell, cells))} |"


def headline_table(claims: Claims, entries: Entries, page: str) -> str:
    """The most important claims, for README.md; `page` is where all of them are."""
    first = _first_verdicts(claims)
    lines = _heads("# | claim | paper | verdict", first)
    for number in HEADLINES:
        if number in claims:
            claim, link = claims[number], f"[{claims[number].title}]({page}#claim-{number})"
            verdict = verdict_words(entries.get(number) or _nothing(claim))
            cells = (str(number), link, claim.sections["In short"], verdict)
            lines.append(f"| {' | '.join(map(_cell, cells))} |" + first.get(number, ""))
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
    for label in ("Scale small", "Scale medium"):
        lines += [f"{label}: {words[label]}", ""] if label in words else []
    if entry["verdict"] == NOT_RUN:
        ours = " since the first edition" if _is_ours(claim) else ""
        reason = f"**Not run{ours}**" + (f": {entry['reason']}." if entry["reason"] else ".")
        return "\n".join([*lines, reason, "", *_first_edition(claim)])
    verdict = verdict_words(entry)
    lines += [f"**{verdict[0].upper()}{verdict[1:]}**", "", *_checks(entry), "", *_measures(claim, entry), ""]
    lines += [*_tuned(claim, entry)]
    lines += [*(f"- {run}" for run in entry["failed_runs"]), ""] if entry["failed_runs"] else []
    reading = claim.reading(entry["scale"], entry["verdict"])
    lines += [reading, ""] if reading else []
    lines += [f"![curves of claim {claim.number}]({picture})", ""] if picture else []
    return "\n".join([*lines, *_first_edition(claim), _footnote(claim, entry), ""])


def _is_ours(claim: Claim) -> bool:
    """Whether a claim is one of this package."""
    return claim.criterion.__module__.startswith(f"{claims_package.__name__}.")


def _file(claim: Claim) -> str:
    """A link to the file of a claim, if it is one of ours."""
    path = f"src/{claim.criterion.__module__.replace('.', '/')}.py"
    return f" ([criterion](../{path}))" if _is_ours(claim) else ""


def _first_edition(claim: Claim) -> list[str]:
    """What the first edition said, folded up."""
    edition = first_edition()
    before = edition.claims.get(claim.number) if _is_ours(claim) else None
    if before is None:
        return []
    parts = [
        f"<details><summary>First edition, {edition.date}, scale small: {before.verdict}</summary>",
        f"Held if: {before.holds_if}",
        f"Setting: {before.setting}" if before.setting else "",
        f"Numbers: {'; '.join(before.ours)}",
        f"Reading then: {before.reading}" if before.reading else "",
        f"What is different today: {before.changed}" if before.changed else "",
        "</details>",
    ]
    return ["\n\n".join(part for part in parts if part), ""]


def _tuned(claim: Claim, entry: Entry) -> list[str]:
    """What was tuned, by which rule, and what it came to."""
    known = {name: each for name, each in claim.experiments_at(entry["scale"]).items() if name in entry["measured"]}
    compared = [each for each in known.values() if each.kind == "comparison"]
    names = dict.fromkeys(name for each in compared if (name := each.tuning(entry["scale"])))
    if compared and not names:
        return ["Not tuned: the learning rates are those given above for the scale.", ""]
    return [line for name in names for line in (_tuning_words(name, tuning.tuned_settings(name)), "")]


def _tuning_words(name: str, facts: Mapping[str, Any]) -> str:
    """How a tuning was done, and what it chose for every method."""
    methods = "; ".join(
        f"{method} {_chosen(found['settings'])} ({_trials(found)})" for method, found in facts["methods"].items()
    )
    return (
        f"Tuned ([every trial](../src/fedrelay_reproduce/tuned/{name}.json)): learning rates "
        f"{', '.join(f'{rate:g}' for rate in facts['rates'])} and beyond, on validation samples, with seed "
        f"{facts['seed']} and {plural(facts['rounds'], 'round')}. Chosen: {methods}."
    )


def _trials(found: Mapping[str, Any]) -> str:
    """How many trials a method had: `5 trials and 2 whole runs`."""
    whole = found.get("whole")
    return plural(len(found["trials"]), "trial") + (f" and {plural(len(whole), 'whole run')}" if whole else "")


def _chosen(settings: Mapping[str, float]) -> str:
    return ", ".join(f"{path.removeprefix('train.')} {value:g}" for path, value in settings.items())


def _checks(entry: Entry) -> Iterator[str]:
    """Every check with its numbers."""
    yield "| check | left | | right | margin [95 %] | detectable | verdict |"
    yield "|---|---|---|---|---|---|---|"
    for check in entry["checks"]:
        left, right = (side_words(check, side) for side in ("left", "right"))
        reason = f": {check['reason']}" if check["reason"] else " (its interval contains 0)" if _is_weak(check) else ""
        kind = " (arithmetic)" if check.get("arithmetic") else ""
        power = f"{_scaled(check, [check['detectable']])[0]:.2g}" if check.get("detectable") else NONE
        sides = (check["text"] + kind, left, SIGNS[check["sign"]], right)
        cells = (*sides, margin_words(check), power, f"{check['verdict']}{reason}")
        yield f"| {' | '.join(map(_cell, cells))} |"


def _measures(claim: Claim, entry: Entry) -> Iterator[str]:
    """What else was measured, one table for each experiment."""
    for experiment, measured in entry["measured"].items():
        known = {each for of in measured.values() for each, values in of.items() if any(v is not None for v in values)}
        wanted = dict.fromkeys([*claim.shown, *COSTS, *criteria.EQUAL_COSTS])
        shown = [measure for measure in wanted if measure in known]
        if not shown:
            continue
        yield ""
        added = ", added after the verdict" if experiment in claim.supplements else ""
        yield f"| {experiment.replace('_', ' ')}{added} | {' | '.join(map(_heading, shown))} |"
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
    if measure in criteria.PERCENT:
        return f"{measure.replace('_', ' ')}, %"
    return "MB" if measure == "bytes" else measure.replace("_", " ")


def _measure(name: str, values: Sequence[float | None]) -> str:
    factor = 100 if name in criteria.PERCENT else 1e-6 if name == "bytes" else 1
    known = [factor * value for value in values if value is not None]
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
