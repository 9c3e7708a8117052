"""What a paper needs of a comparison: its tables, its figures at the width of a column, and captions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedrelay.files import make_folder, write_atomically
from fedrelay.report import figure_specs as fig
from fedrelay.report.figure_files import COLUMN, PAPER_STYLE, save_figures
from fedrelay.report.figure_specs import Data, Figure, score_of
from fedrelay.report.format import NONE, count, difference, interval, moment, plural, size, spread, tenths
from fedrelay.report.page_sections import best_method, failures_in_words
from fedrelay.report.paper_table import MARK, RENDERERS, Cell, PaperTable
from fedrelay.tasks.metric_info import MetricInfo

KINDS = ("pdf", "svg")


def write_paper_files(document: Data, folder: Path, width: float = COLUMN) -> list[Path]:
    """Write all tables as LaTeX, Markdown and CSV, all figures as PDF and SVG, and their captions.

    Args:
        document: what `report_content.describe` returns.
        folder: where to write.
        width: of the figures, in inches.
    """
    return write_tables_and_figures(paper_tables(document), paper_figures(document), document, folder, width)


def write_tables_and_figures(
    tables: Sequence[PaperTable], figures: Sequence[tuple[str, Figure]], document: Data, folder: Path, width: float
) -> list[Path]:
    """Write tables in every format, and named figures in every format."""
    make_folder(folder)
    written = []
    for table in tables:
        for ending, text in RENDERERS.items():
            written.append(folder / f"{table.name}.{ending}")
            write_atomically(written[-1], text(table).encode())
    for name, figure in figures:
        for kind in KINDS:
            written.append(folder / f"{name}.{kind}")
            untitled = {**figure, "title": "", "height": 0.62 if width < 5 else 0.8}
            save_figures(written[-1], [untitled], document, width=width, style=PAPER_STYLE)
    captions = "".join(f"**{name}**: {figure['title']}. {figure.get('note', '')}\n\n" for name, figure in figures)
    written.append(folder / "captions.md")
    write_atomically(written[-1], f"{captions.strip()}\n".encode())
    return written


def paper_figures(data: Data) -> list[tuple[str, Figure]]:
    """The headline over every cost, final scores, and differences to the baseline."""
    metric = data["metric"]["name"]
    found = [
        (f"curves-{cost}", _without_reference(data, fig.learning_curves(data, metric, cost, "interval")))
        for cost in fig.costs_of(data)
    ]
    found.append(("results", fig.final_results(data)))
    if data["differences"]:
        found.append(("differences", fig.differences(data)))
    return [(name, figure) for name, figure in found if any(_drawn(mark, data) for mark in figure["marks"])]


def _without_reference(data: Data, figure: Figure) -> Figure:
    """Centralised training is a dashed line already: it sends nothing, and its rounds are no rounds of clients."""
    central = {method["name"] for method in data["methods"] if method["training"] == "pooled"}
    others = [mark for mark in figure["marks"] if mark["name"] not in central]
    lines = [mark for mark in others if mark["kind"] == "line"]
    return {**figure, "marks": others} if data["reference"] and lines else figure


def _drawn(mark: dict[str, Any], data: Data) -> bool:
    """Whether a mark has a number; costs that were not recorded have none."""
    if mark["kind"] != "line":
        return bool(mark["kind"] != "rule")
    return any(value is not None for value in fig.resolve(mark["x"], data))


def paper_tables(data: Data) -> list[PaperTable]:
    """Scores with differences to the baseline, and costs."""
    if not any(method["curves"]["round"] for method in data["methods"]):
        return []
    return [_results(data), _costs(data)]


def metric_head(data: Data) -> str:
    """The headline with its unit and its direction: `Accuracy (%) ↑`."""
    metric = data["metric"]
    unit, arrow = " (%)" if metric["format"] == "percent" else "", "↑" if metric["higher_is_better"] else "↓"
    return f"{metric['label'][:1].upper()}{metric['label'][1:]}{unit} {arrow}"


def read(data: Data) -> MetricInfo:
    """How the headline is read."""
    metric = data["metric"]
    return MetricInfo(metric["higher_is_better"], percent=metric["format"] == "percent")


def _results(data: Data) -> PaperTable:
    info, found, best = read(data), data["differences"], best_method(data)
    last = f"{data['metric']['name']}_last"
    compared = (f"Difference to {found['baseline']}", "95 % interval", "Effect size") if found else ()
    rows = []
    for method in data["methods"]:
        level, each = method["summary"][last], (found or {"methods": {}})["methods"].get(method["name"])
        row = [
            Cell(method["name"]),
            Cell(
                spread(level, len(method["curves"]["runs"]), info),
                {f"{last}_mean": level["mean"], f"{last}_std": level["std"], "runs": len(method["curves"]["runs"])},
                bold=method is best,
                marked=bool(each and each["more_than_chance"]),
            ),
        ]
        if found:
            row += difference_cells(each, info)
        rows.append(tuple(row))
    return PaperTable("results", _caption(data), ("Method", metric_head(data), *compared), tuple(rows))


def difference_cells(each: dict[str, Any] | None, info: MetricInfo) -> list[Cell]:
    """Mean difference, interval and effect size; empty for the baseline itself."""
    found: dict[str, Any] = each or dict.fromkeys(("mean", "low", "high", "effect_size", "adjusted_p_value"))
    ends = None if found["low"] is None else (found["low"], found["high"])
    effect = found["effect_size"]
    texts = (
        (difference(info, found["mean"]), {"difference": found["mean"]}),
        (interval(info, ends), {"low": found["low"], "high": found["high"]}),
        (
            NONE if effect is None else f"{effect:+.2g}",
            {"effect_size": effect, "adjusted_p_value": found["adjusted_p_value"]},
        ),
    )
    return [Cell("" if each is None else text, numbers) for text, numbers in texts]


def _costs(data: Data) -> PaperTable:
    heads = [f"Rounds to {score_of(data, target[data['metric']['name']])}" for target in data["targets"]]
    rows, time = [], "seconds" if data["real_times"] else "virtual_seconds"
    for method in data["methods"]:
        summary = method["summary"]
        rounds = [costs["round"] for costs in summary["costs_to"]]
        rows.append(
            (
                Cell(method["name"]),
                *(Cell(tenths(each), {head.lower(): each}) for head, each in zip(heads, rounds, strict=False)),
                Cell(tenths(summary["client_updates"]), {"client_updates": summary["client_updates"]}),
                Cell(size(summary["bytes"]), {"bytes": summary["bytes"]}),
                Cell(moment(summary[time]), {time: summary[time]}),
            )
        )
    columns = ("Method", *heads, "Client updates", "Traffic", "Real time" if data["real_times"] else "Virtual time")
    caption = (
        f"Costs of methods on {where_in_words(data)}, means over {seeds_in_words(data)}. A target counts as reached "
        f"if every seed reached it; {NONE}: not reached. {data['tuning']['text']}"
    )
    return PaperTable("costs", caption, columns, tuple(rows))


def _caption(data: Data) -> str:
    """Metric, data, rounds, seeds, what marks mean, what was tuned."""
    metric, found, best = data["metric"], data["differences"], best_method(data)
    evaluated = max((method["curves"]["evaluated"] for method in data["methods"]), default=0)
    last = plural(min(data["last"], max(1, evaluated)), "evaluation")
    direction = "higher" if metric["higher_is_better"] else "lower"
    several = any(len(method["curves"]["runs"]) > 1 for method in data["methods"])
    deviation = "mean ± standard deviation over" if several else "with"
    sentences = [
        f"Test {metric['label']} on {where_in_words(data)}: {deviation} {seeds_in_words(data)} of the mean of the "
        f"last {last}; {direction} is better.",
        "Bold: the best federated method without failed seeds." if best is not None else "",
        *(mark_in_words(found["baseline"], found) if found and several else ()),
        *(f"{note[:1].upper()}{note[1:]}." for note in (found["notes"] if found else ())),
        " ".join(failures_in_words(data)),
        data["tuning"]["text"],
    ]
    return " ".join(filter(None, sentences))


def mark_in_words(baseline: str, found: Data) -> tuple[str, ...]:
    """What the mark, the intervals and the effect sizes of a table are."""
    return (
        f"{MARK}: the difference to {baseline} is more than chance ({found['test']}).",
        f"Intervals: {found['interval']}. Effect sizes: {found['effect']}.",
    )


def where_in_words(data: Data) -> str:
    """`digits (20 clients, alpha 0.1, 30 rounds)`: what all runs share."""
    facts = data["facts"]
    known = {name: facts[name] for name in ("clients", "alpha", "rounds") if name in facts}
    words = [f"alpha {value}" if name == "alpha" else f"{value} {name}" for name, value in known.items()]
    shared = f" ({', '.join(words)})" if words else ""
    return f"{facts.get('data', 'several data sets')}{shared}"


def seeds_in_words(data: Data) -> str:
    """`3 seeds`, or `up to 3 seeds` where some runs have no result."""
    numbers = [len(method["curves"]["runs"]) for method in data["methods"] if method["curves"]["runs"]]
    most = max(numbers, default=0)
    alike = len(set(numbers)) <= 1
    return f"{'' if alike else 'up to '}{count(most)} seed{'' if most == 1 else 's'}"
