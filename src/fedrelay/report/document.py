"""Everything that a page shows, as one JSON document: plain numbers, names and lists, made from folders alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedrelay.cost.ledger import KINDS
from fedrelay.experiment.method import build_method
from fedrelay.metrics.curves import targets_of
from fedrelay.report.courses import course
from fedrelay.report.format import count, plural, step_size
from fedrelay.report.gathering import Gathering, Party, Seen, gather
from fedrelay.report.journeys import journey, memories
from fedrelay.report.residents import Residents, residents_of
from fedrelay.report.standings import Standing, standings
from fedrelay.report.thinning import PAGE, Limits
from fedrelay.robustness.faults import DIVERGED
from fedrelay.runtime.result import Row

Document = dict[str, Any]
DIFFERS = "differs"
"""Stands where runs have nothing in common."""


def document(paths: Sequence[Path], limits: Limits = PAGE) -> Document:
    """Look at folders of runs and comparisons, and put down what there is to see."""
    return describe(gather(paths), limits)


def describe(gathering: Gathering, limits: Limits = PAGE) -> Document:
    """A gathering, as far as the limits allow."""
    runs = [run for _, run in gathering.runs]
    residents = [residents_of(run) for run in runs]
    federations = _distinct(residents)
    return {
        "fedrelay": version("fedrelay"),
        "title": _title(gathering),
        "facts": _facts(runs, residents),
        "folders": [str(path) for path in gathering.paths],
        "states": dict(Counter(run.status for run in runs)),
        "runs_in_all": sum(len(party.seeds) for party in gathering.parties),
        **_goals(gathering),
        "methods": _methods(gathering, limits),
        "federations": [each.facts() for each in federations],
        "journeys": [
            {
                "method": number,
                "seed": run.seed,
                **_whereabouts(run, found, federations, limits.groups),
                **journey(run, len(runs), limits),
                "forgetting": memories(run, len(runs), limits),
            }
            for (number, run), found in zip(gathering.runs, residents, strict=True)
        ],
        "faults": _faults(gathering),
        "events": _events(gathering, limits.faults),
        "events_in_all": sum(len(run.events) for run in runs),
        "specs": [_spec(party) for party in gathering.parties if party.runs],
    }


def _title(gathering: Gathering) -> str:
    names = [party.name for party in gathering.parties]
    if not names:
        return "No runs yet"
    data = [run.experiment.data.name for _, run in gathering.runs] or [gathering.comparison.data.name]
    return f"{_listed(names)} on {_listed(list(dict.fromkeys(Path(name).stem for name in data)))}"


def _listed(names: Sequence[str], most: int = 4) -> str:
    """The first names, and how many there are beside them."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _facts(runs: Sequence[Seen], residents: Sequence[Residents | str]) -> dict[str, str]:
    """What all runs have in common, for the head of the page; what they have not is said to differ."""
    if not runs:
        return {}
    pairs = list(zip(runs, residents, strict=True))
    found = {name: _common(value(run, who) for run, who in pairs) for name, value in _FACTS.items()}
    seeds = ", ".join(map(str, sorted({run.seed for run in runs})))
    return {name: text for name, text in found.items() if text} | {"seeds": seeds}


def _common(values: Iterable[str | None]) -> str:
    """What all say who know; nothing where nobody does."""
    found = set(values) - {None}
    return str(found.pop()) if len(found) == 1 else DIFFERS if found else ""


def _clients(run: Seen, who: Residents | str) -> str | None:
    """How many there are, also where their data were put into one place."""
    if isinstance(who, Residents):
        return count(who.clients)
    pooled = build_method(run.experiment).pools_data
    known = run.experiment.data.clients or (None if pooled else run.records.plan["clients"])
    return None if known is None else count(known)


def _training(run: Seen, who: Residents | str) -> str:
    train = run.experiment.train
    return f"{plural(train.epochs, 'epoch')}, batch {train.batch_size}, step {step_size(train)}"


_FACTS: dict[str, Callable[[Seen, Residents | str], str | None]] = {
    "data": lambda run, _: Path(run.experiment.data.name).stem,
    "alpha": lambda run, _: "" if run.experiment.data.alpha is None else f"{run.experiment.data.alpha:g}",
    "clients": _clients,
    "samples": lambda _, who: count(who.samples) if isinstance(who, Residents) else None,
    "model": lambda run, _: run.experiment.model.name or "own",
    "parameters": lambda run, _: count(run.records.plan["parameters"]),
    "rounds": lambda run, _: count(run.experiment.rounds),
    "take part": lambda run, _: f"{run.experiment.fraction:.0%} a round",
    "training": _training,
}
"""What is said of a run at the head of the page; None where it is not known."""


def _goals(gathering: Gathering) -> dict[str, Any]:
    """The accuracies that methods are measured by."""
    reference, settings = gathering.outcome.reference, gathering.comparison.eval
    name = "centralised training" if settings.reference is None else "the reference that was set"
    return {
        "reference": None if reference == 1 else {"accuracy": reference, "name": name},
        "targets": [
            {"share": share, "accuracy": goal} for share, goal in targets_of(reference, settings.targets).items()
        ],
        "last": settings.last,
    }


def _methods(gathering: Gathering, limits: Limits) -> list[dict[str, Any]]:
    if not gathering.parties:
        return []
    return [
        {
            "name": party.name,
            "method": party.method,
            "runs": [_run(party, seed) for seed in party.seeds],
            "course": course(party.evaluated, limits.points),
            "standing": _standing(standing),
            "traffic": _traffic(party),
        }
        for party, standing in zip(gathering.parties, standings(gathering.outcome), strict=True)
    ]


def _run(party: Party, seed: int) -> dict[str, Any]:
    """The state of one run, begun or not."""
    for run in party.runs:
        if run.seed == seed:
            planned = run.experiment.rounds
            where = {"folder": str(run.records.path), "rounds": run.rounds, "planned": planned}
            return {"seed": seed, "status": run.status, "why": run.why, **where}
    return {"seed": seed, "status": "waiting", "why": "", "folder": "", "rounds": 0, "planned": 0}


def _standing(standing: Standing) -> dict[str, Any]:
    """As the comparison has it, but what concerns targets stands in their order."""
    left_out = ("runs", "method", "fault_events", "diverged", "fruitless", "rounds_to")
    facts = {name: value for name, value in standing.facts().items() if name not in left_out}
    return {**facts, **{name: list(facts[name].values()) for name in ("speed_up", "costs_to")}}


def _traffic(party: Party) -> dict[str, Any]:
    """Transfers and bytes by kind, and bytes by what was carried, as means over seeds."""
    lines = [line for run in party.evaluated for line in run.ledger]
    runs = max(1, len(party.evaluated))
    payloads: Counter[str] = Counter()
    for line in lines:
        payloads.update(line.get("payloads", {}))
    return {
        "transfers": {kind: sum(line[kind] for line in lines) / runs for kind in KINDS},
        "bytes": _bytes_by_kind(lines, runs),
        "payloads": {name: size / runs for name, size in payloads.items()},
    }


def _bytes_by_kind(lines: Sequence[Row], runs: int) -> dict[str, float] | None:
    """None where it is not known: runs of the first days noted it only in so far as every transfer weighed the same."""
    sums: Counter[str] = Counter()
    for line in lines:
        transfers = sum(line[kind] for kind in KINDS)
        if f"{KINDS[0]}_bytes" in line:
            sums.update({kind: line[f"{kind}_bytes"] for kind in KINDS})
        elif len(line.get("payloads", {})) <= 1 and transfers and line["bytes"] % transfers == 0:
            sums.update({kind: line[kind] * line["bytes"] // transfers for kind in KINDS})
        elif line["bytes"]:
            return None
    return {kind: sums[kind] / runs for kind in KINDS}


def _distinct(residents: Sequence[Residents | str]) -> list[Residents]:
    """Federations that differ; methods of a comparison share them."""
    found: dict[tuple[str, bytes], Residents] = {}
    for each in residents:
        if isinstance(each, Residents):
            found.setdefault(_identity(each), each)
    return list(found.values())


def _identity(residents: Residents) -> tuple[str, bytes]:
    return residents.name, residents.counts.tobytes()


def _whereabouts(run: Seen, found: Residents | str, federations: Sequence[Residents], most: int) -> dict[str, Any]:
    """Which federation a run belongs to and how its groups are mixed, or why that is not known."""
    if isinstance(found, str):
        return {"federation": None, "unknown": found, "mixes": []}
    number = [_identity(each) for each in federations].index(_identity(found))
    return {"federation": number, "unknown": "", "mixes": found.of_groups(run.records.groups, most)}


def _faults(gathering: Gathering) -> list[dict[str, Any]]:
    """How often each thing went wrong with each method, and what was done about it; reasons are left to the list."""
    counted = Counter(
        (number, str(event["what"]), _briefly(event)) for number, run in gathering.runs for event in run.events
    )
    return [
        {"method": number, "what": what, "done": done, "times": times}
        for (number, what, done), times in counted.most_common()
    ]


def _briefly(event: Row) -> str:
    """`refused: non-finite weights` is a refusal."""
    return "the run ended" if event["what"] == DIVERGED else str(event["done"]).partition(":")[0]


def _events(gathering: Gathering, most: int) -> list[dict[str, Any]]:
    """Faults one by one; of very many, the first ones of each run."""
    share = most // max(1, sum(bool(run.events) for _, run in gathering.runs))
    return [
        {"method": number, "seed": run.seed, **event}
        for number, run in gathering.runs
        for event in sorted(run.events, key=lambda event: int(event["round"]))[:share]
    ]


def _spec(party: Party) -> dict[str, Any]:
    """What it takes to do the same again."""
    run = party.runs[0]
    facts = run.records.facts
    return {
        "name": party.name,
        "seeds": [each.seed for each in party.runs],
        "text": (run.records.path / "spec.yaml").read_text(encoding="utf-8"),
        "command": f"fedrelay run {run.records.path / 'spec.yaml'} --seed {run.seed}",
        "versions": dict(facts.get("versions", {})),
        "data_fingerprint": facts.get("data_fingerprint"),
        "own": [what for what in ("data", "model") if facts.get(f"own_{what}")],
    }
