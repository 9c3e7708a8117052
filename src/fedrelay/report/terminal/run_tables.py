"""Tables of runs and comparisons for a terminal of 80 columns."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedrelay.cost.ledger import KINDS
from fedrelay.experiment.method_catalogue import find_methods, training_of
from fedrelay.experiment.spec import DataSettings, Experiment
from fedrelay.report.comparison_summary import seed_notes, summarize, with_reachable_targets
from fedrelay.report.differing_settings import differing_settings
from fedrelay.report.format import (
    NONE,
    count,
    difference,
    duration,
    interval,
    moment,
    p_value,
    percent,
    plural,
    score,
    score_name,
    shortened,
    size,
    spread,
    step_size,
    tenths,
    times,
    whole,
    work_per_hop,
)
from fedrelay.report.load_runs import ReportRuns
from fedrelay.report.terminal.client_tables import client_tables
from fedrelay.report.terminal.run_progress import best_line, evaluated_on, other_scores, score_or_reason
from fedrelay.report.terminal.table_shapes import facts_grid, plain_table
from fedrelay.report.tuning_statement import tuning_statement
from fedrelay.runtime.comparison_result import ComparisonResult
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.result import Result, share_name

if TYPE_CHECKING:
    from fedrelay.runtime.bench import Timing


def pace_table(paces: Sequence[Timing]) -> RenderableType:
    """Milliseconds of a client update, and the speed-up over the first engine of the workload."""
    table = plain_table("one client update", "ms", "best – worst", "times faster", numeric=True)
    baselines = {pace.workload: pace.median for pace in reversed(paces)}
    for pace in paces:
        table.add_row(
            f"{pace.workload}, {pace.program}",
            f"{1e3 * pace.median:.3f}",
            f"{1e3 * pace.best:.3f} – {1e3 * pace.worst:.3f}",
            f"{baselines[pace.workload] / pace.median:.1f}×",
        )
    hint = "5 SGD steps of batch 20 on 100 samples, 10 clients a round; compare within one run only"
    return Group(table, Text(), Text(f"  {hint}", style="dim"))


def heading(
    names: Sequence[str],
    experiment: Experiment,
    plan: Mapping[str, Any],
    seeds: Sequence[int],
    differing: Mapping[str, str] = MappingProxyType({}),
) -> RenderableType:
    """Describe what is about to run; `plan` comes from `plan.json`, `differing` says what methods do not share."""
    train = experiment.train
    model = experiment.model.name or "chosen for the data"
    title = Text(f"{', '.join(names)} on {experiment.data.name}", style="bold")
    rows = {
        "clients": f"{count(experiment.data.clients or plan['clients'])}{_partition(experiment.data)}",
        "model": f"{model}, {count(plan['parameters'])} parameters{f' with {names[0]}' if len(names) > 1 else ''}",
        "training": f"{work_per_hop(train)} per hop, batch size {train.batch_size}, learning rate {step_size(train)}",
        "rounds": f"{experiment.rounds:,}, {_participation(names, experiment)}",
        "seeds" if len(seeds) > 1 else "seed": ", ".join(map(str, seeds)),
    }
    if differing:
        rows["differs"] = "\n".join(f"{path}: {text}" for path, text in differing.items())
    if any("dp" in entry.terms for entry in find_methods(experiment.method).values()) and not experiment.data_at_nodes:
        rows["noise"] = "from the seed: anyone who knows the seed can subtract it; for simulation only"
    return Group(title, facts_grid(rows))


def result_table(result: Result) -> RenderableType:
    """One run in numbers."""
    settings = result.experiment.eval
    last = result.last_row
    reached = result.rounds_to_targets()
    task, read = result.task, result.task.headline_info
    reference = settings.reference or task.best_possible
    of = f" of {score(read, reference)}" if reference not in (1, None) else ""
    rows: dict[str, RenderableType] = {}
    if result.stopped:
        rows["stopped"] = f"after round {count(result.rounds)} of {count(result.experiment.rounds)}: {result.stopped}"
    rows |= {
        task.label: Text(score_or_reason(task, task.headline, last), style="bold"),
        f"mean of last {min(settings.averaged, len(result.history))}": score(read, result.score_last),
        "loss": NONE if last.get("loss") is None else f"{last['loss']:.3f}",
        **other_scores(task, last),
        **evaluated_on(last),
    }
    if result.best_found is not None:
        rows["best model"] = best_line(result.best_found.summary())
    for share, rounds in reached.items() if reference is not None else ():
        rows[f"rounds to {percent(share, 0)}{of}"] = count(rounds)
    rows |= {
        "client updates": count(result.client_updates),
        "transfers": "   ".join(f"{count(result.transfers[kind])} {kind.upper()}" for kind in KINDS),
        "traffic": size(result.bytes),
        **_virtual_time(result),
        "time": duration(result.seconds),
    }
    if result.selection_seconds:
        rows["choosing clients"] = f"{moment(result.selection_seconds)} of that"
    if result.fault_events:
        rows["fault events"] = times(result.fault_events)
    if result.privacy:
        rows["privacy"] = privacy_line(result.privacy)
    if result.hop_overhead is not None:
        rows["overhead per hop"] = f"{result.hop_overhead:.2f} s in addition to the clients' time"
    if result.run is not None:
        rows["run folder"] = str(result.run)
    return facts_grid(rows)


def privacy_line(spent: Mapping[str, Any]) -> str:
    """The privacy spent by clients: maximum and median ε, and δ."""
    if spent["epsilon_max"] is None or math.isinf(spent["epsilon_max"]):
        return "none: no noise was added"
    most, middle = (f"{spent[f'epsilon_{which}']:.3g}" for which in ("max", "median"))
    return f"ε at most {most}, median {middle}, δ {spent['delta']:g}, up to {plural(spent['hops_max'], 'hop')}"


def run_advice(result: Result) -> RenderableType:
    """Where the files of a run are, and what to do next."""
    method = result.experiment.method
    others = [other for other in ("fedavg", "relay") if other != method]
    best = {} if result.best_found is None else {"best model": f"{result.run}/best.safetensors"}
    return facts_grid(
        {
            "model": f"{result.run}/model.safetensors",
            **best,
            "metrics": f"{result.run}/metrics.jsonl",
            "report": f"fedrelay report {shlex.quote(str(result.run))}",
            "next": f"fedrelay compare {' '.join(others)} {method}, with the same options",
        }
    )


def comparison_tables(outcome: ComparisonResult) -> RenderableType:
    """A comparison in numbers: scores and rounds to targets, costs, then notes."""
    outcome, relative_targets = with_reachable_targets(outcome)
    found = summarize(outcome)
    differences = (_differences(outcome), Text()) if _several_seeds(outcome) else ()
    effort = (_effort(outcome, found), Text()) if outcome.targets else ()
    clients = client_tables(outcome)
    of_clients = () if clients is None else (clients, Text())
    return Group(
        _quality(outcome, found),
        Text(),
        *differences,
        *of_clients,
        *effort,
        _costs(found),
        *_notes(outcome, found, relative_targets),
    )


def comparison_state(loaded: ReportRuns) -> Iterator[RenderableType]:
    """What is compared, and how far its runs are."""
    names, states = ", ".join(method.name for method in loaded.methods), loaded.states
    yield Text(f"{names} on {loaded.comparison.data.name}", style="bold")
    complete, runs = states.pop("complete", 0), sum(len(method.seeds) for method in loaded.methods)
    others = "".join(f", {number} {state}" for state, number in states.items())
    rows: dict[str, RenderableType] = {
        "seeds": ", ".join(map(str, loaded.comparison.seeds)),
        "runs": f"{complete} of {plural(runs, 'run')} complete{others}",
    }
    experiments = {method.name: method.runs[0].experiment for method in loaded.methods if method.runs}
    if differing := differing_settings(experiments):
        rows["differs"] = "\n".join(f"{path}: {text}" for path, text in differing.items())
    if unfinished := [f"{run.records.path}: round {run.rounds}" for _, run in loaded.runs if run.state in UNFINISHED]:
        rows["unfinished"] = shortened(unfinished, 6, "\n")
        rows["continue with"] = f"fedrelay resume {shlex.quote(str(loaded.paths[0]))}"
    yield facts_grid(rows)


UNFINISHED = ("running", "stopped")


def comparison_advice(outcome: ComparisonResult) -> RenderableType:
    """Where the files of a comparison are, and what to do next."""
    out = outcome.comparison.out
    rows = {
        "curves": f"{out}/curves.png",
        "table": f"{out}/table.csv",
        "results": f"{out}/results.json",
        "metrics": f"{out}/METHOD/seed-N/metrics.jsonl",
        "report": f"fedrelay report {shlex.quote(str(out))}",
    }
    if any(result.privacy for entry in outcome.methods for result in entry.results):
        rows["privacy"] = f"{out}/privacy.png"
    if outcome.clients is not None:
        rows["gains"] = f"{out}/gains.csv"
    federated = [each for each in outcome.methods if each.training == "federated"]
    levels = [(each.mean_std(lambda result: result.score_last), each.method) for each in federated]
    gains = [(outcome.task.headline_info.gain(level[0]), method) for level, method in levels if level]
    if gains:
        _, best = max(gains, key=itemgetter(0))
        rows["next"] = f"look at the curves; fedrelay methods show {best}"
    if len(outcome.comparison.seeds) == 1:
        rows["error bars"] = "compare with --seeds 1,2,3: one seed gives neither intervals nor tests"
    return facts_grid(rows)


def _participation(names: Sequence[str], experiment: Experiment) -> str:
    if len(names) == 1 and training_of(experiment.method) == "pooled":
        return "all data in one place"
    return f"{percent(experiment.fraction, 0)} take part in each"


def _partition(data: DataSettings) -> str:
    """The partition and its alpha, if they are set."""
    said = [data.partition or "", "" if data.alpha is None else f"alpha {data.alpha:g}"]
    return "".join(f", {word}" for word in said if word)


def _quality(outcome: ComparisonResult, summaries: Mapping[str, Row]) -> Table:
    evaluations = max((len(result.history) for entry in outcome.methods for result in entry.results), default=0)
    last = min(outcome.comparison.eval.averaged, max(1, evaluations))
    goals, task, name_of_score = outcome.targets, outcome.task, score_name(outcome.task)
    heads = [f"rounds to\n{score(task.headline_info, goal)}" for goal in goals.values()]
    table = plain_table("\nmethod", f"{name_of_score}\nlast {last}", f"{name_of_score}\nfinal", *heads, numeric=True)
    for column in table.columns[3:]:
        column.justify = "left"  # cells of two numbers are aligned by themselves
    reached = [_reached(summaries, share_name(share), outcome.baseline.name) for share in goals]
    for number, (name, summary) in enumerate(summaries.items()):
        runs, failed = len(summary["runs"]), summary["diverged"] or summary["untrained"]
        ended = "diverged" if summary["diverged"] else "failed" if failed else NONE
        mean = spread(summary[f"{task.headline}_last"], runs, task.headline_info)
        level = Text(mean, style="bold") if runs else Text(ended, style="red" if failed else "")
        marked = f"{name}*" if failed and runs else name
        final = spread(summary[task.headline], runs, task.headline_info)
        table.add_row(marked, level, final, *(column[number] for column in reached))
    return table


def _several_seeds(outcome: ComparisonResult) -> bool:
    return any(len(each.seeds) > 1 for each in outcome.differences.values())


def _differences(outcome: ComparisonResult) -> Table:
    """Every method against the baseline, seed by seed."""
    info = outcome.task.headline_info
    unit = "points" if info.percent else "difference"
    columns = (f"{outcome.task.label}\n{unit}", "95 %\ninterval", "effect\n(g)", "p\n(Holm)", "\nseeds")
    table = plain_table(f"\nagainst {outcome.baseline.name}", *columns, numeric=True)
    for name, each in outcome.differences.items():
        found = each.difference
        sure = Text(difference(info, found.mean if found else None), style="bold" if each.more_than_chance else "")
        effect = found.effect_size if found else None
        table.add_row(
            name,
            sure.append("*" if each.more_than_chance else " "),
            interval(info, found.interval if found else None),
            NONE if effect is None else f"{effect:+.2g}",
            p_value(each.adjusted_p_value),
            str(len(each.seeds)),
        )
    return table


def _reached(summaries: Mapping[str, Row], share: str, baseline: str) -> list[Text]:
    """One column: rounds to a target and the speed-up over the baseline."""
    rounds = [count(summary["rounds_to"][share]) for summary in summaries.values()]
    speed_ups = [None if name == baseline else each["speed_up"][share] for name, each in summaries.items()]
    factors = ["" if factor is None else f"  {factor:.1f}×" for factor in speed_ups]
    left, right = max(map(len, rounds)), max(map(len, factors))
    return [
        Text(f"{number:>{left}}").append(f"{factor:>{right}}", style="dim")
        for number, factor in zip(rounds, factors, strict=True)
    ]


def _effort(outcome: ComparisonResult, summaries: Mapping[str, Row]) -> Table:
    """All costs to the middle target: rounds alone would favour long chains."""
    goals = outcome.targets
    share = sorted(goals)[len(goals) // 2]
    real = all(result.has_real_times for each in outcome.methods for result in each.results)
    heads = ("rounds", "client updates", "traffic", *(() if real else ("virtual time",)))
    table = plain_table(f"to reach {score(outcome.task.headline_info, goals[share])}", *heads, numeric=True)
    for name, summary in summaries.items():
        costs = summary["costs_to"][share_name(share)]
        work = (tenths(costs["round"]), whole(costs["client_updates"]), size(costs["bytes"]))
        table.add_row(name, *work, *(() if real else (duration(costs["virtual_seconds"]),)))
    return table


def _virtual_time(result: Result) -> dict[str, RenderableType]:
    """How long the run would take on the clients' devices; nothing where they are real."""
    if result.has_real_times:
        return {}
    parts = f"T_comp {moment(result.computing_seconds)}, T_comm {moment(result.communicating_seconds)}"
    return {"virtual time": f"{moment(result.virtual_seconds)}   ({parts})"}


def _costs(summaries: Mapping[str, Row]) -> Table:
    heads = ("\nmethod", "\nupdates", "longest\nchain", "\nS2C", "\nC2S", "\nC2C", "\ntraffic", "\ntime")
    table = plain_table(*heads, numeric=True)
    for name, summary in summaries.items():
        numbers = (summary["client_updates"], summary["longest_chain"], *summary["transfers"].values())
        table.add_row(name, *map(whole, numbers), size(summary["bytes"]), duration(summary["seconds"]))
    return table


def _notes(outcome: ComparisonResult, summaries: Mapping[str, Row], relative_targets: str) -> Iterator[RenderableType]:
    """Notes below the tables, and the privacy spent in the worst run of each method."""
    yield Text()
    others = [summary for name, summary in summaries.items() if name != outcome.baseline.name]
    if any(factor is not None for summary in others for factor in summary["speed_up"].values()):
        yield Text(f"  ×: times fewer rounds than {outcome.baseline.name}", style="dim")
    if relative_targets:
        yield Padding(Text(relative_targets, style="dim"), (0, 0, 0, 2))
    elif outcome.reference not in (1, None):
        level = score(outcome.task.headline_info, outcome.reference)
        shares = f"{', '.join(f'{100 * share:g}' for share in outcome.targets)} %"
        part = shares if outcome.task.headline_info.higher_is_better else "shares"  # of errors, these are no shares
        yield Text(f"  rounds to: {part} of the reference {outcome.task.label}, {level}", style="dim")
    if _several_seeds(outcome):
        yield Text("  *: more than chance, by paired t-tests over seeds with Holm's correction", style="dim")
        yield from (Padding(Text(note, style="yellow"), (0, 0, 0, 2)) for note in seed_notes(outcome))
    yield from (Padding(Text(note, style="dim"), (0, 0, 0, 2)) for note in outcome.notes)
    folder = outcome.comparison.out
    yield Padding(Text(tuning_statement(outcome, [folder] if folder else [])["text"], style="dim"), (0, 0, 0, 2))
    for entry in outcome.methods:
        if entry.failed and entry.results:
            yield Text(f"  * {entry.name}: means over the seeds that did not fail", style="yellow")
        failures = {"diverged": entry.diverged, "failed": entry.untrained}
        yield from (
            Text(f"  {entry.name} {how}, {why}", style="red") for how, reasons in failures.items() for why in reasons
        )
        if stopped := [f"seed {each.experiment.seed} in round {each.rounds}" for each in entry.results if each.stopped]:
            yield Padding(Text(f"{entry.name} stopped early: {', '.join(stopped)}", style="dim"), (0, 0, 0, 2))
        if entry.fault_events:
            yield Text(f"  fault events of {entry.name}: {times(entry.fault_events)}", style="yellow")
    for entry in outcome.methods:
        spent = [result.privacy for result in entry.results if result.privacy]
        if spent:
            worst = max(spent, key=lambda each: float(each["epsilon_max"]))
            yield Text(f"  {entry.name}: {privacy_line(worst)}", style="dim")
