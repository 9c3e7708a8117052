"""Results of experiments in small files, from which the page can be made again without the runs.

A file holds the measures and the learning curves of all finished runs of an experiment at a scale, and its settings: if
those have changed since, the file does not count. Claims whose runs are not all finished can go on from these files on
another machine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrelay.errors import RunFolderError
from fedrelay.files import make_folder, write_atomically
from fedrelay_reproduce.claim import Claim, Scale
from fedrelay_reproduce.criteria import Measured

CURVE = ("round", "accuracy", "client_updates", "virtual_seconds", "bytes")
"""What is kept of every evaluation."""

DIGITS = 6

Record = dict[str, Any]
"""The content of a file."""


def record_path(records: Path, scale: Scale, experiment: str) -> Path:
    """The file of an experiment; `experiment` is its folder below that of the scale."""
    return records / scale / f"{experiment.replace('/', '-')}.json"


def has_records(claim: Claim, scale: Scale, records: Path) -> bool:
    """Whether there is a file for an experiment of a claim at a scale."""
    experiments = claim.experiments_at(scale).values() if scale in claim.scales else ()
    return any(record_path(records, scale, each.folder).is_file() for each in experiments)


def load_record(path: Path, spec: Mapping[str, Any]) -> Record | None:
    """The file of an experiment, if it was made with these settings."""
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunFolderError(f"{path}: is damaged ({error}); restore or remove it") from None
    for name in ("settings", "runs", "seconds"):
        if not isinstance(found, dict) or not isinstance(found.get(name), dict):
            raise RunFolderError(f"{path}: is damaged (no {name}); restore or remove it")
    return found if found["settings"] == plain(spec) else None


def write_record(
    path: Path, spec: Mapping[str, Any], runs: Mapping[str, Mapping[int, Measured]], facts: Record
) -> None:
    """Write what was measured, by method and seed; `facts` are kept as they are. Runs that a file has stay there."""
    known = load_record(path, spec) or {"runs": {}, "seconds": {}}
    found = {name: {str(seed): _run(of) for seed, of in seeds.items()} for name, seeds in runs.items()}
    content = {
        **facts,
        "seconds": {**known["seconds"], **facts["seconds"]},
        "settings": plain(spec),
        "runs": {name: {**known["runs"].get(name, {}), **seeds} for name, seeds in found.items()},
    }
    make_folder(path.parent)
    write_atomically(path, f"{_text(content)}\n".encode())


def measured_of(record: Record, name: str, seed: int) -> Measured | None:
    """What a file says of a run; None if it is not there."""
    run = record["runs"].get(name, {}).get(str(seed))
    if run is None:
        return None
    columns = [run["curve"][each] for each in run["curve"]]
    curve = [dict(zip(run["curve"], row, strict=True)) for row in zip(*columns, strict=True)]
    return Measured(name, run["values"], curve, run["rounds"], run["problem"])


def plain(spec: Mapping[str, Any]) -> Any:
    """Settings as JSON has them."""
    return json.loads(json.dumps(spec, default=str))


def _run(of: Measured) -> Record:
    kept = [name for name in CURVE if all(name in row for row in of.curve)] if of.curve else []
    return {
        "values": {name: _short(value) for name, value in of.values.items()},
        "curve": {name: [_short(row[name]) for row in of.curve] for name in kept},
        "rounds": of.rounds,
        "problem": of.problem,
    }


def _short(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _text(content: Record) -> str:
    """JSON with one run a line."""
    runs = content["runs"]
    head = json.dumps({**content, "runs": None}, indent=1, ensure_ascii=False)
    lines = ",\n".join(
        f"  {json.dumps(name, ensure_ascii=False)}: {{\n"
        + ",\n".join(f'   "{seed}": {json.dumps(run, ensure_ascii=False)}' for seed, run in seeds.items())
        + "\n  }"
        for name, seeds in runs.items()
    )
    return head.replace('"runs": null', f'"runs": {{\n{lines}\n }}')
