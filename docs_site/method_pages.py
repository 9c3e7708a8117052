"""One page for each method of the catalogue, with a map of its routes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from fedrelay.experiment.method import build_method
from fedrelay.experiment.method_catalogue import METHODS
from fedrelay.experiment.method_grammar import parse_method
from fedrelay.experiment.prepare import PreparedRun, prepare
from fedrelay.experiment.spec import experiment
from fedrelay.report.drawing import render
from fedrelay.report.figure_specs import plan_routes
from fedrelay.report.format import count, size
from fedrelay.report.reference_pages import part_section
from fedrelay.routes.plan import RoundPlan

CLIENTS, ROUNDS = 12, 60
_DRAWN = {"clients": CLIENTS, "alpha": 0, "fraction": 1.0}

_GROUPS = {
    "route": "Routes",
    "warmup": "Warm-ups",
    "terms": "Terms",
    "merge": "Merges",
    "server": "After a merge",
}


def group_of(name: str) -> str:
    """The heading under which a method is listed: what is new in it."""
    entry = METHODS[name]
    brought = {part for part in entry.parts() if part != "route"} | ({"route"} if entry.route else set())
    kinds = {part.split(".")[0] for part in brought}
    return next((title for kind, title in _GROUPS.items() if kind in kinds), "Others")


def route_map(name: str) -> bytes:
    """The routes of the rounds that are drawn, as SVG."""
    return render([plan_routes(plan) for plan in _drawn_plans(name)], "svg")


def method_page(name: str) -> str:
    """What a method does, its routes, its costs, its parts and how to run it."""
    return "\n".join(_lines(name))


def _lines(name: str) -> Iterator[str]:
    entry, parts = METHODS[name], dict(parse_method(name).parts())
    yield f"# {name}\n\n{entry.summary[0].upper()}{entry.summary[1:]}.\n"
    if "+" not in name and entry.route is None and entry.default_route is None:
        yield f"`{name}` brings no route, so alone it takes that of [fedavg](fedavg.md). Join it with any other, "
        yield f"such as `fedseq+{name}`.\n"
    drawn = _drawn_plans(name)
    rounds = " and ".join(str(plan.round) for plan in drawn)
    setting = f"{CLIENTS} clients, each with one digit; all take part"
    yield f"![Routes of {name}](maps/{name}.svg){{ .route-map }}\n"
    yield f"*Routes of round{'s' if len(drawn) > 1 else ''} {rounds} of {_rounds(name)}: {setting}.*\n"
    yield "## Run it\n"
    options = f"--clients 20 --alpha 0 --rounds {_rounds(name)}"
    yield f"```sh\nfedrelay run {name} {options}\nfedrelay plan {name} {options}\n```\n"
    call = f'fr.run("{name}", clients=20, alpha=0, rounds={_rounds(name)})'
    yield f"```python\nimport fedrelay as fr\n\nresult = {call}\n```\n"
    yield "## Costs of a round\n"
    yield from _costs(name, drawn)
    yield "\n## Parts\n"
    own = entry.parts()
    for place, part in parts.items():
        if place not in own:
            yield f"- `{place}`: [{part.__name__}](../methods.md#{part.__name__.lower()})"
    for place, part in own.items():
        yield from part_section(place, part, heading="###")


def _costs(name: str, plans: tuple[RoundPlan, ...]) -> Iterator[str]:
    costs = _prepared(name).costs
    yield "| round | client updates | server → client | client → server | client → client | traffic |"
    yield "|---|---|---|---|---|---|"
    for plan in plans:
        sent = costs.transfers(plan)
        counts = " | ".join(count(sent.counts()[kind]) for kind in ("s2c", "c2s", "c2c"))
        yield f"| {plan.round} | {count(plan.client_updates)} | {counts} | {size(sent.bytes)} |"


@cache
def _prepared(name: str) -> PreparedRun:
    fixed_groups = METHODS[name].grouping is not None and not build_method(experiment(name)).route.chooses_group_count
    few = {"grouping": {"max_clients": 4}} if fixed_groups else {}
    return prepare(experiment(name, data="digits", rounds=_rounds(name), **_DRAWN, **few))


@cache
def _rounds(name: str) -> int:
    """Rounds enough for the method's own warm-up."""
    warmup = build_method(experiment(name, rounds=10**6)).warmup
    return ROUNDS if warmup is None else ROUNDS + int(getattr(warmup, warmup.length))


@cache
def _drawn_plans(name: str) -> tuple[RoundPlan, ...]:
    """Round 1, and the last round if its routes look different."""
    first, last = (_prepared(name).planner.plan(round) for round in (1, _rounds(name)))
    return (first,) if _shape(first) == _shape(last) else (first, last)


def _shape(plan: RoundPlan) -> tuple[object, ...]:
    return (sorted(len(route.clients) for route in plan.routes), plan.merges, plan.handover)
