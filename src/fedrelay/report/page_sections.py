"""The sections of the page: headings, controls, figures and tables, all as plain values.

A card of a section has `figures`; its `choices` select one of them, whose key joins the chosen options with `/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.files import make_folder
from fedrelay.report import figure_specs as fig
from fedrelay.report.client_gains import FEW_CLIENTS, INTERVALS_AT_NODES, INTERVALS_IN_WORDS, client_table, spread_table
from fedrelay.report.csv_tables import csv_blocks
from fedrelay.report.figure_files import save_figures
from fedrelay.report.figure_specs import TRAFFIC, Data, Figure, ref, score_of
from fedrelay.report.format import (
    NONE,
    Level,
    count,
    difference,
    duration,
    interval,
    moment,
    p_value,
    size,
    spread,
    tenths,
)
from fedrelay.report.palette import line_style
from fedrelay.runtime.result import REAL_SECONDS
from fedrelay.runtime.run_status import FAILURES
from fedrelay.tasks.metric_info import MetricInfo
from fedrelay.tasks.task_facts import metric_label

Card = dict[str, Any]


def with_sections(data: Data) -> dict[str, Any]:
    """Add headlines, sections and tables to the data of a document."""
    runs = [
        {**run, "rounds": [{**found, "caption": _caption(data, run, found)} for found in run["rounds"]]}
        for run in data["runs"]
    ]
    whole = {**data, "runs": runs}
    return {
        **whole,
        "failures": failures_in_words(whole),
        "headlines": [{"number": number, "text": text} for number, text in _headlines(whole)],
        "sections": [
            {"id": name, "title": title, "lead": _lead(lead, whole), "cards": list(_cards(cards, whole))}
            for name, title, lead, *cards in _SECTIONS
        ],
        "tables": csv_blocks(whole),
    }


def _cards(makers: Sequence[Callable[[Data], Card | None]], data: Data) -> Iterator[Card]:
    """The cards of a section, without those that these runs cannot have."""
    yield from (card for make in makers if (card := make(data)) is not None)


def _lead(text: str, data: Data) -> str:
    """The lead of a section, with the metric in it."""
    metric = data["metric"]
    unit = " in percent" if metric["format"] == "percent" else ""
    words = {"metric": metric["label"], "unit": unit, "on_clients": metric_label(metric["on_clients"])}
    words |= {"time": "real time" if data["real_times"] else "virtual time", "tuning": data["tuning"]["text"]}
    several_seeds = any(len(method["runs"]) > 1 for method in data["methods"])
    several_methods = len(data["methods"]) > 1
    for name, applies, said in (
        ("every_seed", several_seeds, ", as a mean over seeds. A target counts as reached if every seed reached it"),
        ("mean", several_seeds, ", as a mean over seeds"),
        ("factors", several_methods, " Factors say how many times less than the compared method."),
        ("gains", data["gains"] and data["gains"]["alone"], _GAINS_IN_WORDS),
        ("nodes", data["nodes"], _NODES_IN_WORDS),
        ("bold", several_methods, " Bold is the best federated method without failed seeds."),
    ):
        words[name] = said if applies else ""
    return text.format(**words)


_GAINS_IN_WORDS = (
    ", and what the client gains over training alone. In tables the gain is small, and bold marks those who gain or "
    "lose for certain"
)
_NODES_IN_WORDS = (
    "What each node did, by the audit trail: hops of rounds that were repeated after a restart count, too. "
)


def write_figures(document: Data, folder: Path, kind: str) -> list[Path]:
    """Write every figure of a document to a folder.

    Args:
        document: a document with sections.
        folder: where to write.
        kind: png, svg or pdf.
    """
    make_folder(folder)
    written = []
    for name, panels, columns in figure_files(document):
        shown = [panel for panel in panels if panel["marks"]]
        if shown:
            save_figures(folder / f"{name}.{kind}", shown, document, columns)
            written.append(folder / f"{name}.{kind}")
    return written


def figure_files(document: Data) -> Iterator[tuple[str, list[Figure], int]]:
    """Yield the name, the panels and the panels side by side of every file; of a method, the first seed is drawn."""
    cards = {card["name"]: card["figures"] for section in document["sections"] for card in section["cards"]}
    for metric in dict.fromkeys((document["metric"]["name"], "loss")):
        panels = [cards["curves"].get(f"{metric}/{cost}") for cost in fig.costs_of(document)]
        yield f"curves-{metric}", [panel for panel in panels if panel], 2
    yield "targets", [panel for panel in cards["targets"].values() if panel], 2
    yield "results", list(cards["results"].values()), 1
    yield "differences", list(cards["differences"].values()), 1
    for key, figure in cards["gains"].items():
        view, _, place = key.partition("/")
        yield f"{view}s-{_file_names(list(document['gains']['methods']))[int(place)]}", [figure], 1
    sent = cards["communication"]
    yield "communication", [figure for view, figure in sent.items() if view != "payloads"], 1
    yield "payloads", [figure for view, figure in sent.items() if view == "payloads"], 1  # its colours mean other kinds
    yield "faults", list(cards["faults"].values()), 1
    for key, figure in cards["clients"].items():
        yield f"clients-{int(key) + 1}" if int(key) else "clients", [figure], 1
    names = _file_names([method["name"] for method in document["methods"]])
    first = {run["method"]: str(number) for number, run in reversed(list(enumerate(document["runs"])))}
    for method, number in sorted(first.items()):
        own = {
            name: [figure for key, figure in cards[name].items() if key.split("/")[0] == number]
            for name in ("groups", "routes", "forgetting")
        }
        for name, place in (("groups", 0), ("routes", 0), ("forgetting", -1)):
            if own[name]:
                yield f"{name}-{names[method]}", [own[name][place]], 1


def _file_names(names: Sequence[str]) -> list[str]:
    """Names for files; no two are equal, also where upper and lower case are the same."""
    found: list[str] = []
    for name in names:
        safe = "".join(each if each.isalnum() or each in "+-_." else "_" for each in name).strip(".") or "_"
        number, free = 1, safe
        while free.lower() in map(str.lower, found):
            number += 1
            free = f"{safe}-{number}"
        found.append(free)
    return found


def _choice(name: str, label: str, options: Mapping[str, str], style: str = "segments") -> dict[str, Any]:
    return {"name": name, "label": label, "style": style, "options": [list(pair) for pair in options.items()]}


def _labels(table: Mapping[str, Sequence[str]]) -> dict[str, str]:
    return {key: label for key, (label, _) in table.items()}


def _runs(data: Data, numbers: Sequence[int]) -> dict[str, str]:
    names = [method["name"] for method in data["methods"]]
    return {str(each): f"{names[data['runs'][each]['method']]}, seed {data['runs'][each]['seed']}" for each in numbers}


def _curves(data: Data) -> Card:
    started = any(method["curves"]["round"] for method in data["methods"])
    several = any(len(method["curves"]["runs"]) > 1 for method in data["methods"])
    toggles = [["log-x", "log ↔"], ["log-y", "log ↕"], *([["seeds", "single seeds"]] if several else [])]
    return {
        "name": "curves",
        "choices": [
            _choice("metric", "Metric", _labels(data["metrics"])),
            _choice("cost", "Over", _labels(fig.costs_of(data))),
        ],
        "toggles": toggles,
        "legend": [
            {"name": method["name"], **line_style("method", number)}
            for number, method in enumerate(data["methods"])
            if method["curves"]["round"]
        ],
        "figures": {
            f"{metric}/{cost}": fig.learning_curves(data, metric, cost)
            for metric in data["metrics"]
            for cost in fig.costs_of(data)
        }
        if started
        else {},
        "empty": _nothing(data, "No round has been evaluated yet."),
    }


def _route_map(data: Data) -> Card:
    shown = [number for number, run in enumerate(data["runs"]) if run["rounds"]]
    return {
        "name": "routes",
        "choices": [_choice("run", "Run", _runs(data, shown), "select")],
        "start": _most_telling(data, shown),
        "figures": {
            f"{run}/{place}": fig.routes(data, run, place)
            for run in shown
            for place in range(len(data["runs"][run]["rounds"]))
        },
        "shades": fig.SHADES_IN_WORDS,
        "notes": {str(run): _relay_note(data["runs"][run]) for run in shown},
        "empty": _nothing(data, "No round is finished yet."),
    }


def _most_telling(data: Data, shown: Sequence[int]) -> str:
    """The run to show first: chains side by side, else a chain, else any."""

    def rank(number: int) -> int:
        rounds = data["runs"][number]["rounds"]
        chained = any(len(route) > 1 for found in rounds for route in found["routes"])
        return 2 * chained + (chained and any(len(found["routes"]) > 1 for found in rounds))

    return str(max(shown, key=rank, default=0))


def _relay_note(run: Mapping[str, Any]) -> str:
    notes = (
        f"{count(len(run['rounds']))} of {count(run['rounds_in_all'])} rounds are in this page."
        if len(run["rounds"]) < run["rounds_in_all"]
        else "",
        f"There are {count(run['groups_in_all'])} groups, too many to draw."
        if run["groups_in_all"] and not run["groups"]
        else "",
        f"The classes of clients are not known: {run['unknown']}." if run["unknown"] else "",
    )
    return " ".join(filter(None, notes))


def _caption(data: Data, run: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """One sentence about a round, such as `fedavg: 10 models visit one client each, then the server merges them.`"""
    name, handover = data["methods"][run["method"]]["name"], found["handover"]
    lengths = [length for length in found.get("lengths") or map(len, found["routes"]) if length]
    models = len(lengths) + found.get("more_routes", 0)  # a route that lost all its clients never started
    faults = "".join(
        f" Fault events, marked with !: {', '.join(f'{count(times)} {what}' for what, times in counts.items())}."
        for counts in [found.get("fault_counts")]
        if counts
    )
    if handover == "none":
        return f"{name}: all data are in one place, no model travels."
    if not models:
        return f"{name}: no model came back from a client.{faults}"
    if handover == "peers":
        return f"{name}: {count(models)} clients train their own models and send them to all others.{faults}"
    short, long = min(lengths), max(lengths)
    each = " each" if models > 1 else ""
    visits = (
        "one client" if long == 1 else f"{count(long) if short == long else f'{count(short)} to {count(long)}'} clients"
    )
    order = " one after another" if long > 1 else ""
    ways = {"server": " through the server", "sealed": " through the server, sealed"}
    through = ways.get(handover, "") if long > 1 else ""
    moves = "1 model visits" if models == 1 else f"{count(models)} models visit"
    if not found["merges"]:
        end = "then waits in its slot" if models == 1 else "then wait in their slots"
    else:
        end = "then the server receives it" if models == 1 else "then the server merges them"
    return f"{name}: {moves} {visits}{each}{order}{through}, {end}.{faults}"


def _targets(data: Data) -> Card:
    found = (
        {cost: fig.cost_to_target(data, cost) for cost in fig.costs_of(data)}
        if data["methods"] and data["targets"]
        else {}
    )
    started = any(method["curves"]["round"] for method in data["methods"])
    missing = _nothing(data, "There is nothing to compare yet.")
    return {
        "name": "targets",
        "choices": [_choice("cost", "Cost", _labels(fig.costs_of(data)))],
        "compare": [method["name"] for method in data["methods"]],
        "figures": found if started else {},
        "empty": missing if data["targets"] else "Without a reference there are no targets.",
    }


def _results(data: Data) -> Card:
    started = any(method["curves"]["round"] for method in data["methods"]) or failures_in_words(data)
    evaluated = max((method["curves"]["evaluated"] for method in data["methods"]), default=0)
    last, label = min(data["last"], evaluated) or data["last"], data["metric"]["label"]
    heads = (
        "Method", f"{label}, last {last}", f"{label}, final", "client updates", "longest chain", "traffic",
        *(() if data["real_times"] else ("virtual time",)), "real time", "runs",
    )  # fmt: skip
    figure = fig.final_results(data)
    return {
        "name": "results",
        "figures": {"": figure} if figure["marks"] else {},
        "table": {"columns": list(heads), "rows": list(_result_rows(data))} if started else None,
        "empty": "" if started else "No run has a result yet.",
    }


def _result_rows(data: Data) -> Iterator[list[Any]]:
    best = best_method(data)
    for number, method in enumerate(data["methods"]):
        summary = method["summary"]
        seeds = len(method["curves"]["runs"])
        chips = [
            {
                "text": f"seed {run['seed']} {'stopped early' if run['stopped'] else run['state']}"
                + (f", round {count(run['rounds'])} of {count(run['planned'])}" if run["planned"] else ""),
                "kind": run["state"],
                "title": run["reason"] or run["stopped"],
            }
            for run in method["runs"]
            if run["state"] != "complete" or run["stopped"]
        ]
        chips += [
            {
                "text": f"seed {run['seed']} best in round {count(run['best']['round'])}",
                "kind": "best",
                "title": f"{run['best']['metric']} {run['best']['value']:.4g}",
            }
            for run in method["runs"]
            if run["best"]
        ]
        complete = sum(run["state"] == "complete" for run in method["runs"])
        yield [
            {"text": method["name"], "dot": line_style("method", number)["colour"], "chips": chips},
            _level(data, summary[_last(data)], seeds, bold=method is best),
            _level(data, summary[data["metric"]["name"]], seeds),
            tenths(summary["client_updates"]),
            tenths(summary["longest_chain"]),
            size(summary["bytes"]),
            *(() if data["real_times"] else (moment(summary["virtual_seconds"]),)),
            duration(summary["seconds"]),
            f"{complete} of {len(method['runs'])}",
        ]


def _differences(data: Data) -> Card:
    found = data["differences"]
    if found is None:
        return {"name": "differences", "figures": {}, "empty": ""}
    read = MetricInfo(percent=data["metric"]["format"] == "percent")
    unit = ", points" if read.percent else ""
    columns = [f"Against {found['baseline']}", f"difference{unit}", "95 % interval", "effect size", "p, Holm", "seeds"]
    rows = [
        [
            {"text": name, "chips": [] if each["more_than_chance"] else [_CHANCE]},
            difference(read, each["mean"]),
            interval(read, None if each["low"] is None else (each["low"], each["high"])),
            NONE if each["effect_size"] is None else f"{each['effect_size']:+.2g}",
            p_value(each["adjusted_p_value"]),
            str(len(each["seeds"])),
        ]
        for name, each in found["methods"].items()
    ]
    figure = fig.differences(data)
    words = [["note", f"{name.capitalize()}: {found[name]}."] for name in ("interval", "effect", "test")]
    return {
        "name": "differences",
        "figures": {"": figure} if figure["marks"] else {},
        "table": {"columns": columns, "rows": rows} if figure["marks"] else None,
        "details": [{"summary": "How differences are computed", "lines": words}] if figure["marks"] else [],
        "empty": "",
    }


_CHANCE = {"text": "may be chance", "kind": "waiting", "title": "The test cannot tell it from no difference"}


def _last(data: Data) -> str:
    """The key of the mean over the last evaluations."""
    return f"{data['metric']['name']}_last"


def _level(data: Data, level: Level, seeds: int, *, bold: bool = False) -> dict[str, Any]:
    read = MetricInfo(percent=data["metric"]["format"] == "percent")
    mean, sign, deviation = spread(level, seeds, read).partition(" ± ")
    return {"text": mean, "small": sign + deviation, "bold": bold}


def _gains(data: Data) -> Card:
    found = data["gains"]
    if found is None:
        return {
            "name": "gains",
            "figures": {},
            "empty": "Single clients were not evaluated. "
            + ("Start nodes with --holdout 0.2, and use" if data["real_times"] else "Use --holdout 0.2")
            + " --set eval.per_client=10, and compare with local.",
        }
    read = MetricInfo(percent=data["metric"]["format"] == "percent")
    methods = list(found["methods"])
    compared = [name for name in methods if found["methods"][name]["who_loses"]]
    places = {name: str(place) for place, name in enumerate(methods)}
    intervals = INTERVALS_AT_NODES if data["real_times"] else INTERVALS_IN_WORDS
    figures = {f"gain/{places[name]}": fig.client_gains(data, name, intervals) for name in compared}
    figures |= {f"score/{places[name]}": fig.client_scores(data, name) for name in methods}
    views = {
        **({"gain": "Gain over training alone"} if compared else {}),
        "score": fig.capital(data["metric"]["label"]),
    }
    (columns, rows), (heads, cells) = client_table(found, read), spread_table(found, read)
    each, spread = {"columns": columns, "rows": rows}, {"columns": heads, "rows": cells}
    few, losers = found["clients"] <= FEW_CLIENTS, [["note", found["methods"][name]["who_loses"]] for name in compared]
    return {
        "name": "gains",
        "choices": [
            _choice("view", "Show", views),
            _choice("method", "Method", {place: name for name, place in places.items()}, "select"),
        ],
        "figures": {key: figure for key, figure in figures.items() if figure["marks"]},
        "table": each if few else spread,
        "details": [
            {"summary": "How clients spread" if few else "Every client", "table": spread if few else each},
            *([{"summary": "Who loses by taking part", "lines": losers}] if compared else []),
        ],
        "empty": "",
    }


def _nodes(data: Data) -> Card | None:
    """What every node of a real federation has done."""
    if not data["nodes"]:
        return None
    columns = ["Node", "samples", "hops", "without a model", "time at work", "first hop (UTC)", "last hop (UTC)"]
    rows = [
        [
            each["name"],
            NONE if each["samples"] is None else count(each["samples"]),
            count(each["hops"]),
            {
                "text": count(each["failed"]),
                "chips": [{"text": text, "kind": "waiting", "title": text} for text in each["notes"]],
            },
            duration(each["seconds"]),
            _to_the_second(each["first"]),
            _to_the_second(each["last"]),
        ]
        for each in data["nodes"]
    ]
    return {
        "name": "nodes",
        "figures": {},
        "table": {"columns": columns, "rows": rows},
        "empty": "",
    }


def _to_the_second(time: str) -> str:
    """`2026-01-31T08:15:30.250Z` → `2026-01-31 08:15:30`."""
    return time.partition(".")[0].removesuffix("Z").replace("T", " ") or NONE


def _clients(data: Data) -> Card:
    federations = data["federations"]
    seeds = [
        sorted({run["seed"] for run in data["runs"] if run["federation"] == number})
        for number in range(len(federations))
    ]
    names = {
        str(number): f"{each['name']}, seed {', '.join(map(str, seeds[number]))}"
        for number, each in enumerate(federations)
    }
    unknown = data["runs"][0]["unknown"] if data["runs"] else ""
    return {
        "name": "clients",
        "choices": [_choice("federation", "Clients of", names, "select")],
        "figures": {str(number): fig.client_classes(data, number) for number in range(len(federations))},
        "empty": f"The classes of clients are not known: {unknown}." if unknown else "No run has started yet.",
    }


def _groups(data: Data) -> Card:
    shown = [number for number, run in enumerate(data["runs"]) if run["group_counts"]]
    return {
        "name": "groups",
        "choices": [_choice("run", "Groups of", _runs(data, shown), "select")],
        "figures": {str(number): fig.group_classes(data, number) for number in shown},
        "empty": "",
    }


def _forgetting(data: Data) -> Card:
    chains = [
        (number, place, chain)
        for number, run in enumerate(data["runs"])
        for place, chain in enumerate(run["forgetting"]["chains"])
        if len(chain["clients"]) > 1
    ]
    found = {}
    for number, place, chain in chains:
        kept = data["runs"][number]["forgetting"]
        note = f"{len(kept['chains'])} of {count(kept['in_all'])} chains are in this page."
        matrix = ref("runs", number, "forgetting", "chains", place, "matrix")
        left_out = len(kept["chains"]) < kept["in_all"]
        names = data["runs"][number]["names"]
        clients = [names[client] if names else client for client in chain["clients"]]
        found[f"{number}/{chain['round']}"] = fig.forgetting(
            {**chain, "clients": clients}, note if left_out else "", matrix, data["metric"]["on_clients"]
        )
    rounds = {str(chain["round"]): f"round {count(chain['round'])}" for _, _, chain in chains}
    return {
        "name": "forgetting",
        "choices": [
            _choice("run", "Chain of", _runs(data, list(dict.fromkeys(number for number, _, _ in chains))), "select"),
            _choice("round", "Round", dict(sorted(rounds.items(), key=lambda pair: int(pair[0]))), "slider"),
        ],
        "figures": found,
        "empty": "No chain can be followed: that needs every client's samples, and they stay at the nodes."
        if data["real_times"]
        else "No chain was followed. Use --set eval.forgetting=5 to follow a chain every five rounds.",
    }


def _communication(data: Data) -> Card:
    found = {view: fig.traffic(data, view) for view in TRAFFIC}
    sent = any(figure["marks"] for figure in found.values())
    return {
        "name": "communication",
        "choices": [_choice("view", "Counted", _labels(TRAFFIC))],
        "figures": found if sent else {},
        "empty": "Nothing was sent.",
    }


def _faults(data: Data) -> Card:
    figure = fig.fault_events(data)
    columns = {"round": "round", "what": "what happened", "done": "how it was handled", "client": "client",
               "route": "route, from 0", "hop": "hop, from 0"}  # fmt: skip
    several = {name: name for name in ("method", "seed") if len(set(data["events"].get(name, ()))) > 1}
    if any(data["events"].get("node", ())):
        columns["node"] = "node"
    listed, all_events = len(data["events"].get("round", ())), data["events_in_all"]
    names = [data["methods"][number]["name"] for number in sorted({fault["method"] for fault in data["faults"]})]
    whose = f"Events of {', '.join(names)}." if len(data["methods"]) > 1 else ""
    some = f"All {count(all_events)} are counted; the first {count(listed)} are listed." if listed < all_events else ""
    return {
        "name": "faults",
        "figures": {"": {**figure, "note": f"{whose} {some}".strip()}} if figure["marks"] else {},
        "details": [
            {
                "summary": "All fault events" if listed == all_events else "The first fault events of each run",
                "table": {
                    "columns": list((several | columns).values()),
                    "by_column": [ref("events", name) for name in several | columns],
                },
            }
        ]
        if listed
        else [],
        "empty": "No fault events were recorded.",
    }


def _reproduce(data: Data) -> Card:
    whole = [{"summary": name, "lines": [["code", command]]} for name, command in data["commands"].items()]
    methods = [
        {
            "summary": spec["name"],
            "lines": [
                *_how_to_run(spec),
                ["note", " · ".join(f"{name} {value}" for name, value in spec["versions"].items())],
                ["note", f"Data fingerprint: {spec['data_fingerprint']}"],
                ["pre", spec["text"]],
            ],
        }
        for spec in data["specs"]
    ]
    empty = "" if data["specs"] else "No run has started yet."
    return {"name": "reproduce", "figures": {}, "details": [*whole, *methods], "empty": empty}


def _how_to_run(spec: Mapping[str, Any]) -> Iterator[list[str]]:
    """The command or the Python that gives the same weights again."""
    if spec["python"]:
        own = " and ".join(spec["own"])
        yield ["note", f"Started from Python with its own {own}, which the run folder does not contain:"]
        yield ["pre", spec["python"]]
    else:
        yield ["code", spec["command"]]
        others = ", ".join(map(str, spec["seeds"][1:]))
        seeds = f" The other seeds: --seed {others}." if others else ""
        yield ["note", f"Without the folder, save the text below as spec.yaml and run it.{seeds}"]
    if spec["needs_nodes"]:
        yield ["note", "The nodes must be online: they hold the samples."]


def _nothing(data: Data, not_yet: str) -> str:
    """Why a section is empty."""
    return "No run has a result; the top of the page says why." if failures_in_words(data) else not_yet


def failures_in_words(data: Data) -> list[str]:
    """Why runs failed, a sentence for each."""
    return [
        f"{method['name']}, seed {run['seed']}: {run['state']}{', ' if run['reason'] else ''}{run['reason']}."
        for method in data["methods"]
        for run in method["runs"]
        if run["state"] in FAILURES
    ]


def _without_failures(data: Data) -> list[Mapping[str, Any]]:
    """Federated methods with results and without failed seeds: a mean over the other seeds would flatter."""
    return [
        method
        for method in data["methods"]
        if method["training"] == "federated"
        and method["summary"][_last(data)]["mean"] is not None
        and not any(run["state"] in FAILURES for run in method["runs"])
    ]


def best_method(data: Data) -> Mapping[str, Any] | None:
    """The best federated method without failed seeds."""
    best = max if data["metric"]["higher_is_better"] else min
    return best(_without_failures(data), key=lambda method: method["summary"][_last(data)]["mean"], default=None)


def _headlines(data: Data) -> Iterator[tuple[str, str]]:
    """The main numbers at the head of the page."""
    best = best_method(data)
    if best:
        evaluated = best["curves"]["evaluated"]
        used = min(data["last"], evaluated)
        now = "in the last evaluation" if all(run["state"] == "complete" for run in best["runs"]) else "so far"
        mean = f"; {score_of(data, best['summary'][_last(data)]['mean'])} in the mean of "
        over = f"{mean}{'all' if used == evaluated else 'the last'} {used} evaluations" if used > 1 else ""
        final = score_of(data, best["summary"][data["metric"]["name"]]["mean"])
        yield final, f"{data['metric']['label']} of {best['name']} {now}{over}"
    yield from _speed_up(data)
    methods = _without_failures(data)
    sent = [method for method in methods if method["summary"]["bytes"]]
    if sent and len({method["curves"]["round"][-1] for method in methods}) == 1:  # fewer rounds send less
        least = min(sent, key=lambda method: method["summary"]["bytes"])
        some = " of the federated methods" if len(methods) < len(data["methods"]) else ""
        rank = f", the least{some}" if len(methods) > 1 else ""
        yield size(least["summary"]["bytes"]), f"sent by {least['name']}{rank}"
    if data["runs_in_all"]:
        others = "".join(f", {number} {state}" for state, number in data["states"].items() if state != "complete")
        runs = "run" if data["runs_in_all"] == 1 else "runs"
        stopped = data["states"].get("stopped", 0)
        again = f"; fedrelay resume continues {'it' if stopped == 1 else 'them'}" if stopped else ""
        yield f"{data['states'].get('complete', 0)} of {data['runs_in_all']}", f"{runs} complete{others}{again}"


def _speed_up(data: Data) -> Iterator[tuple[str, str]]:
    """Fewer rounds than the baseline at the hardest target that it reached; easier targets might flatter.

    If the baseline reached no target, the fastest method is compared with the slowest that reached one.
    """
    methods = _without_failures(data)
    goals = []
    for place, target in enumerate(data["targets"]):
        costs = [(method["name"], method["summary"]["costs_to"][place]) for method in methods]
        reached = sorted((each for each in costs if each[1]["round"]), key=lambda each: float(each[1]["round"]))
        if len(reached) > 1:
            goals.append((target[data["metric"]["name"]], reached))
    if not goals:
        return
    goals.sort(key=lambda goal: float(goal[0]), reverse=data["metric"]["higher_is_better"])
    baseline = data["methods"][data["baseline"]]["name"]
    level, reached = next((goal for goal in goals if any(name == baseline for name, _ in goal[1])), goals[0])
    fast, slow = reached[0], next((each for each in reached if each[0] == baseline), reached[-1])
    factor = slow[1]["round"] / fast[1]["round"]
    if factor > 1:
        reaching = baseline if slow[0] == baseline else "several methods"
        hardest = f", the hardest target that {reaching} reached" if len(data["targets"]) > 1 else ""
        text = f"fewer rounds with {fast[0]} than with {slow[0]} to {score_of(data, level)}{hardest}"
        name = REAL_SECONDS if data["real_times"] else "virtual_seconds"
        kind = "real time" if data["real_times"] else "virtual time"
        yield f"{factor:.1f}×", f"{text}; {_time_factor(fast[1].get(name), slow[1].get(name), kind)}"


def _time_factor(now: float | None, before: float | None, kind: str) -> str:
    """Rounds alone would favour long chains, whose clients wait for each other."""
    if not now or not before:
        return f"{kind} was not recorded"
    factor = before / now
    if abs(factor - 1) < 0.05:
        return f"the same {kind}"
    return f"{factor:.1f}× less {kind}" if factor > 1 else f"but {1 / factor:.1f}× more {kind}"


_SECTIONS: tuple[tuple[Any, ...], ...] = (
    ("curves", "Learning curves", "Test metrics over rounds, client updates, traffic or {time}.", _curves),
    (
        "routes", "Route map",
        "How models travelled in each round. Each dot is a client, coloured by its classes. Each coloured line is the "
        "route of one model. Click a line to highlight it.", _route_map,
    ),
    (
        "targets", "Cost to target",
        "The cost until each target {metric} was first reached{every_seed}.{factors}", _targets,
    ),
    (
        "results", "Final results",
        "Test {metric}{unit}, and total costs.{bold} {tuning}", _results, _differences,
    ),
    (
        "gains", "What every client gains",
        "The {metric} on the held-out samples of each client{mean}{gains}.", _gains,
    ),
    ("clients", "Clients", "{nodes}The classes of each client, and of each group.", _nodes, _clients, _groups),
    (
        "forgetting", "Forgetting",
        "Each row is the model after one more client. Each column is its {on_clients} on the samples of one client. A "
        "column that fades downwards is forgotten.", _forgetting,
    ),
    (
        "communication", "Communication",
        "Everything that was sent in the whole run, with setup and evaluations of clients{mean}. Payloads beside the "
        "model count as transfers of their own.", _communication,
    ),
    ("faults", "Fault events", "What went wrong, and how it was handled.", _faults),
    (
        "reproduce", "Reproduce",
        "The resolved specs and the package versions. The same spec and seed give the same weights bit for bit, with "
        "any number of workers.", _reproduce,
    ),
)  # fmt: skip
"""The name, the title and the lead of every section, and the functions that make its cards."""
