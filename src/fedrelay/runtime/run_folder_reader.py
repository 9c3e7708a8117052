"""Reads run folders; `run_folder` writes them, and says what they hold. Nothing here needs PyTorch but profiles."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.error_messages import nearest_path
from fedrelay.experiment.method_catalogue import training_of
from fedrelay.experiment.sections import Training
from fedrelay.experiment.spec import Experiment, load_file, validate
from fedrelay.file_lock import is_locked
from fedrelay.files import read_regular_file
from fedrelay.runtime.record_lines import (
    CHECKSUMS,
    complete_lines,
    is_number,
    is_text,
    read_checksums,
    readable_rows,
    why_damaged,
    why_unverified,
)
from fedrelay.tasks.task_facts import CLASSIFICATION, TaskFacts

if TYPE_CHECKING:
    from fedrelay.data.client_class_counts import ClientClassCounts
    from fedrelay.grouping.profiles import ProfilingResult

FORMAT = 2
PROFILES, SELECTION, PROBE = (f"{name}.safetensors" for name in ("profiles", "selection", "probe"))
CLASS_COUNTS = "class_counts.npz"
SETUP_FILES = (PROFILES, SELECTION, PROBE, CLASS_COUNTS)
"""Files that are written once, where a run has them."""

_WRITTEN_FIRST = (".lock", "spec.yaml", "plan.json", *SETUP_FILES)
_NAME = re.compile(r"[0-9a-f]{16}")
OPEN_FOLDERS: set[Path] = set()
"""Folders that are open in this process; file locks only work between processes."""


class RunFolderReader:
    """The records of a run, for reading; the run may still be going on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing run folder. Anything else is refused and left untouched."""
        if not path.is_dir():
            raise RunFolderError(f"{path}: there is no such run folder{nearest_path(path)}")
        if not (path / "run.json").is_file():
            raise RunFolderError(f"{path}: is not a run folder (run.json is missing)")
        facts = read_json(path / "run.json")
        if facts.get("format") != FORMAT:
            raise RunFolderError(
                f"{path}: run.json has format {facts.get('format')!r}, this version reads format {FORMAT}; read the "
                "folder with the version of FedRelay that wrote it, or run the experiment again"
            )
        checksums = facts["sha256"] if isinstance(facts.get("sha256"), dict) else {}
        for name in dict.fromkeys(("spec.yaml", "plan.json", *(Path(each).name for each in checksums))):
            try:
                found = sha256_of_file(path / name)
            except OSError as error:
                raise RunFolderError(f"{path / name}: cannot be read ({error.strerror})") from None
            # `extend` writes run.json first: until spec.yaml follows, the run has the number of rounds it had before.
            before = [each.get("spec_sha256") for each in _extensions(path, facts)[-1:]] if name == "spec.yaml" else []
            if found not in (checksums.get(name), *before):
                raise RunFolderError(f"{path / name}: is not what the run was started with (its checksum differs)")
        return cls(path)

    @property
    def facts(self) -> dict[str, Any]:
        """The content of `run.json`."""
        return read_json(self.path / "run.json")

    @property
    def name(self) -> str:
        """The name of the run among all runs; it stays the same when the folder is moved."""
        name = self.facts.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RunFolderError(f"{self.path / 'run.json'}: is damaged (the name of the run cannot be read)")
        return name

    @property
    def training(self) -> Training:
        """Whether clients train together, each alone, or on pooled data; folders of older versions do not say it."""
        found: Training = self.facts.get("training") or training_of(self.experiment.method)
        if found not in get_args(Training):
            raise RunFolderError(f"{self.path / 'run.json'}: is damaged (training {found!r})")
        return found

    @property
    def task(self) -> TaskFacts:
        """What was learned, and the metric that the run is judged by; folders of older versions know classes alone."""
        facts = self.facts.get("task")
        try:
            return CLASSIFICATION if facts is None else TaskFacts.from_dict(facts)
        except ValueError as error:
            raise RunFolderError(f"{self.path / 'run.json'}: is damaged ({error})") from None

    @property
    def extensions(self) -> list[dict[str, Any]]:
        """All changes of the number of rounds and of the withdrawn clients, the first one first."""
        facts = self.facts
        found = _extensions(self.path, facts)
        in_effect = facts["sha256"]["spec.yaml"] == sha256_of_file(self.path / "spec.yaml")
        return found if in_effect else found[:-1]

    @property
    def plan(self) -> dict[str, Any]:
        """The content of `plan.json`."""
        return read_json(self.path / "plan.json")

    @property
    def groups(self) -> tuple[tuple[int, ...], ...] | None:
        """The groups that were formed before the first round; None if they follow from the seed and are not stored."""
        path = self.path / "plan.json"
        facts = self.plan
        try:
            if facts["groups"] is None and int(facts["group_count"]) > 0:
                return None
            groups = tuple(tuple(int(client) for client in group) for group in facts["groups"])
            members = [client for group in groups for client in group]
            if len(set(members)) < len(members) or not set(members) <= set(range(int(facts["clients"]))):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise RunFolderError(f"{path}: is damaged (its groups cannot be read)") from None
        return groups

    @property
    def setup_line(self) -> dict[str, Any] | None:
        """Line 0 of the ledger, if clients did anything before the first round."""
        setup = self.plan.get("setup")
        return setup if isinstance(setup, dict) else None

    def profiling(self, name: str) -> ProfilingResult | None:
        """The profiles in a file of the folder, if there are any; they are never computed twice."""
        path = self.path / name
        if not path.is_file():
            return None
        import numpy as np
        from safetensors import SafetensorError
        from safetensors.torch import load

        from fedrelay.grouping.profiles import ProfilingResult

        try:
            vectors = load(read_regular_file(path))["vectors"].numpy().astype(np.float64)
        except (OSError, KeyError, SafetensorError) as error:
            raise RunFolderError(f"{path}: is damaged ({error})") from None
        return ProfilingResult(vectors)

    @property
    def class_counts(self) -> ClientClassCounts | None:
        """How many samples of each class the clients have, if the folder says it."""
        path = self.path / CLASS_COUNTS
        if not path.is_file():
            return None
        from fedrelay.data.client_class_counts import ClientClassCounts

        try:
            return ClientClassCounts.from_bytes(read_regular_file(path))
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path}: is damaged ({error})") from None

    @property
    def experiment(self) -> Experiment:
        """The resolved experiment."""
        try:
            return validate(Experiment, {**load_file(self.path / "spec.yaml"), "out": self.path})
        except SpecError as error:
            raise RunFolderError(f"{self.path}: spec.yaml is damaged: {error}") from None

    @property
    def result(self) -> dict[str, Any] | None:
        """The summary of a complete run."""
        path = self.path / "result.json"
        return read_json(path) if path.is_file() else None

    @property
    def stopped(self) -> str:
        """Why the run stopped before its last round; empty if it did not."""
        return str(self._checkpoint.get("stopped", ""))

    @property
    def best(self) -> dict[str, Any] | None:
        """Round, metric and value of the best model on validation samples so far, if there is one."""
        found = (self.result or self._checkpoint).get("best")
        if found is None:
            return None
        best = {name: found.get(name) for name in ("round", "metric", "value")} if isinstance(found, dict) else {}
        if not (is_number(best.get("round")) and is_number(best.get("value")) and is_text(best.get("metric"))):
            raise RunFolderError(f"{self.path}: is damaged (its best model cannot be read)")
        return best

    @property
    def _checkpoint(self) -> dict[str, Any]:
        """What is known of the newest checkpoint; empty if there is none."""
        path = self.path / "checkpoint.json"
        return read_json(path) if path.is_file() else {}

    @property
    def saved_round(self) -> int:
        """The round of the newest checkpoint, after which `resume` continues; 0 if there is none."""
        path = self.path / "checkpoint.json"
        round = read_json(path).get("round") if path.is_file() else 0
        if not isinstance(round, int):
            raise RunFolderError(f"{path}: is damaged (its round cannot be read)")
        return round

    def lines(self, stream: str) -> list[dict[str, Any]]:
        """All complete lines of a stream.

        Raises:
            RunFolderError: A line is damaged, was changed, is missing, or was added to a round that was saved before.
        """
        path = self.path / f"{stream}.jsonl"
        # In this order: a run that goes on writes lines first, then their checksums, then the checkpoint.
        saved, checksums = self.saved_round, self._checksums(stream)
        complete = (self.path / "result.json").exists()
        try:
            lines = complete_lines(path)
            # All lines of a complete run were flushed; a folder of an earlier version does not say how many were.
            all_flushed = complete or (checksums is None and saved > 0)
            flushed = len(lines) if all_flushed else sum(round <= saved for round, _ in checksums or ())
            rows = readable_rows(lines, flushed)
            lines = lines[: len(rows)]
        except (OSError, ValueError, RecursionError) as error:
            raise RunFolderError(f"{path}: is damaged ({error})") from None
        known = stream == "metrics" and (self.path / "run.json").is_file()  # a run that is just being created has none
        headline = self.task.headline if known else None
        if problem := next(filter(None, (why_damaged(stream, row, headline) for row in rows)), ""):
            raise RunFolderError(f"{path}: is damaged (a line {problem})")
        if checksums is not None and (problem := why_unverified(stream, lines, rows, checksums, saved, complete)):
            raise RunFolderError(
                f"{path}, {problem}. Restore the file from a copy, or delete {CHECKSUMS} to go on with what is there"
            )
        return rows

    @property
    def final_metrics(self) -> dict[str, Any]:
        """With `eval.subset`, the metrics on all samples at the end of the run; empty before, and without a subset."""
        found = self.lines("final_metrics")
        return found[-1] if found else {}

    def _checksums(self, stream: str) -> list[tuple[int, str]] | None:
        """Round and checksum of the lines of a stream, up to a checkpoint; None in folders of earlier versions."""
        path = self.path / CHECKSUMS
        if not path.exists():
            return None
        try:
            # There is a line for each round, and maybe one for the setup.
            return read_checksums(readable_rows(complete_lines(path), self.saved_round))[stream]
        except (AttributeError, KeyError, OSError, RecursionError, TypeError, ValueError) as error:
            raise RunFolderError(f"{path}: is damaged ({error}); delete it to go on without checksums") from None

    @property
    def under_way(self) -> bool:
        """Whether a process is working on the run now."""
        if self.path.resolve() in OPEN_FOLDERS:
            return True
        return is_locked(self.path / ".lock")


def beyond_the_first(path: Path) -> set[str]:
    """The names in a folder, without files that are written before a run has begun."""
    return {file.name for file in path.iterdir() if file.name not in _WRITTEN_FIRST and not is_temporary(file.name)}


def _extensions(path: Path, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = facts.get("extensions", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise RunFolderError(f"{path / 'run.json'}: is damaged (its extensions cannot be read)")
    return found


def sha256_of_file(path: Path) -> str:
    """The checksum of a file."""
    return hashlib.sha256(read_regular_file(path)).hexdigest()


def is_temporary(name: str) -> bool:
    """Whether a file is one that was to replace another when its writer ended."""
    return name.startswith(".") and name.endswith(".tmp")


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a run.

    Raises:
        RunFolderError: It cannot be read, or is no object.
    """
    try:
        value = json.loads(read_regular_file(path))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path}: is damaged ({error})") from None
    if not isinstance(value, dict):
        raise RunFolderError(f"{path}: is damaged (not an object)")
    return value
