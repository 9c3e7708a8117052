"""What came of claims, as plain data: `results.json`, from which pages and tables are made."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedrelay.claims.cases import Case
from fedrelay.claims.claim import SCALES, Scale
from fedrelay.claims.studies import Study
from fedrelay.claims.studies.base import read_json
from fedrelay.files import make_folder, write_atomically
from fedrelay.runtime.versions import versions

RESULTS = "results.json"
NOT_RUN = "not run"

Entry = dict[str, Any]
"""What is known of one claim at one scale."""


def entry_of(case: Case, problems: Mapping[str, str] = MappingProxyType({})) -> Entry:
    """A claim in numbers, by what is there; `problems` says what kept studies from being done, by their titles."""
    head: Entry = {"claim": case.claim.claim, "title": case.claim.title, "scale": case.scale}
    if case.obstacle is not None:
        return {**head, "verdict": NOT_RUN, "reason": case.obstacle}
    pieces = [(study, piece) for study in case.studies.values() for piece in study.pieces]
    left = sum(not study.done(piece) for study, piece in pieces)
    if left:
        failed = next((problems[study.title] for study, _ in pieces if study.title in problems), None)
        rest = f"{left} of {len(pieces)} runs are still to be done" if left < len(pieces) else None
        return {**head, "verdict": NOT_RUN, "reason": failed or rest}
    judgement = case.judge()
    failed_runs = [
        f"{study.label(name)}, seed {seed}: {subject.problem}"
        for study in case.studies.values()
        for name in study.subjects
        for seed in case.seeds
        if (subject := study.subject(name, seed)).problem is not None
    ]
    return {
        **head,
        "seeds": list(case.seeds),
        "verdict": judgement.verdict,
        "findings": [asdict(finding) for finding in judgement.findings],
        "failed_runs": failed_runs,
        "measured": {name: _measured(study, case.seeds) for name, study in case.studies.items()},
        "seconds": sum(study.seconds(seed) for study in case.studies.values() for seed in case.seeds),
        "versions": dict(versions()),
    }


def judged_again(entry: Entry, case: Case) -> Entry:
    """An entry by the criteria of today, where its runs are still there."""
    found = entry_of(case)
    return entry if found["verdict"] == NOT_RUN else {**found, "versions": entry["versions"]}


def update_results(out: Path, scale: Scale, entries: Iterable[Entry]) -> dict[int, Entry]:
    """Put entries beside those of other claims; one that was not run takes no other's place."""
    make_folder(out / scale)
    with _alone(out / scale):
        found = load_results(out, scale)
        for entry in entries:
            if entry["verdict"] != NOT_RUN or entry["claim"] not in found:
                found[entry["claim"]] = entry
        known = {str(number): entry for number, entry in sorted(found.items())}
        text = json.dumps({"scale": scale, "claims": known}, indent=1, ensure_ascii=False, allow_nan=False)
        write_atomically(out / scale / RESULTS, f"{text}\n".encode())
    return found


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """While nobody else changes the results of a folder: several may run claims there at once."""
    with (folder / f".{RESULTS}.lock").open("w") as handle:
        fcntl.lockf(handle, fcntl.LOCK_EX)
        yield


def load_results(out: Path, scale: Scale) -> dict[int, Entry]:
    """What is known at a scale, by claim."""
    path = out / scale / RESULTS
    if not path.is_file():
        return {}
    return {int(number): entry for number, entry in read_json(path).get("claims", {}).items()}


def best_results(out: Path, least: Scale) -> dict[int, Entry]:
    """For every claim what is known at the largest scale at which it was run, from the least one on that counts."""
    found: dict[int, Entry] = {}
    for scale in SCALES[SCALES.index(least) :]:
        for number, entry in load_results(out, scale).items():
            if entry["verdict"] != NOT_RUN or number not in found:
                found[number] = entry
    return found


def _measured(study: Study, seeds: Iterable[int]) -> dict[str, dict[str, list[float | None]]]:
    """Subject → measure → one value for each seed."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for name in study.subjects:
        values: list[Mapping[str, float | None]] = [study.subject(name, seed).values for seed in seeds]
        measures = dict.fromkeys(measure for each in values for measure in each)
        found[study.label(name)] = {measure: [each.get(measure) for each in values] for measure in measures}
    return found
