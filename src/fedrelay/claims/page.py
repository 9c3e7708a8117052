"""What came of claims, for people: tables for the terminal and the page `docs/reproduction.md`."""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.claims import verdicts
from fedrelay.claims.claim import Claim, Claims, Scale
from fedrelay.claims.estimate import Estimate
from fedrelay.claims.record import NOT_RUN, Entry
from fedrelay.claims.subjects import FUNCTIONS, MEASURES
from fedrelay.errors import SpecError
from fedrelay.report.format import NONE, duration, plural
from fedrelay.report.tables import plain_table

COLOURS = {"holds": "green", "does not hold": "red", "inconclusive": "yellow", NOT_RUN: "dim"}

SHARES = {
    "accuracy", "accuracy_last", "accuracy_best", "f1", "accuracy_classes", "oscillation", "covered_classes",
    "model_60", "model_70", "model_80",
}  # fmt: skip
"""Measures that are shown in percent."""

MARKS = {"holds": "", "does not hold": " ✗", "inconclusive": " ?"}
"""What stands behind a comparison."""

LEAST_DEVIATION = 1e-6
"""A smaller share of the mean is rounding."""

MOST_NUMBERS = 4
"""So many comparisons of a claim stand in the table of all claims."""

HEADLINES = (1, 2, 10, 14, 15, 17, 18, 19, 21, 22, 25)
"""The claims of the short table."""

BEGIN, END = "<!-- claims: written by fedrelay reproduce --write -->", "<!-- end of claims -->"
"""Between these marks of a page stands the short table."""

HEAD = """# Reproduction

What the papers behind the methods claim, and whether it can be seen on small experiments. Every claim is a file in
`examples/claims`, with the published figures, the experiment and the criterion. Only orders and ratios are claimed:
data, models and numbers of rounds are smaller than in the papers, so absolute figures differ.

    fedrelay reproduce --list              # all claims
    fedrelay reproduce 1 2 --scale smoke   # minutes: does it run at all? Its verdicts mean little
    fedrelay reproduce 1 2                 # scale small: hours on two cores for all
    fedrelay reproduce 1 --scale full --device cuda   # the papers' own settings, where their data can be had
    fedrelay reproduce --write docs        # this page

`fedrelay reproduce --dry-run` says how long everything takes on your machine. Runs lie in the folder `reproduction`;
what was interrupted goes on with the same command.
"""

TAIL = """## Own claims

`fedrelay reproduce --from FOLDER` runs your own. A claim is a YAML file:

```yaml
claim: 1
title: FedSeq is better than FedAvg
sources: somebody's paper
paper: 82 against 71 %                  # for the table
published: the figures in full
criterion: when it holds, in words
holds_if: skewed.fedseq.accuracy_last > skewed.fedavg.accuracy_last
experiments:
  skewed:                               # settings of a comparison, at scale small
    methods: [fedavg, fedseq]
    data: {name: digits, clients: 100, alpha: 0}
    rounds: 60
    scales:
      smoke: {rounds: 5}                # what another scale says differently
  milder: {like: 1/skewed, data: {alpha: 1}}   # the same but for this; `use: 1/skewed` shares the runs
```

`kind: group` forms groups in several `ways`, `kind: cost` counts transfers of a round, `kind: spy` has a client learn
to draw others' images. In criteria a method is called by its label, with `_` for what is no letter or digit, after the
experiment where several have it, as in `skewed.fedseq.accuracy`. They may compare (`>=`, `>`, `<=`, `<`, `==`),
calculate (`+ - * /`), join by `and`, `or` and `not`, and call:

"""


def claims_table(claims: Sequence[Claim]) -> RenderableType:
    """All claims in one line each."""
    table = plain_table("", "claim", "holds if")
    for claim in claims:
        table.add_row(str(claim.claim), claim.title, Text(claim.criterion, style="dim"))
    return table


def estimate_table(estimates: Sequence[Estimate], processes: int) -> RenderableType:
    """How long every claim will take."""
    table = plain_table("claim", "runs", "time, one core", numeric=True)
    for each in estimates:
        title, left = f"{each.case.claim.claim:>2}  {each.case.claim.title}", each.runs
        if each.case.obstacle is not None:
            table.add_row(title, NONE, Text("not possible", "dim"))
        else:
            table.add_row(title, str(left or "done"), duration(each.seconds) if left else NONE)
    total = sum(each.seconds for each in estimates)
    hint = f"  all together about {duration(total / processes)} on {plural(processes, 'core')}"
    return Group(table, Text(), Text(hint))


def results_table(claims: Mapping[int, Claim], entries: Sequence[Entry]) -> RenderableType:
    """Claim, paper, ours, verdict."""
    table = plain_table("claim", "paper", "ours", "verdict")
    for entry in entries:
        claim = claims[entry["claim"]]
        table.add_row(
            f"{claim.claim:>2}  {claim.title}",
            Text(claim.paper, style="dim"),
            "\n".join(ours(entry)),
            Text(verdict_words(entry), style=COLOURS[entry["verdict"]]),
        )
    return table


def ours(entry: Entry) -> Iterator[str]:
    """Our numbers: both sides of every comparison, or why there are none."""
    if entry["verdict"] == NOT_RUN:
        yield entry["reason"] or NONE
    for finding in entry.get("findings", ()):
        if finding["margins"]:
            left, sign, right = spread(finding["left"]), finding["text"], spread(finding["right"])
            yield f"{left} {_sign(sign)} {right}{MARKS[finding['verdict']]}"
        else:
            yield str(finding["reason"])


def verdict_words(entry: Entry) -> str:
    """The verdict, marked where it rests on little."""
    if entry["verdict"] == NOT_RUN:
        return NOT_RUN
    marks = (["smoke"] if entry["scale"] == "smoke" else []) + (["one seed"] if len(entry["seeds"]) == 1 else [])
    return f"{entry['verdict']} ({', '.join(marks)})" if marks else str(entry["verdict"])


def tally(claims: Claims, entries: Mapping[int, Entry]) -> str:
    """`Of 29 claims 20 hold, …`."""
    found = Counter(entries[claim.claim]["verdict"] if claim.claim in entries else NOT_RUN for claim in claims)
    words = {"holds": "hold", "does not hold": "do not", "inconclusive": "are inconclusive", NOT_RUN: "were not run"}
    parts = [f"{found[verdict]} {text}" for verdict, text in words.items() if found[verdict] or verdict != NOT_RUN]
    return f"Of {found.total()} claims {', '.join(parts)}."


def spread(values: Sequence[float]) -> str:
    """Mean ± deviation with two digits of the latter, or the number itself where all agree."""
    mean, deviation = fmean(values), stdev(values) if len(values) > 1 else 0.0
    if deviation <= abs(mean) * LEAST_DEVIATION:
        return _number(mean)
    decimals = max(0, 1 - math.floor(math.log10(deviation)))
    return f"{mean:,.{decimals}f} ± {deviation:,.{decimals}f}"


def reproduction_page(claims: Claims, entries: Mapping[int, Entry], pictures: Mapping[int, str]) -> str:
    """The page: rules, one table of all claims, then claim by claim; `pictures` are addresses by claim."""
    rules = inspect.getdoc(verdicts) or ""
    head, _, numbered = rules.partition("\n\n")
    parts = [HEAD, "## Rules\n", f"{head}\n", f"{numbered}\n", "## Verdicts\n", _overview(claims, entries)]
    for claim in claims:
        parts.append(_section(claim, entries.get(claim.claim), pictures.get(claim.claim)))
    return "\n".join([*parts, TAIL + _words()])


def _words() -> str:
    """What criteria may call and measure."""
    functions = (f"| `{name}` | {function.about} |" for name, function in FUNCTIONS.items())
    measures = (f"| `{name}` | {about} |" for name, about in MEASURES.items())
    lines = [
        "| function | what it is |",
        "|---|---|",
        *functions,
        "",
        "| measure | what it is |",
        "|---|---|",
        *measures,
    ]
    return "\n".join(lines) + "\n"


def _overview(claims: Claims, entries: Mapping[int, Entry]) -> str:
    lines = ["| # | claim | paper | ours | scale | time | verdict |", "|---|---|---|---|---|---|---|"]
    for claim in claims:
        entry = entries.get(claim.claim) or _nothing(claim)
        ran = entry["verdict"] != NOT_RUN
        costs = (entry["scale"], duration(entry["seconds"])) if ran else (NONE, NONE)
        lines.append(_row(claim, entry, f"[{claim.title}](#claim-{claim.claim})", *costs))
    about = (
        "Time is what all runs of a claim took by the clock, each on one core, beside whatever else the machine had to "
        "do; claims that share runs count them twice."
    )
    return "\n".join([*lines, "", tally(claims, entries), about, ""])


def _row(claim: Claim, entry: Entry, link: str, *costs: str) -> str:
    """Number, claim, paper, ours, what it cost, verdict."""
    known = list(ours(entry)) if entry["verdict"] != NOT_RUN else [NONE]
    left_out = [f"… and {len(known) - MOST_NUMBERS} more"] if len(known) > MOST_NUMBERS else []
    numbers = "<br>".join([*known[:MOST_NUMBERS], *left_out])
    cells = (str(claim.claim), link, claim.paper, numbers, *costs, verdict_words(entry))
    return f"| {' | '.join(map(_cell, cells))} |"


def headline_table(claims: Claims, entries: Mapping[int, Entry], page: str) -> str:
    """The claims that say most, for those who read one table alone; `page` is where all of them are."""
    lines = ["| # | claim | paper | ours | verdict |", "|---|---|---|---|---|"]
    for number in HEADLINES:
        if number in claims.by_number:
            claim = claims.by_number[number]
            lines.append(_row(claim, entries.get(number) or _nothing(claim), f"[{claim.title}]({page}#claim-{number})"))
    return "\n".join([*lines, "", f"{tally(claims, entries)} [All of them]({page}).", ""])


def has_headlines(text: str) -> bool:
    """Whether a page keeps a place for the table."""
    return BEGIN in text or END in text


def with_headlines(text: str, table: str) -> str:
    """A page with the table between its marks, in place of what was there."""
    if not (text.count(BEGIN) == text.count(END) == 1 and text.index(BEGIN) < text.index(END)):
        raise SpecError(f"the table of claims stands between one {BEGIN} and one {END} after it")
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}{END}{rest.partition(END)[2]}"


def _section(claim: Claim, entry: Entry | None, picture: str | None) -> str:
    entry = entry or _nothing(claim)
    lines = [f"## Claim {claim.claim}", "", f"**{claim.title}** — {'; '.join(claim.sources)}", ""]
    lines += ["Published:", "", claim.published.strip(), "", f"Holds if: {claim.criterion.strip()}", ""]
    lines += ["```", *claim.holds_if, "```", ""]
    if claim.scaled:
        lines += [f"Scale small: {claim.scaled.strip()}", ""]
    if entry["verdict"] == NOT_RUN:
        lines += [f"**Not run**{': ' + entry['reason'] if entry['reason'] else '.'}", ""]
        return "\n".join(lines)
    lines += [f"**{verdict_words(entry).capitalize()}**", "", *_findings(entry), "", *_measures(claim, entry), ""]
    lines += [*(f"- {run}" for run in entry["failed_runs"]), ""] if entry["failed_runs"] else []
    reading = claim.reading.get(entry["scale"], {}).get(entry["verdict"])
    lines += [reading.strip(), ""] if reading else []
    lines += [f"![curves of claim {claim.claim}]({picture})", ""] if picture else []
    lines += [_footnote(claim, entry), ""]
    return "\n".join(lines)


def _findings(entry: Entry) -> Iterator[str]:
    """Every comparison with its numbers."""
    yield "| comparison | left | right | margin | verdict |"
    yield "|---|---|---|---|---|"
    for finding in entry["findings"]:
        sides = [spread(finding[side]) if finding[side] else NONE for side in ("left", "right", "margins")]
        reason = f": {finding['reason']}" if finding["reason"] else ""
        yield f"| `{_cell(finding['text'])}` | {' | '.join(sides)} | {finding['verdict']}{_cell(reason)} |"


def _measures(claim: Claim, entry: Entry) -> Iterator[str]:
    """What else was measured, study by study."""
    for name, subjects in entry["measured"].items():
        wanted = [*claim.show] or ["accuracy_last"]
        shown = [
            each for each in wanted if any(any(v is not None for v in of.get(each, ())) for of in subjects.values())
        ]
        if not shown:
            continue
        yield ""
        yield f"| {name.replace('_', ' ')} | {' | '.join(_heading(each) for each in shown)} |"
        yield "|---|" + "---:|" * len(shown)
        for subject, measures in subjects.items():
            cells = (_measure(each, measures.get(each, ())) for each in shown)
            yield f"| {subject} | {' | '.join(cells)} |"


def _footnote(claim: Claim, entry: Entry) -> str:
    scale: Scale = entry["scale"]
    said = "" if scale == "small" else f" --scale {scale}"
    known = entry["versions"]
    versions = ", ".join(f"{name} {known[name]}" for name in ("fedrelay", "torch", "python") if name in known)
    command = f"`fedrelay reproduce {claim.claim}{said} --seeds {len(entry['seeds'])}`"
    return f"<sub>{command} · its runs took {duration(entry['seconds'])} · {versions}</sub>"


def _nothing(claim: Claim) -> Entry:
    return {"claim": claim.claim, "verdict": NOT_RUN, "reason": None, "scale": "small"}


def _heading(measure: str) -> str:
    return measure.replace("_", " ") + (", %" if measure in SHARES else "")


def _measure(name: str, values: Sequence[float | None]) -> str:
    known = [100 * value if name in SHARES else value for value in values if value is not None]
    if not known:
        return "no result" if values else NONE
    return spread(known) + ("" if len(known) == len(values) else f" ({len(known)} of {len(values)} runs)")


def _number(value: float) -> str:
    """Four digits, whole where it is whole."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 10000 else f"{value:.4g}"


def _sign(text: str) -> str:
    """The sign of a comparison as text has it."""
    return next(sign for sign in (" >= ", " <= ", " == ", " > ", " < ") if sign in text).strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def as_json(entries: Sequence[Entry]) -> dict[str, Any]:
    """All entries in one object."""
    return {"claims": {str(entry["claim"]): entry for entry in entries}}
