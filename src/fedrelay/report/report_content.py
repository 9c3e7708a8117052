"""Everything that a report shows, as one JSON document made from run folders.

The document holds the data (methods, runs, federations, fault events) and the sections of the page, whose figures refer
to the data.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.cost.ledger import KINDS
from fedrelay.data.client_class_counts import ClientClassCounts, merge_classes
from fedrelay.metrics.curves import mean_std
from fedrelay.metrics.skew import balance_ratio, median_cpd
from fedrelay.report.class_counts_of_run import class_counts_of_run
from fedrelay.report.client_gains import gain_facts
from fedrelay.report.comparison_summary import difference_facts, summarize, with_reachable_targets
from fedrelay.report.csv_tables import EVENTS
from fedrelay.report.differing_settings import differing_settings, values_by_method
from fedrelay.report.figure_specs import class_parts, cost_names, reference_name, shown_metrics
from fedrelay.report.forgetting import forgetting_matrices
from fedrelay.report.format import count, percent, step_size, work_per_hop
from fedrelay.report.load_runs import MethodRuns, ReportRuns, RunView, load_runs
from fedrelay.report.load_sweep import only_sweep
from fedrelay.report.page_limits import PAGE, PageLimits, evenly, significant
from fedrelay.report.page_sections import with_sections
from fedrelay.report.palette import SHADES
from fedrelay.report.sweep_files import sweep_document
from fedrelay.report.tuning_statement import tuning_statement
from fedrelay.robustness.fault_events import DIVERGED
from fedrelay.runtime.comparison_result import ComparisonResult
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.spec_files import COMPARISON_SPEC
from fedrelay.runtime.unsaved_inputs import call_in_python
from fedrelay.runtime.versions import __version__

Document = dict[str, Any]
DIFFERS = "differs"
_MARKED = ("route", "hop", "client", "node", "what", "done")


def document(paths: Sequence[Path], limits: PageLimits = PAGE) -> Document:
    """Read folders of runs and comparisons, or the folder of one sweep, and describe them.

    Args:
        paths: run folders and comparison folders.
        limits: the most that is kept of everything.

    Raises:
        RunFolderError: a folder is missing, is no run folder, or is damaged.
        SpecError: a sweep is to be shown with something else.
    """
    sweep = only_sweep(paths)
    return describe(load_runs(paths), limits) if sweep is None else sweep_document(sweep)


def describe(loaded: ReportRuns, limits: PageLimits = PAGE) -> Document:
    """Describe runs, within the limits."""
    return with_sections(report_data(loaded, limits))


def report_data(loaded: ReportRuns, limits: PageLimits = PAGE) -> Document:
    """Return the document without the sections of the page."""
    runs = [run for _, run in loaded.runs]
    partitions = [class_counts_of_run(run) for run in runs]
    federations = _distinct(partitions)
    outcome, relative_targets = with_reachable_targets(loaded.outcome)
    classes = _columns_of_class_counts(runs, federations, limits)
    return {
        "fedrelay": __version__,
        "real_times": _has_real_times(loaded),
        "nodes": _nodes(runs),
        "title": _title(loaded),
        "facts": _facts(runs, partitions, loaded.outcome.notes),
        "differing": _differing(loaded, partitions),
        "folders": [str(path) for path in loaded.paths],
        "states": dict(Counter(run.state for run in runs)),
        "runs_in_all": sum(len(method.seeds) for method in loaded.methods),
        **_targets(outcome, relative_targets),
        "methods": _methods(loaded, outcome, limits),
        "baseline": outcome.methods.index(outcome.baseline) if outcome.methods else None,
        "gains": gain_facts(loaded.outcome, limits.clients_in_groups),
        "differences": difference_facts(loaded.outcome) if len(loaded.methods) > 1 else None,
        "tuning": tuning_statement(loaded.outcome, loaded.paths),
        "federations": [_federation(each, classes) for each in federations],
        "runs": [
            {
                "method": number,
                "seed": run.seed,
                **_groups(run, found, federations, limits.groups, classes),
                **_rounds(run, len(runs), limits),
                "forgetting": _forgetting(run, len(runs), limits),
            }
            for (number, run), found in zip(loaded.runs, partitions, strict=True)
        ],
        "faults": _fault_counts(loaded),
        "events": _events(loaded, limits.faults),
        "events_in_all": sum(len(run.events) for run in runs),
        "specs": [_spec(method) for method in loaded.methods if method.runs],
        "commands": _commands(loaded),
    }


def _has_real_times(loaded: ReportRuns) -> bool:
    """Whether all runs have real times; virtual ones can be compared with a simulation."""
    runs = [run for _, run in loaded.runs]
    return bool(runs) and all(run.has_real_times for run in runs)


def _nodes(runs: Sequence[RunView]) -> list[dict[str, Any]]:
    """What the nodes of real federations have done."""
    folders = [run.records.path for run in runs if run.experiment.data_at_nodes]
    if not folders:
        return []
    from fedrelay.report.node_activity import node_activity  # imports PyTorch

    return node_activity(folders)


def _title(loaded: ReportRuns) -> str:
    names = [method.name for method in loaded.methods]
    if not names:
        return "No runs yet"
    data = [run.experiment.data.name for _, run in loaded.runs] or [loaded.comparison.data.name]
    return f"{_listed(names)} on {_listed(list(dict.fromkeys(Path(name).stem for name in data)))}"


def _listed(names: Sequence[str], most: int = 5) -> str:
    """All names, or the first of many and how many more there are; never only one more."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


def _facts(
    runs: Sequence[RunView], partitions: Sequence[ClientClassCounts | str], notes: Sequence[str]
) -> dict[str, str]:
    """What all runs have in common, for the head of the page."""
    if not runs:
        return {}
    pairs = list(zip(runs, partitions, strict=True))
    found = {name: _common(value(run, partition) for run, partition in pairs) for name, value in _FACTS.items()}
    found |= {
        name: "differs by seed"
        for name, value in _FACTS.items()
        if found[name] == DIFFERS and _differs_by_seed([(run, value(run, partition)) for run, partition in pairs])
    }
    seeds = ", ".join(map(str, sorted({run.seed for run in runs})))
    common = {name: text for name, text in found.items() if text not in ("", DIFFERS)}
    return common | {"seeds": seeds} | ({"notes": "; ".join(notes)} if notes else {})


def _differing(loaded: ReportRuns, partitions: Sequence[ClientClassCounts | str]) -> dict[str, str]:
    """What the methods do not have in common: facts of the head with their values, then all other settings."""
    pairs = [(number, run, found) for (number, run), found in zip(loaded.runs, partitions, strict=True)]
    found = {}
    for name, value in _FACTS.items():
        values = [(run, value(run, partition)) for _, run, partition in pairs]
        if _common(text for _, text in values) == DIFFERS and not _differs_by_seed(values):
            texts = {
                method.name: _common(value(run, partition) for of, run, partition in pairs if of == number) or None
                for number, method in enumerate(loaded.methods)
            }
            found[name] = values_by_method(texts)
    experiments = {method.name: method.runs[0].experiment for method in loaded.methods if method.runs}
    others = differing_settings(experiments)
    return found | {path: text for path, text in others.items() if path not in _SETTINGS_OF_FACTS}


def _differs_by_seed(values: Sequence[tuple[RunView, str | None]]) -> bool:
    """Whether a fact differs from seed to seed, and not between the methods that have a seed in common."""
    by_seed: dict[int, list[str | None]] = {}
    for run, text in values:
        by_seed.setdefault(run.seed, []).append(text)
    one_method = len({run.experiment.method for run, _ in values}) == 1
    comparable = one_method or any(len(texts) > 1 for texts in by_seed.values())
    return comparable and all(_common(texts) != DIFFERS for texts in by_seed.values())


def _common(values: Iterable[str | None]) -> str:
    """The value that all runs with a known value share."""
    found = set(values) - {None}
    return str(found.pop()) if len(found) == 1 else DIFFERS if found else ""


def _clients(run: RunView, partition: ClientClassCounts | str) -> str | None:
    if isinstance(partition, ClientClassCounts):
        return count(partition.clients)
    pooled = run.records.training == "pooled"
    known = run.experiment.data.clients or (None if pooled else run.records.plan["clients"])
    return None if known is None else count(known)


def _training(run: RunView, _: ClientClassCounts | str) -> str:
    train = run.experiment.train
    return f"{work_per_hop(train)}, batch size {train.batch_size}, learning rate {step_size(train)}"


_FACTS: dict[str, Callable[[RunView, ClientClassCounts | str], str | None]] = {
    "data": lambda run, _: Path(run.experiment.data.name).stem,
    "alpha": lambda run, _: "" if run.experiment.data.alpha is None else f"{run.experiment.data.alpha:g}",
    "clients": _clients,
    "samples": lambda _, partition: count(partition.samples) if isinstance(partition, ClientClassCounts) else None,
    "model": lambda run, _: run.experiment.model.name or "own",
    "parameters": lambda run, _: count(run.records.plan["parameters"]),
    "rounds": lambda run, _: count(run.experiment.rounds),
    "clients per round": lambda run, _: percent(run.experiment.fraction, 0),
    "training": _training,
}
"""What the head of the page says of a run; None if it is not known."""

_SETTINGS_OF_FACTS = {
    "data.name", "data.alpha", "data.clients", "model.name", "rounds", "fraction", "train.epochs", "train.batch_size",
    "train.lr", "train.schedule.name", "train.clip",
}  # fmt: skip
"""Settings that the facts show."""


def _targets(outcome: ComparisonResult, relative: str) -> dict[str, Any]:
    """The metric and the targets; `relative` is why they are shares of what was reached, if they are."""
    reference, settings, task = outcome.reference, outcome.comparison.eval, outcome.task
    name, metrics = task.headline, shown_metrics(task)
    known = None if relative or reference in (1, None) else {name: reference, "name": reference_name(outcome)}
    about = {"name": name, "label": task.label, "format": metrics[name][1]}
    return {
        "metric": {
            **about,
            "higher_is_better": task.headline_info.higher_is_better,
            "on_clients": task.measured_on_clients,
        },
        "metrics": {each: list(shown) for each, shown in metrics.items()},
        "reference": known,
        "targets": [{"share": share, name: goal} for share, goal in outcome.targets.items()],
        "relative_targets": relative,
        "last": settings.last,
    }


def _methods(loaded: ReportRuns, outcome: ComparisonResult, limits: PageLimits) -> list[dict[str, Any]]:
    if not loaded.methods:
        return []
    costs = tuple(cost_names(real=_has_real_times(loaded)))
    return [
        {
            "name": method.name,
            "method": method.method,
            "training": results.training,
            "runs": [_run(method, seed) for seed in method.seeds],
            "curves": _curves(method.evaluated, costs, tuple(shown_metrics(outcome.task)), limits.points),
            "summary": _summary(summary),
            "traffic": _traffic(method),
        }
        for method, results, summary in zip(loaded.methods, outcome.methods, summarize(outcome).values(), strict=True)
    ]


def _run(method: MethodRuns, seed: int) -> dict[str, Any]:
    """The state of one run, started or not."""
    for run in method.runs:
        if run.seed == seed:
            where = {"folder": str(run.records.path), "rounds": run.rounds, "planned": run.experiment.rounds}
            how = {"state": run.state, "reason": run.reason, "stopped": run.stopped, "best": run.records.best}
            return {"seed": seed, **how, **where}
    nowhere = {"folder": "", "rounds": 0, "planned": 0}
    return {"seed": seed, "state": "waiting", "reason": "", "stopped": "", "best": None, **nowhere}


def _summary(summary: Row) -> Row:
    """The summary of a method, with costs in the order of the targets."""
    left_out = ("runs", "method", "fault_events", "diverged", "untrained", "rounds_to", "speed_up")
    kept = {name: value for name, value in summary.items() if name not in left_out}
    return {**kept, "costs_to": list(summary["costs_to"].values())}


def _curves(runs: Sequence[RunView], costs: Sequence[str], metrics: Sequence[str], most: int) -> dict[str, Any]:
    """Columns of the learning curves: costs, and mean and deviation over the seeds that reached each round."""
    by_round = [{int(row["round"]): row for row in run.history} for run in runs]
    evaluated = sorted(set().union(*by_round))
    shown = evenly(evaluated, most)
    rows = [[rows[number] for rows in by_round if number in rows] for number in shown]
    return {
        "evaluated": len(evaluated),
        **{name: [_mean(each, name) for each in rows] for name in costs},
        "seeds": [len(each) for each in rows],
        **{metric: _mean_and_std(rows, metric) for metric in metrics},
        "runs": [
            {
                "seed": run.seed,
                **{name: [_value(found.get(number, {}), name) for number in shown] for name in (*costs, *metrics)},
            }
            for run, found in zip(runs, by_round, strict=True)
        ],
    }


def _mean_and_std(rows: Sequence[Sequence[Row]], metric: str) -> dict[str, list[float | None]]:
    found = [[value for row in each if (value := _value(row, metric)) is not None] for each in rows]
    pairs = [mean_std(values) if values else (None, None) for values in found]
    return {"mean": [significant(mean) for mean, _ in pairs], "std": [significant(std) for _, std in pairs]}


def _mean(rows: Sequence[Row], name: str) -> float | None:
    values = [value for row in rows if (value := _value(row, name)) is not None]
    mean = sum(values) / len(values) if values else None
    return int(mean) if mean is not None and mean.is_integer() else significant(mean, 9)


def _value(row: Mapping[str, Any], name: str) -> float | None:
    value = row.get(name)
    return significant(value, 9) if isinstance(value, int | float) else None


def _traffic(method: MethodRuns) -> dict[str, Any]:
    """Transfers and bytes by direction, and bytes by payload; means over seeds."""
    lines = [line for run in method.evaluated for line in run.ledger]
    runs = max(1, len(method.evaluated))
    payloads: Counter[str] = Counter()
    for line in lines:
        payloads.update(line.get("payloads", {}))
    return {
        "transfers": {kind: sum(line[kind] for line in lines) / runs for kind in KINDS},
        "bytes": {kind: sum(line.get(f"{kind}_bytes", 0) for line in lines) / runs for kind in KINDS},
        "payloads": {name: size / runs for name, size in payloads.items()},
    }


def _distinct(partitions: Sequence[ClientClassCounts | str]) -> list[ClientClassCounts]:
    """The different federations; methods of a comparison share them."""
    found: dict[tuple[str, bytes], ClientClassCounts] = {}
    for each in partitions:
        if isinstance(each, ClientClassCounts):
            found.setdefault(_identity(each), each)
    return list(found.values())


def _identity(partition: ClientClassCounts) -> tuple[str, bytes]:
    return partition.name, partition.counts.tobytes()


def _columns_of_class_counts(
    runs: Sequence[RunView], federations: Sequence[ClientClassCounts], limits: PageLimits
) -> int:
    """How many columns class counts may have; a client or a group is a row."""
    groups = sum(min(len(run.records.groups or ()), limits.groups) for run in runs)
    rows = groups + sum(len(each.counts) for each in federations)
    return max(SHADES, limits.class_counts // max(1, rows))


def _federation(partition: ClientClassCounts, classes: int) -> dict[str, Any]:
    """Class counts of the clients; distances use all classes, also where the counts merge some."""
    counts, names = merge_classes(partition.counts, classes)
    return {
        "name": partition.name,
        "clients": partition.clients,
        "classes": partition.classes,
        "samples": partition.samples,
        "smallest": int(partition.sizes.min()),
        "largest": int(partition.sizes.max()),
        "class_names": names,
        "parts": class_parts(names),
        "counts": counts.tolist(),
        "median_cpd": median_cpd(partition.counts),
    }


def _groups(
    run: RunView, found: ClientClassCounts | str, federations: Sequence[ClientClassCounts], most: int, classes: int
) -> dict[str, Any]:
    """The federation of a run and the class counts of at most `most` groups, or why they are not known."""
    if isinstance(found, str):
        return {"federation": None, "unknown": found, "group_counts": []}
    groups = [
        {
            "group": group,
            "counts": merge_classes(counts[None], classes)[0][0].tolist(),
            "balance": balance_ratio(counts),
        }
        for group, counts in found.group_counts(run.records.groups or (), most).items()
    ]
    number = [_identity(each) for each in federations].index(_identity(found))
    return {"federation": number, "unknown": "", "group_counts": groups}


def _rounds(run: RunView, runs: int, limits: PageLimits) -> dict[str, Any]:
    """The routes of every round of one run, which shares the limits with `runs` runs."""
    lines = [line for line in run.ledger if line["round"]]
    drawn = limits.routes * limits.hops_of_a_route
    hops = max((min(line["client_updates"], drawn) for line in lines), default=0)
    shown = evenly(lines, max(2, limits.hops // max(1, runs) // max(1, hops)))
    faults: dict[int, list[Row]] = {}
    for event in run.events:
        faults.setdefault(int(event["round"]), []).append(event)
    rounds = [{**_round(line, limits), **_faults(faults.get(line["round"], []), limits)} for line in shown]
    groups = run.records.groups or ()
    few = sum(map(len, groups)) <= limits.clients_in_groups
    return {
        "clients": run.records.plan["clients"],
        "names": run.client_names,
        "groups": [list(group) for group in groups] if few else [],
        "groups_in_all": len(groups) or run.records.plan.get("group_count", 0),
        "rounds_in_all": len(lines),
        "rounds": rounds,
    }


def _faults(events: Sequence[Row], limits: PageLimits) -> dict[str, Any]:
    """The fault events of a round: counts by kind, and those to mark on the map."""
    if not events:
        return {}
    kept = [{name: event[name] for name in _MARKED if name in event} for event in events[: limits.faults_of_a_round]]
    return {"fault_counts": dict(Counter(str(event["what"]) for event in events)), "faults": kept}


def _round(line: Row, limits: PageLimits) -> dict[str, Any]:
    """One round: its routes, and whether the server merges at the end."""
    routes = line.get("routes", [])
    kept = [route[: limits.hops_of_a_route] for route in routes[: limits.routes]]
    found = {
        "round": line["round"],
        "routes": kept,
        "handover": line.get("handover", "direct"),
        "merges": line.get("merges", True),
    }
    if "slots" in line:
        found["slots"] = line["slots"][: limits.routes]
    if len(routes) > len(kept):
        found["more_routes"] = len(routes) - len(kept)
    if any(len(route) > limits.hops_of_a_route for route in routes[: limits.routes]):
        found["lengths"] = [len(route) for route in routes[: limits.routes]]
    return found


def _forgetting(run: RunView, runs: int, limits: PageLimits) -> dict[str, Any]:
    """The forgetting matrices of one run, which shares the limits with `runs` runs."""
    followed = forgetting_matrices(run.records)
    cells = max((len(chain["clients"]) ** 2 // 2 for chain in followed), default=0)
    return {
        "in_all": len(followed),
        "chains": [
            {
                "round": chain["round"],
                "clients": chain["clients"],
                "matrix": [[significant(value, 4) for value in row] for row in chain["matrix"]],
                "backward_transfer": significant(chain["backward_transfer"]),
            }
            for chain in evenly(followed, max(2, limits.cells // max(1, runs) // max(1, cells)))
        ],
    }


def _fault_counts(loaded: ReportRuns) -> list[dict[str, Any]]:
    """Fault events by method, kind and how they were handled; without the reasons that the list gives."""
    counted = Counter(
        (number, str(event["what"]), _handling(event)) for number, run in loaded.runs for event in run.events
    )
    return [
        {"method": number, "what": what, "done": done, "times": times}
        for (number, what, done), times in counted.most_common()
    ]


def _handling(event: Row) -> str:
    """`refused: non-finite weights` → `refused`, `replaced by client 7` → `replaced by another client`."""
    if event["what"] == DIVERGED:
        return "the run ended"
    done, _, spare = str(event["done"]).partition(":")[0].partition(" by client ")
    return f"{done} by another client" if spare else done


def _events(loaded: ReportRuns, most: int) -> dict[str, list[Any]]:
    """Columns of single fault events; if there are very many, the first ones of each run."""
    share = most // max(1, sum(bool(run.events) for _, run in loaded.runs))
    rows = [
        {"method": loaded.methods[number].name, "seed": run.seed, **event}
        for number, run in loaded.runs
        for event in sorted(run.events, key=lambda event: int(event["round"]))[:share]
    ]
    return {name: [row.get(name, "") for row in rows] for name in EVENTS}


def _commands(loaded: ReportRuns) -> dict[str, str]:
    """What is run again → the command; none for comparisons that were started with objects of Python."""
    own = any(run.records.facts.get(f"own_{what}") for _, run in loaded.runs for what in ("data", "model", "task"))
    folders = [path for path in loaded.paths if not own and (path / COMPARISON_SPEC).is_file()]
    return {
        "All runs" if len(loaded.paths) == 1 else f"All runs of {path}": "fedrelay compare "
        + shlex.quote(str(path / COMPARISON_SPEC))
        for path in folders
    }


def _spec(method: MethodRuns) -> dict[str, Any]:
    """What is needed to repeat a method's runs."""
    run = method.runs[0]
    facts, file = run.records.facts, run.records.path / "spec.yaml"
    own = [what for what in ("data", "model", "task") if facts.get(f"own_{what}")]
    return {
        "name": method.name,
        "text": file.read_text(encoding="utf-8"),
        "command": "" if own else f"fedrelay run {shlex.quote(str(file))}",
        "python": call_in_python(run.experiment, own) if own else "",
        "seeds": [each.seed for each in method.runs],
        "needs_nodes": run.experiment.data_at_nodes,
        "versions": dict(facts.get("versions", {})),
        "data_fingerprint": facts.get("data_fingerprint"),
        "own": own,
    }
