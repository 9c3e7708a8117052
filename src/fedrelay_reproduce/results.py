"""The results of claims as plain data: `results.json`, from which tables and the page are made."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import fedrelay as fr
from fedrelay.file_lock import lock_file
from fedrelay.files import make_folder, write_atomically
from fedrelay.runtime.versions import versions
from fedrelay_reproduce.claim import SCALES, Claim, Scale
from fedrelay_reproduce.criteria import EQUAL_COSTS
from fedrelay_reproduce.experiments import ExperimentRuns
from fedrelay_reproduce.experiments.base import read_json
from fedrelay_reproduce.records import has_records, record_path, write_record
from fedrelay_reproduce.scaled_claim import ScaledClaim, scaled_claim

RESULTS = "results.json"
NOT_RUN = "not run"

Entry = dict[str, Any]
"""What is known of one claim at one scale."""


def entry_of(scaled: ScaledClaim, problems: Mapping[str, str] = MappingProxyType({})) -> Entry:
    """The result of a claim by the runs that are there; `problems` are errors of experiments, by title."""
    head: Entry = {"claim": scaled.claim.number, "title": scaled.claim.title, "scale": scaled.scale}
    supplements, finished = scaled.claim.supplements, scaled.finished
    runs = [run for name, each in scaled.experiments.items() if name not in supplements for run in each.runs]
    left = sum(not run.done for run in runs)
    if left:
        titles = [each.title for each in scaled.experiments.values()]
        failed = next((problems[title] for title in titles if title in problems), None)
        rest = f"{left} of {len(runs)} runs at scale {scaled.scale} are still to be done" if left < len(runs) else None
        return {**head, "verdict": NOT_RUN, "reason": failed or rest or scaled.obstacle}
    verdict, checks = scaled.judge()
    return {
        **head,
        "seeds": list(scaled.seeds),
        "verdict": verdict,
        "remark": scaled.claim.remark(scaled.scale, verdict),
        "checks": [asdict(check) for check in checks],
        "failed_runs": [
            f"{name}, seed {seed}: {problem}"
            for each in finished.values()
            for name in each.names
            for seed in each.seeds
            if (problem := each.measured(name, seed).problem) is not None
        ],
        "measured": {name: _measured(each, each.seeds) for name, each in finished.items()},
        "seconds": sum(each.seconds(seed) for each in finished.values() for seed in each.seeds),
        "versions": dict(versions()),
    }


def judged_again(entry: Entry, scaled: ScaledClaim) -> Entry:
    """The entry by today's criterion, if its runs are still there."""
    found = entry_of(scaled)
    return entry if found["verdict"] == NOT_RUN else {**found, "versions": entry["versions"]}


def recorded_entries(claims: Mapping[int, Claim], least: Scale, out: Path, records: Path) -> dict[int, Entry]:
    """For every claim with records the entry at the largest scale that has them all, or what is still to be done."""
    found: dict[int, Entry] = {}
    for scale in SCALES[SCALES.index(least) :]:
        for number, claim in claims.items():
            if has_records(claim, scale, records):
                scaled = scaled_claim(claim, scale, out, records=records)
                entry = entry_of(scaled)
                known = [each.record["versions"] for each in scaled.experiments.values() if each.record]
                if entry["verdict"] != NOT_RUN:
                    found[number] = {**entry, "versions": known[0] if known else entry["versions"]}
                elif entry["reason"] is not None:
                    found.setdefault(number, entry)
    return found


def at_larger_scale(here: Mapping[int, Entry], recorded: Mapping[int, Entry]) -> dict[int, Entry]:
    """For every claim the entry of the larger scale; at the same scale that of the runs which are here."""

    def rank(entry: Entry) -> tuple[bool, int]:
        return entry["verdict"] != NOT_RUN, SCALES.index(entry["scale"])

    numbers = sorted({*here, *recorded})
    known = {number: [each[number] for each in (here, recorded) if number in each] for number in numbers}
    return {number: max(entries, key=rank) for number, entries in known.items()}


def write_records(scaled: ScaledClaim, records: Path) -> None:
    """Keep what the finished runs of a claim measured, so that nothing needs to be run again for its page."""
    for each in scaled.experiments.values():
        if not any(each.done_here(run) for run in each.runs):
            continue
        runs = {
            name: {seed: each.measured(name, seed) for seed in each.seeds if each.finished(name, seed)}
            for name in each.names
        }
        seeds = sorted({seed for of in runs.values() for seed in of})
        facts = {
            "versions": dict(versions()),
            "seconds": {str(seed): round(each.seconds(seed), 1) for seed in seeds},
        }
        write_record(record_path(records, scaled.scale, each.title), each.spec, runs, facts)


def keep_finished_runs(claims: Iterable[Claim], least: Scale, out: Path, records: Path) -> None:
    """Write records of all runs below `out`, also of claims that are not complete."""
    for scale in SCALES[SCALES.index(least) :]:
        for claim in claims:
            experiments = claim.experiments_at(scale).values() if scale in claim.scales else ()
            if any((out / scale / each.folder).is_dir() for each in experiments):
                write_records(scaled_claim(claim, scale, out, records=records), records)


def update_results(out: Path, scale: Scale, entries: Iterable[Entry]) -> None:
    """Write entries beside those of other claims; an entry that was not run replaces no other."""
    make_folder(out / scale)
    # Several commands may run claims in one folder at once.
    lock = lock_file(out / scale / f".{RESULTS}.lock", wait=True)
    try:
        found = load_results(out, scale)
        for entry in entries:
            if entry["verdict"] != NOT_RUN or entry["claim"] not in found:
                found[entry["claim"]] = entry
        known = {str(number): entry for number, entry in sorted(found.items())}
        text = json.dumps({"scale": scale, "claims": known}, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(out / scale / RESULTS, f"{text}\n".encode())
    finally:
        os.close(lock)


def load_results(out: Path, scale: Scale) -> dict[int, Entry]:
    """The entries of a scale, by claim."""
    path = out / scale / RESULTS
    if not path.is_file():
        return {}
    found = {int(number): entry for number, entry in read_json(path).get("claims", {}).items()}
    if any("findings" in entry for entry in found.values()):
        raise fr.RunFolderError(f"{path}: has an older format; remove it and run the same command again")
    return found


def best_results(out: Path, least: Scale) -> dict[int, Entry]:
    """For every claim the entry at the largest scale at which it was run; smaller scales than `least` do not count."""
    found: dict[int, Entry] = {}
    for scale in SCALES[SCALES.index(least) :]:
        for number, entry in load_results(out, scale).items():
            if entry["verdict"] != NOT_RUN or number not in found:
                found[number] = entry
    return found


def _measured(experiment: ExperimentRuns, seeds: Sequence[int]) -> dict[str, dict[str, list[float | None]]]:
    """Method or grouping → measure → one value for each seed."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for name in experiment.names:
        values = [experiment.measured(name, seed).values for seed in seeds]
        measures = dict.fromkeys(measure for each in values for measure in each)
        found[name] = {measure: [each.get(measure) for each in values] for measure in measures}
    for measure, cost in EQUAL_COSTS.items():
        for seed in seeds:
            for name, accuracy in _at_equal_cost(experiment, seed, cost).items():
                found[name].setdefault(measure, []).append(accuracy)
    return found


def _at_equal_cost(experiment: ExperimentRuns, seed: int, cost: str) -> dict[str, float | None]:
    """The accuracy of every method when it had spent what the cheapest spends in all; empty if all spend the same."""
    runs = {name: experiment.measured(name, seed) for name in experiment.names}
    spent = {name: run.curve[-1].get(cost) for name, run in runs.items() if run.curve}
    known = [total for total in spent.values() if total]
    if len(known) < 2 or min(known) > 0.99 * max(known):
        return {}
    limit = min(known) * (1 + 1e-6)  # records have fewer digits than runs
    within = {name: [row["accuracy"] for row in run.curve if row[cost] <= limit] for name, run in runs.items()}
    return {name: accuracies[-1] if accuracies else None for name, accuracies in within.items()}
