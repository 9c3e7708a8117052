"""Results, comparisons, sweeps, tunings, plans and federations as HTML for notebooks: tables and figures."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape

from fedrelay.data.client_class_counts import count_classes
from fedrelay.data.federation import Federation, ShortRepr
from fedrelay.notebook_display import RENDERERS
from fedrelay.report.figure_specs import Figure, comparison_curves, partition_figures, plan_routes, score_curves
from fedrelay.report.format import count, difference, moment, score, score_name, size, spread
from fedrelay.report.paper_table import MARK
from fedrelay.report.sweep_figures import sweep_figures
from fedrelay.report.sweep_summary import sweep_table
from fedrelay.report.tuning_page import scores_figure
from fedrelay.report.tuning_summary import lead_in_words, reason, settings_in_words
from fedrelay.routes.plan import RoundPlan
from fedrelay.runtime.comparison_result import ComparisonResult, MethodResults
from fedrelay.runtime.html_table import Bold, html_table
from fedrelay.runtime.result import Result
from fedrelay.runtime.sweep_result import SweepResult
from fedrelay.tuning.result import TuningResult

DPI = 100
"""Sharp enough for a screen; a figure has some ten kilobytes, because notebooks keep every output."""

MOST_CLIENTS = 2000
"""A federation of more clients is shown without its class mix, which would take long to count."""


def result_html(result: Result) -> str:
    """The final score, the costs and the learning curve of a run."""
    spec, task = result.experiment, result.task
    facts = {
        "method": spec.method,
        "data": spec.data.name,
        task.label: score(task.headline_info, result.score),
        "rounds": f"{result.rounds} of {spec.rounds}" + (f": {result.stopped}" if result.stopped else ""),
        "client updates": count(result.client_updates),
        "transfers": count(sum(result.transfers.values())),
        "traffic": size(result.bytes),
        **({} if result.has_real_times else {"virtual time": moment(result.virtual_seconds)}),
        **({"time": moment(result.seconds)} if result.has_real_times else {}),
        **({"run folder": str(result.run)} if result.run else {}),
    }
    several = len(result.history) > 1
    return facts_table(facts) + (image([score_curves({spec.method: [result.history]}, task=task)]) if several else "")


def comparison_html(outcome: ComparisonResult) -> str:
    """A line for each method with its score and its difference to the baseline, and the learning curves."""
    header = ["method", score_name(outcome.task), f"against {outcome.baseline.name}", "95 % interval", "runs", "failed"]
    table = html_table(header, [_comparison_row(outcome, each) for each in outcome.methods])
    notes = "".join(f"<p>{escape(note)}</p>" for note in outcome.notes)
    curves = comparison_curves(outcome)
    return table + notes + (image(curves, columns=2) if curves else "")


def _comparison_row(outcome: ComparisonResult, method: MethodResults) -> list[str]:
    metric, found = outcome.task.headline_info, method.mean_std(lambda result: result.score_last)
    level = dict(zip(("mean", "std"), found or (None, None), strict=True))
    of_baseline = outcome.differences.get(method.name)
    paired = None if of_baseline is None else of_baseline.difference
    interval = None if paired is None else paired.interval
    return [
        method.name,
        spread(level, len(method.results), metric),
        "" if paired is None else difference(metric, paired.mean),
        "" if interval is None else f"[{', '.join(difference(metric, end) for end in interval)}]",
        count(len(method.results)),
        count(len(method.failed)),
    ]


def sweep_html(result: SweepResult) -> str:
    """The score of each method for each value of the swept settings, and the figures of the sweep."""
    table = sweep_table(result)
    rows = [
        [(Bold if cell.bold else str)(f"{cell.text}{MARK if cell.marked else ''}") for cell in row]
        for row in table.rows
    ]
    figures = list(sweep_figures(result).values())
    picture = image(figures, columns=2) if figures else ""
    return f"{html_table(list(table.columns), rows)}<p>{escape(table.caption)}</p>{picture}"


def tuning_html(result: TuningResult) -> str:
    """Which method is recommended and why, and every method with the settings that were chosen for it."""
    metric, task = result.task.headline_info, result.task
    header = [
        "method",
        "chosen settings",
        f"validation {score_name(task)}",
        f"test {score_name(task)}",
        "lead of the best",
    ]
    rows = []
    for each in result.standings:
        best = each == result.recommended
        rows.append(
            [
                f"{each.name}{' (recommended)' if best else ' (pooled data)' if each.pooled else ''}",
                settings_in_words(result[each.name]),
                *(score(metric, value).removesuffix(" %") for value in (each.validation_score, each.score)),
                "" if best or each.pooled else lead_in_words(result, each),
            ]
        )
    notes = (reason(result), *(f"{warning}." for warning in result.warnings))
    words = "".join(f"<p>{escape(note)}</p>" for note in notes)
    figure = scores_figure(result)
    return words + html_table(header, rows) + (image([figure]) if figure["marks"] else "")


def plan_html(plan: RoundPlan) -> str:
    """The routes of a round, and how many hops they have."""
    facts = {
        "round": count(plan.round),
        "routes": count(len(plan.routes)),
        "longest route": count(plan.longest),
        "client updates": count(plan.client_updates),
        "handover": plan.handover,
        "merges": "yes" if plan.merges else "no",
    }
    return facts_table(facts) + (image([plan_routes(plan)]) if plan.routes else "")


def federation_html(federation: Federation) -> str:
    """What a federation holds, and the class mix of its clients."""
    facts = {
        "data": federation.name,
        "task": federation.task,
        "clients": count(federation.client_count),
        "train samples": count(int(federation.sample_counts().sum())),
        "test samples": count(federation.test.size),
        "classes": count(federation.class_count) if federation.class_count else "none",
        "shape of a sample": str(federation.sample_shape),
    }
    drawn = federation.in_memory and federation.class_count and federation.client_count <= MOST_CLIENTS
    return facts_table(facts) + (image(partition_figures(count_classes(federation))) if drawn else "")


def facts_table(facts: Mapping[str, str]) -> str:
    """Names and values."""
    return html_table(["", "value"], list(facts.items()))


def image(figures: Sequence[Figure], columns: int = 1) -> str:
    """Figures as one picture inside the page."""
    from fedrelay.report.drawing import render  # matplotlib takes a second to import

    content = base64.b64encode(render(figures, "png", columns=columns, dpi=DPI)).decode()
    title = escape(next((figure["title"] for figure in figures if figure.get("title")), "figure"))
    return f'<img alt="{title}" style="max-width: 100%; background: white" src="data:image/png;base64,{content}">'


RENDERERS |= {
    Result: result_html,
    ComparisonResult: comparison_html,
    SweepResult: sweep_html,
    TuningResult: tuning_html,
    RoundPlan: plan_html,
    ShortRepr: federation_html,
}
