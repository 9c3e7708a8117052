"""Everything that a page shows, as one JSON document: plain numbers, names and lists, made from folders alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedrelay.ledger import KINDS
from fedrelay.metrics.curves import targets_of
from fedrelay.report.courses import course
from fedrelay.report.format import count, plural, step_size
from fedrelay.report.gathering import Gathering, Party, Seen, gather
from fedrelay.report.journeys import MOST_CELLS, MOST_STOPS, journey, memories, shared_out
from fedrelay.report.residents import Residents, residents_of
from fedrelay.report.standings import Standing, standings
from fedrelay.result import Row
from fedrelay.spec import Experiment

Document = dict[str, Any]
MOST_EVENTS = 2000
"""So many faults are listed one by one."""


def document(paths: Sequence[Path]) -> Document:
    """Look at folders of runs and comparisons, and put down what there is to see."""
    return describe(gather(paths))


def describe(gathering: Gathering) -> Document:
    """A gathering as the page has it."""
    runs = [run for _, run in gathering.runs]
    residents = [residents_of(run) for run in runs]
    federations = _distinct(residents)
    events, fault_count = _events(gathering)
    return {
        "fedrelay": version("fedrelay"),
        "title": _title(gathering),
        "facts": _facts(runs, federations),
        "folders": [str(path) for path in gathering.paths],
        "states": dict(Counter(run.status for run in runs)),
        "runs_in_all": sum(len(party.seeds) for party in gathering.parties),
        **_goals(gathering),
        "methods": _methods(gathering),
        "federations": [each.facts() for each in federations],
        "journeys": [
            {
                "method": number,
                "seed": run.seed,
                **_whereabouts(run, found, federations),
                **journey(run, shared_out(MOST_STOPS, runs)),
                "forgetting": memories(run, shared_out(MOST_CELLS, runs)),
            }
            for (number, run), found in zip(gathering.runs, residents, strict=True)
        ],
        "events": events,
        "events_in_all": fault_count,
        "specs": [_spec(party) for party in gathering.parties if party.runs],
    }


def _title(gathering: Gathering) -> str:
    names = [party.name for party in gathering.parties]
    if not names:
        return "No runs yet"
    data = next((run.experiment.data.name for _, run in gathering.runs), gathering.comparison.data.name)
    listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    return f"{listed} on {Path(data).stem}"


def _facts(runs: Sequence[Seen], federations: Sequence[Residents]) -> dict[str, str]:
    """What all runs have in common, for the head of the page."""
    if not runs:
        return {}
    plans = [run.records.plan for run in runs]
    first, clients = runs[0].experiment, max(plan["clients"] for plan in plans)
    dealt = "" if first.data.alpha is None else f", alpha {first.data.alpha:g}"
    return {
        "data": f"{Path(first.data.name).stem}{dealt}",
        "clients": count(first.data.clients or clients),
        **({"samples": count(federations[0].samples)} if federations else {}),
        "model": f"{first.model.name or 'own'}, {count(plans[0]['parameters'])} parameters",
        "rounds": count(max(run.experiment.rounds for run in runs)),
        "take part": f"{first.fraction:.0%} a round",
        "training": _training(first),
        "seeds": ", ".join(map(str, sorted({run.seed for run in runs}))),
    }


def _training(experiment: Experiment) -> str:
    train = experiment.train
    return f"{plural(train.epochs, 'epoch')}, batch {train.batch_size}, step {step_size(train)}"


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


def _methods(gathering: Gathering) -> list[dict[str, Any]]:
    if not gathering.parties:
        return []
    return [
        {
            "name": party.name,
            "method": party.method,
            "runs": [_run(party, seed) for seed in party.seeds],
            "course": course(party.evaluated),
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
    left_out = ("runs", "method", "mishaps", "diverged", "fruitless")
    return {name: value for name, value in standing.facts().items() if name not in left_out}


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


def _whereabouts(run: Seen, found: Residents | str, federations: Sequence[Residents]) -> dict[str, Any]:
    """Which federation a run belongs to and how its groups are mixed, or why that is not known."""
    if isinstance(found, str):
        return {"federation": None, "unknown": found, "mixes": []}
    number = [_identity(each) for each in federations].index(_identity(found))
    return {"federation": number, "unknown": "", "mixes": found.of_groups(run.records.groups)}


def _events(gathering: Gathering) -> tuple[list[dict[str, Any]], int]:
    """Faults of all runs, the first ones, and how many there are."""
    events = [
        {"method": number, "seed": run.seed, **event}
        for number, run in gathering.runs
        for event in sorted(run.events, key=lambda event: int(event["round"]))
    ]
    return events[:MOST_EVENTS], len(events)


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
