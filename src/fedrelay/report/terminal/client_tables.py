"""Single clients of a comparison in the terminal: what each gains, or how they spread."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from fedrelay.report.client_gains import gain_facts, interval_of_gain, score_and_gain
from fedrelay.report.format import NONE, score
from fedrelay.report.terminal.table_shapes import plain_table
from fedrelay.runtime.client_comparison import shown_name
from fedrelay.runtime.comparison_result import ComparisonResult

MOST_COLUMNS = 5
"""Up to this many clients have a column of their own in 80 columns."""

MOST_WITH_INTERVALS = 4
"""Up to this many clients their columns have room for intervals."""


def client_tables(outcome: ComparisonResult) -> RenderableType | None:
    """Every client with every method if they are few, how they spread, and who loses; None if there is nothing."""
    facts, metric = gain_facts(outcome, MOST_COLUMNS), outcome.task.headline_info
    if facts is None or outcome.clients is None:
        return None
    parts: list[RenderableType] = []
    methods = facts["methods"]
    if facts["clients"] <= MOST_COLUMNS:
        first = next(iter(methods.values()))["rows"]
        table = plain_table(f"{outcome.task.label} and gain", *(row["name"][:11] for row in first), numeric=True)
        for name, method in methods.items():
            table.add_row(name, *(score_and_gain(row, metric) for row in method["rows"]))
            intervals = [interval_of_gain(row, metric) for row in method["rows"]]
            if any(intervals) and len(intervals) <= MOST_WITH_INTERVALS:
                table.add_row("  95 % of gain", *intervals, style="dim")
        table.add_row("train, held out", *(f"{row['samples']}, {row['held_out']}" for row in first), style="dim")
        parts += [table, Text()]
        reasons = {each.name: each.reason for clients in outcome.clients.gains.values() for each in clients}
        parts += [Text(f"  {name}: {reason}", style="yellow") for name, reason in reasons.items() if reason]
    heads = ["mean\n± std", "worst\nclient", "worst\ntenth", "size\nρ"]
    heads += ["gain, unclear,\nlose"] if facts["alone"] else []
    table = plain_table("\nover clients", *heads, numeric=True)
    for name, method in methods.items():
        spread = method["spread"]
        if spread is None:
            table.add_row(name, *[NONE] * len(heads))
            continue
        mean, std, worst, tenth = (
            score(metric, spread[each]).removesuffix(" %") for each in ("mean", "std", "worst_value", "worst_decile")
        )
        correlation = NONE if spread["size_correlation"] is None else f"{spread['size_correlation']:+.2f}"
        counts = ", ".join(map(str, method["effects"].values())) if name != facts["alone"] else NONE
        cells = [f"{mean} ± {std}", f"{shown_name(spread['worst'])[:16]} {worst}", tenth, correlation, counts]
        table.add_row(name, *cells[: len(heads)])
    lines = [method["who_loses"] for method in methods.values() if method["who_loses"]]
    if facts["alone"]:  # else its score above looks like that of a client that stays alone with its own samples
        lines.append(
            f"In the tables of methods, {facts['alone']} is the mean of the clients' own models, each on the test "
            "samples of all clients. Here every model is on the samples that the client held out."
        )
    return Group(*parts, table, Text(), *(Padding(Text(line), (0, 0, 0, 2)) for line in lines))
