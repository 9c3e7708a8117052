"""The plan of one round and the costs of the whole run, for `fedrelay plan`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedrelay.cost.ledger import KINDS
from fedrelay.cost.time_model import VirtualTime
from fedrelay.experiment.prepare import PreparedRun
from fedrelay.report.format import count, moment, plural, shortened, size, times
from fedrelay.report.terminal.run_tables import privacy_line
from fedrelay.report.terminal.table_shapes import facts_grid
from fedrelay.routes.plan import RoundPlan

MOST_ROUTES = 12
"""The most routes that are listed one by one."""

MOST_CLIENTS = 12
"""The most clients of a route that are named."""

LARGE_FEDERATION, MOST_HOPS = 10_000, 100_000
"""With more clients than this, only the first rounds are planned and counted, until they have this many hops."""

_SECONDS = VirtualTime._fields

_HANDOVERS = {
    "direct": "direct: clients pass the model to each other",
    "server": "server: the model passes through the server between clients",
    "sealed": "sealed: the model passes through the server, which cannot read it between clients",
    "peers": "peers: every client sends its model to all others",
    "none": "none: all data are in one place, no model travels",
}


def plan_report(run: PreparedRun, round: int) -> dict[str, Any]:
    """Return one round and the whole run, as `--json` prints them; of a large federation, its first rounds."""
    prepared, planner, costs = run
    plan, hops = planner.plan(round), Counter[int]()
    whole_run = costs.total(_counting(run, hops, plan))
    if not_counted := prepared.experiment.rounds - whole_run["rounds"]:
        whole_run["rounds_not_counted"] = not_counted
    privacy = costs.privacy(hops)
    transfers, setup = costs.transfers(plan), costs.setup_line()
    if setup is not None:
        whole_run = _with_setup(whole_run, setup)
    lengths = [len(route.clients) for route in plan.routes]
    return {
        "method": prepared.experiment.method,
        "data": prepared.experiment.data.name,
        "clients": prepared.federation.client_count,
        "groups": len(prepared.groups),
        "parameters": prepared.layout.trained_size,
        "payloads": costs.payloads
        | {name: size for extra in costs.extras(plan).values() for name, size in extra.items()},
        "round": round,
        "handover": plan.handover,
        "routes": [[_holder(run, client) for client in route.clients] for route in plan.routes],
        "chain": {
            "min": min(lengths, default=0),
            "mean": sum(lengths) / max(1, len(lengths)),
            "max": max(lengths, default=0),
        },
        "client_updates": plan.client_updates,
        "transfers": transfers.counts(),
        "bytes": transfers.bytes,
        **costs.virtual_time(plan)._asdict(),
        "setup": None if setup is None else {**_cost_of(setup), "payloads": setup["payloads"]},
        "total": whole_run,
        **({"privacy": privacy} if privacy else {}),
        "with_faults": _with_faults(run, plan),
    }


def _with_faults(run: PreparedRun, plan: RoundPlan) -> dict[str, Any] | None:
    """What faults leave of the round at its first attempt; None if no faults are set."""
    if not run.planner.faults.possible:
        return None
    faulty = run.planner.faults.apply(plan)
    transfers = run.costs.transfers(faulty.plan, faulty.fault_costs)
    return {
        "routes": [[_holder(run, client) for client in route.clients] for route in faulty.plan.routes],
        "client_updates": faulty.plan.client_updates,
        "transfers": transfers.counts(),
        "bytes": transfers.bytes,
        **run.costs.virtual_time(faulty.plan, faulty.fault_costs)._asdict(),
        "fault_events": dict(Counter(event.what for event in faulty.events)),
        "tampered": len(faulty.tampers),
    }


def _holder(run: PreparedRun, client: int) -> int | str:
    """A client's number, or `server` for the samples that the server holds."""
    return client if client < run.prepared.federation.client_count else "server"


def _counting(run: PreparedRun, hops: Counter[int], known: RoundPlan) -> Iterator[RoundPlan]:
    """The plans of the rounds that are counted; counts the hops of each client on the way."""
    private = run.prepared.method.privacy is not None  # ε is a bound only if no hop is left out
    large = run.prepared.federation.client_count > LARGE_FEDERATION and not private
    for round in range(1, run.prepared.experiment.rounds + 1):
        plan = known if round == known.round else run.planner.plan(round)
        hops.update(client for route in plan.routes for client in route.clients)
        yield plan
        if large and hops.total() >= MOST_HOPS:
            return


def _cost_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """A line of the ledger in the form of the other costs."""
    transfers = {kind: line[kind] for kind in KINDS}
    seconds = {name: line[name] for name in _SECONDS}
    return {"client_updates": line["client_updates"], "transfers": transfers, "bytes": line["bytes"], **seconds}


def _with_setup(total: Mapping[str, Any], setup: Mapping[str, Any]) -> dict[str, Any]:
    """The costs of all rounds and of the setup."""
    once = _cost_of(setup)
    transfers = {kind: total["transfers"][kind] + once["transfers"][kind] for kind in KINDS}
    sums = {name: total[name] + once[name] for name in ("client_updates", "bytes", *_SECONDS)}
    return {**total, **sums, "transfers": transfers}


def plan_page(report: Mapping[str, Any]) -> RenderableType:
    """Show a plan in the terminal."""
    chain = report["chain"]
    groups = f" in {plural(report['groups'], 'group')}" if report["groups"] else ""
    title = Text(f"{report['method']} on {report['data']}, round {report['round']}", style="bold")
    payload = ", ".join(f"{name} {size(weight)}" for name, weight in report["payloads"].items())
    facts = {
        "clients": f"{count(report['clients'])}{groups}",
        "what travels": f"{payload} ({count(report['parameters'])} parameters)",
        "handover": _HANDOVERS[report["handover"]]
        if chain["max"] > 1 or report["handover"] in ("peers", "none")
        else "not needed",
        "chain length": f"min {chain['min']}   mean {count(round(chain['mean'], 1))}   max {chain['max']}",
    }
    if report["setup"]:
        facts["before round 1"] = ", ".join(
            f"{name} {size(weight)}" for name, weight in report["setup"]["payloads"].items()
        )
    if "privacy" in report:
        facts["privacy, all rounds"] = privacy_line(report["privacy"])
    page: list[RenderableType] = [title, facts_grid(facts), Text(), _routes(report["routes"])]
    page += [Text(), _table(report, _COSTS), Text(), _table(report, _TIMES)]
    if report["with_faults"]:
        page += [Text(), _fault_rows(report)]
    return Group(*page)


def _fault_rows(report: Mapping[str, Any]) -> Table:
    """What faults do to the round."""
    faulty = report["with_faults"]
    tampered = f", {plural(faulty['tampered'], 'model')} tampered with" if faulty["tampered"] else ""
    return facts_grid(
        {
            "faults": "the other numbers are without faults",
            f"faults in round {report['round']}": f"{times(faulty['fault_events']) or 'none'}{tampered}",
            "left at the first try": f"{plural(faulty['client_updates'], 'update')} on "
            f"{sum(map(bool, faulty['routes']))} of {plural(len(faulty['routes']), 'route')}",
        }
    )


def _routes(routes: Sequence[Sequence[int | str]]) -> Table:
    """The clients of each route in order; routes of one client share a line."""
    if routes and all(len(route) == 1 for route in routes):
        clients = shortened([route[0] for route in routes], 3 * MOST_CLIENTS, ", ")
        return facts_grid({f"{plural(len(routes), 'route')} of 1": clients})
    lines = {}
    for number, route in enumerate(routes[:MOST_ROUTES], start=1):
        length = f"  ({len(route)})" if len(route) > MOST_CLIENTS else ""
        lines[f"route {number} of {len(routes)}"] = f"{shortened(route, MOST_CLIENTS, ' → ')}{length}"
    if len(routes) > MOST_ROUTES:
        lines["…"] = f"{len(routes) - MOST_ROUTES} more"
    return facts_grid(lines or {"routes": "none: no client has data"})


def _counted_rounds(total: Mapping[str, Any]) -> str:
    """What the costs of the run are about: all rounds, or the first ones of a large federation."""
    counted, rounds = total["rounds"], total["rounds"] + total.get("rounds_not_counted", 0)
    if counted == rounds:
        return f"all {count(rounds)} rounds"
    return f"first {f'{count(counted)} ' if counted > 1 else ''}of {count(rounds)} rounds"


def _rows(report: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The setup, the round and the run, each with its label."""
    if report["setup"]:
        yield "setup, before round 1", report["setup"]
    yield f"round {report['round']}", report
    if report["with_faults"]:
        yield f"round {report['round']} with faults", report["with_faults"]
    rounds = _counted_rounds(report["total"])
    yield f"{rounds} and setup" if report["setup"] else rounds, report["total"]


_COSTS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "updates": lambda costs: count(costs["client_updates"]),
    "S2C": lambda costs: count(costs["transfers"]["s2c"]),
    "C2S": lambda costs: count(costs["transfers"]["c2s"]),
    "C2C": lambda costs: count(costs["transfers"]["c2c"]),
    "traffic": lambda costs: size(costs["bytes"]),
}
_TIMES: dict[str, Callable[[Mapping[str, Any]], str]] = {  # T and D are FedGSP's names
    "virtual time": lambda costs: moment(costs["virtual_seconds"]),
    "T_comp": lambda costs: moment(costs["computing_seconds"]),
    "T_comm": lambda costs: moment(costs["communicating_seconds"]),
    "D_comm": lambda costs: size(costs["bytes"]),
}


def _table(report: Mapping[str, Any], columns: Mapping[str, Callable[[Mapping[str, Any]], str]]) -> Table:
    """One line each for the setup, the round and the run."""
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(style="dim")
    for _ in columns:
        table.add_column(justify="right")
    table.add_row("", *(Text(column, style="bold") for column in columns))
    for name, costs in _rows(report):
        table.add_row(f"  {name}", *(cell(costs) for cell in columns.values()))
    return table
