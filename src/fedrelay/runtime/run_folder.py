"""The run folder: everything that is known of a run, and everything that is needed to continue it.

    run.json              format, versions, the run's name, the data's fingerprint, the method's options, the task's
                          metrics and how they are read, extensions
    spec.yaml             the resolved experiment; only the number of rounds and the withdrawn clients ever change
    plan.json             groups and a summary of what travels; written once
    clients/              client state, one file for each client
    selection.safetensors profiles of clients, where the clients of a warm-up are chosen by them; written once
    profiles.safetensors  profiles of clients, where groups depend on them; written once
    probe.safetensors     the probe network of the profiles, where there is one; written once
    metrics.jsonl         one line for each evaluated round; equal runs have equal bytes
    ledger.jsonl          one line for each round: routes, transfers, bytes; line 0 is the setup
    forgetting.jsonl      one line for each followed route: the score on each client's samples after each hop
    events.jsonl          one line for each fault event; −1 stands for the server or the round as a whole
    timings.jsonl         one line for each round: real seconds, the only thing that differs between equal runs
    checksums.jsonl       one line for each round: the checksums of its lines in all files above, up to the checkpoint
    checkpoint.json       names the newest checkpoint and its checksum
    round-N.safetensors   the state after round N
    best-N.safetensors    the best model on validation samples so far, of round N
    model.safetensors     the final model under the module's own names
    best.safetensors      the best model on validation samples, under the module's own names
    result.json           the summary, with the reason if the run stopped early; a run with this file is complete

Files are replaced atomically, and lines are appended with one write. The checkpoint is the commit point: lines after it
are dropped on resume and written again. Everything it refers to is flushed to disk before it is written, and what it
replaces is deleted after it was flushed itself; so a loss of power costs no more than a kill.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import yaml
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.spec import Experiment, load_file, validate
from fedrelay.files import make_folder, read_regular_file, write_atomically
from fedrelay.grouping.profiles import ProfilingResult
from fedrelay.runtime.record_lines import (
    CHECKSUMS,
    STREAMS,
    checksum_lines,
    complete_lines,
    is_number,
    is_text,
    json_line,
    note_checksum,
    read_checksums,
    readable_rows,
    why_damaged,
    why_unverified,
)
from fedrelay.runtime.run_state import BestSoFar, RunState, state_from_tensors, state_tensors
from fedrelay.runtime.unsaved_inputs import how_to_continue
from fedrelay.runtime.versions import versions
from fedrelay.tasks.task_facts import CLASSIFICATION, TaskFacts

log = logging.getLogger(__name__)

FORMAT = 2
PROFILES, SELECTION, PROBE = (f"{name}.safetensors" for name in ("profiles", "selection", "probe"))
_WRITTEN_FIRST = (".lock", "spec.yaml", "plan.json", PROFILES, SELECTION, PROBE)
_OPEN: set[Path] = set()
"""Folders that are open in this process; file locks only work between processes."""

_NAME = re.compile(r"[0-9a-f]{16}")
"""The name of a run, which stays the same when its folder is moved."""

_FLOCK = "hhqqi4x"
"""The layout of `struct flock` on Linux: kind, whence, start, length, owner."""


class RunFolderReader:
    """The records of a run, for reading; the run may still be going on."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open an existing run folder. Anything else is refused and left untouched."""
        if not path.is_dir():
            raise RunFolderError(f"{path}: there is no such run folder")
        if not (path / "run.json").is_file():
            raise RunFolderError(f"{path}: is not a run folder (run.json is missing)")
        facts = _read_json(path / "run.json")
        if facts.get("format") != FORMAT:
            raise RunFolderError(
                f"{path}: run.json has format {facts.get('format')!r}, this version reads format {FORMAT}; read the "
                "folder with the version of FedRelay that wrote it, or run the experiment again"
            )
        checksums = facts["sha256"] if isinstance(facts.get("sha256"), dict) else {}
        for name in dict.fromkeys(("spec.yaml", "plan.json", *(Path(each).name for each in checksums))):
            try:
                found = _sha256(path / name)
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
        return _read_json(self.path / "run.json")

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
        in_effect = facts["sha256"]["spec.yaml"] == _sha256(self.path / "spec.yaml")
        return found if in_effect else found[:-1]

    @property
    def plan(self) -> dict[str, Any]:
        """The content of `plan.json`."""
        return _read_json(self.path / "plan.json")

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The groups that were formed before the first round; they are never formed twice."""
        path = self.path / "plan.json"
        facts = self.plan
        try:
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
        try:
            vectors = tensors_from_bytes(read_regular_file(path))["vectors"].numpy().astype(np.float64)
        except (OSError, KeyError, SafetensorError) as error:
            raise RunFolderError(f"{path}: is damaged ({error})") from None
        return ProfilingResult(vectors)

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
        return _read_json(path) if path.is_file() else None

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
        return _read_json(path) if path.is_file() else {}

    @property
    def saved_round(self) -> int:
        """The round of the newest checkpoint, after which `resume` continues; 0 if there is none."""
        path = self.path / "checkpoint.json"
        round = _read_json(path).get("round") if path.is_file() else 0
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
        if self.path.resolve() in _OPEN:
            return True
        try:
            handle = os.open(self.path / ".lock", os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return False
        try:
            # The lock is only tested, never taken, so that readers do not block the run.
            wanted = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            found: tuple[int, ...] = struct.unpack(_FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, wanted))
            return found[0] != fcntl.F_UNLCK
        finally:
            os.close(handle)


def beyond_the_first(path: Path) -> set[str]:
    """The names in a folder, without files that are written before a run has begun."""
    return {file.name for file in path.iterdir() if file.name not in _WRITTEN_FIRST and not _is_temporary(file.name)}


class RunFolder(RunFolderReader):
    """The folder of a run that this process works on; it is locked against other processes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._place = path.resolve()
        if self._place in _OPEN:
            raise RunFolderError(f"{path}: is open in this process already")
        self._lock = _lock(path)
        _OPEN.add(self._place)
        self._streams: dict[str, int] = {}
        self._unsaved_checksums: dict[int, dict[str, list[str]]] = {}
        """Round → stream → checksums of the lines since the last checkpoint."""

        self._best: dict[str, Any] | None = None
        """What `checkpoint.json` says about the best model that is on disk."""

    @classmethod
    def check(cls, path: Path) -> None:
        """Check that a new run can start in a folder; the folder stays as it is."""
        try:
            foreign = beyond_the_first(path) if path.is_dir() else set()
            nearest = next(each for each in (path, *path.absolute().parents) if each.exists())
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be created ({error.strerror})") from None
        if "run.json" in foreign:
            how = how_to_continue(path, _facts_or_none(path))
            raise RunFolderError(f"{path}: holds a run; continue it with {how} or choose another --out")
        if foreign:
            raise RunFolderError(f"{path}: is not empty; choose another --out")
        if not nearest.is_dir():
            raise RunFolderError(f"{path}: cannot be created ({nearest} is a file)")
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise RunFolderError(f"{path}: cannot be written (no permission for {nearest})")

    @classmethod
    def create(
        cls,
        path: Path,
        experiment: Experiment,
        facts: Mapping[str, Any],
        plan: Mapping[str, Any],
        profiles: Mapping[str, Mapping[str, Tensor]] | None = None,
    ) -> RunFolder:
        """Start a new run in a new or empty folder, or in one whose run died before it had begun.

        Args:
            path: The folder.
            experiment: The resolved experiment.
            facts: More entries of `run.json`.
            plan: The content of `plan.json`.
            profiles: File name → tensors that are stored beside the plan.
        """
        cls.check(path)
        make_folder(path)
        folder = cls(path)
        spec = _spec(experiment)
        files = {name: tensors_to_bytes(dict(tensors)) for name, tensors in (profiles or {}).items()}
        contents = {"spec.yaml": spec, "plan.json": json_line(plan), **files}
        for name in (PROFILES, SELECTION, PROBE):
            (path / name).unlink(missing_ok=True)
        for name, content in contents.items():
            write_atomically(path / name, content)
        checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        about = {"format": FORMAT, "versions": dict(versions()), "name": secrets.token_hex(8), "sha256": checksums}
        write_atomically(path / "run.json", json_line({**about, **facts}))
        if plan.get("setup") is not None:
            folder.append("ledger", plan["setup"])
        return folder

    @property
    def name(self) -> str:
        """The name of the run among all runs; it stays the same when the folder is moved."""
        name = self.facts.get("name")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RunFolderError(f"{self.path / 'run.json'}: is damaged (the name of the run cannot be read)")
        return name

    def close(self) -> None:
        for stream in self._streams.values():
            os.close(stream)
        self._streams = {}
        os.close(self._lock)
        _OPEN.discard(self._place)

    def append(self, stream: str, row: Mapping[str, Any]) -> None:
        """Append a line with one write, so that it is never written in part."""
        line = json_line(row)
        self._append(f"{stream}.jsonl", line)
        note_checksum(self._unsaved_checksums, stream, row, line)

    def _append(self, name: str, content: bytes) -> None:
        path = self.path / name
        try:
            if name not in self._streams:
                self._streams[name] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o644)
            written = os.write(self._streams[name], content)
            if written < len(content):
                os.ftruncate(self._streams[name], os.fstat(self._streams[name]).st_size - written)
        except OSError as error:
            raise RunFolderError(f"{path}: cannot be written ({error.strerror})") from None
        if written < len(content):
            raise RunFolderError(f"{path}: cannot be written (the disk is full)")

    def save(self, state: RunState, client_files: Sequence[str] = ()) -> None:
        """Write a checkpoint: tensors first, then the pointer to them; then old tensors are deleted."""
        name = f"round-{state.round}.safetensors"
        content = tensors_to_bytes(state_tensors(state))
        if self._unsaved_checksums:
            self._append(CHECKSUMS, checksum_lines(self._unsaved_checksums))
            self._unsaved_checksums = {}
        self._flush_lines()
        write_atomically(self.path / name, content)
        best = self._save_best(state.best) if state.best is not None else None
        pointer = {
            "round": state.round,
            "seconds": state.seconds,
            "typical_hop": state.typical_hop,
            "stopped": state.stopped,
            "merges": state.merges,
            "best": best,
            "file": name,
            "sha256": hashlib.sha256(content).hexdigest(),
            "clients": list(client_files),
            "waiting": {
                slot: {"clients": each.clients, "hops": [asdict(hop) for hop in each.hops], "legs": each.visited_groups}
                for slot, each in state.waiting.items()
            },
        }
        write_atomically(self.path / "checkpoint.json", json_line(pointer))
        for old in (*self.path.glob("round-*.safetensors"), *self.path.glob("best-*.safetensors")):
            if old.name not in (name, best and best["file"]):
                old.unlink()

    def _flush_lines(self) -> None:
        """Flush all lines to disk, before a checkpoint refers to them; new files get their names with its tensors."""
        for name, stream in self._streams.items():
            try:
                os.fsync(stream)
            except OSError as error:
                raise RunFolderError(f"{self.path / name}: cannot be written ({error.strerror})") from None

    def _save_best(self, best: BestSoFar) -> dict[str, Any]:
        """Write the best model, unless it is on disk already, and return the pointer to it."""
        if self._best is None or self._best["round"] != best.round:
            name, content = f"best-{best.round}.safetensors", tensors_to_bytes({"weights": best.weights})
            write_atomically(self.path / name, content)
            checksum = hashlib.sha256(content).hexdigest()
            self._best = {
                "round": best.round, "metric": best.metric, "value": best.value, "file": name, "sha256": checksum,
            }  # fmt: skip
        return self._best

    def _restore_best(self, pointer: Mapping[str, Any]) -> BestSoFar:
        content = self._checked_file(pointer)
        self._best = dict(pointer)
        weights = tensors_from_bytes(content)["weights"]
        return BestSoFar(int(pointer["round"]), str(pointer["metric"]), float(pointer["value"]), weights)

    def _checked_file(self, pointer: Mapping[str, Any]) -> bytes:
        """The content of the file that a pointer names."""
        path = self.path / Path(pointer["file"]).name
        content = read_regular_file(path)
        if hashlib.sha256(content).hexdigest() != pointer["sha256"]:
            raise RunFolderError(f"{path}: is damaged (its checksum differs from checkpoint.json)")
        return content

    @property
    def client_files(self) -> list[str]:
        """The files of client state that belong to the newest checkpoint."""
        path = self.path / "checkpoint.json"
        names = _read_json(path).get("clients", []) if path.is_file() else []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise RunFolderError(f"{path}: is damaged (its clients cannot be read)")
        return names

    def restore(self, evaluated: Callable[[int], bool]) -> RunState | None:
        """The state of the newest checkpoint. None: there is no checkpoint yet.

        Later lines are dropped, and the evaluation of a round that was the last one and is not any more.

        Args:
            evaluated: Says which rounds must have a line of metrics; the round in which a run stopped has one, too.
        """
        pointer_path = self.path / "checkpoint.json"
        setup = [self.setup_line] if self.setup_line is not None else []
        if not pointer_path.is_file():
            if any(row["round"] for row in self.lines("ledger")):
                raise RunFolderError(f"{self.path}: checkpoint.json is missing; the run is damaged")
            self._rewrite({"ledger": setup})
            return None
        pointer = _read_json(pointer_path)
        try:
            round = int(pointer["round"])
            state = state_from_tensors(round, tensors_from_bytes(self._checked_file(pointer)), pointer)
            if pointer.get("best") is not None:
                state = replace(state, best=self._restore_best(pointer["best"]))
        except (AttributeError, KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
            raise RunFolderError(f"{pointer_path}: does not lead to a checkpoint ({error})") from None
        valid = {stream: [row for row in self._saved_lines(stream) if row["round"] <= round] for stream in STREAMS}
        recorded = [row["round"] for row in valid["ledger"]]
        if recorded != [*(0 for _ in setup), *range(1, round + 1)]:
            done = sum(1 <= each <= round for each in recorded)
            what = f"{done} of {round} rounds" if done != round else "another setup"
            raise RunFolderError(f"{self.path}: ledger.jsonl has {what}; the run is damaged")
        stop_round = round if state.stopped else None
        due = dict.fromkeys(each for each in range(1, round + 1) if evaluated(each) or each == stop_round)
        valid["metrics"] = [row for row in valid["metrics"] if row["round"] in due]
        if [row["round"] for row in valid["metrics"]] != list(due):
            raise RunFolderError(f"{self.path}: metrics.jsonl lacks rounds; the run is damaged")
        if any(valid.values()) and not (self.path / CHECKSUMS).exists():
            log.warning(
                "%s: its records cannot be verified, because there is no %s: an earlier version wrote the run, or the "
                "file was deleted; from now on there is one",
                self.path,
                CHECKSUMS,
            )
        self._rewrite(valid)
        for leftover in self.path.iterdir():
            if _is_temporary(leftover.name):
                leftover.unlink()
        return state

    def _saved_lines(self, stream: str) -> list[dict[str, Any]]:
        """The lines of a stream that were saved with a checkpoint; all of them where there are no checksums."""
        checksums = self._checksums(stream)
        return self.lines(stream)[: None if checksums is None else len(checksums)]

    def _rewrite(self, records: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Write streams again. Checksums come first: a line that is still to be dropped needs none."""
        checksums: dict[int, dict[str, list[str]]] = {}
        for stream, rows in records.items():
            for row in rows:
                note_checksum(checksums, stream, row, json_line(row))
        write_atomically(self.path / CHECKSUMS, checksum_lines(checksums))
        for stream, rows in records.items():
            if rows or (self.path / f"{stream}.jsonl").exists():
                write_atomically(self.path / f"{stream}.jsonl", b"".join(map(json_line, rows)))

    def extend(self, experiment: Experiment, state: RunState) -> None:
        """Change the number of rounds and the withdrawn clients to those of `experiment`, and note what was before.

        `spec.yaml` is the commit point: a run that dies before it is written is as it was.
        """
        facts, before, spec = self.facts, self.experiment, _spec(experiment)
        change = {
            "from": before.rounds,
            "to": experiment.rounds,
            "without": sorted(experiment.withdrawn.keys() - before.withdrawn.keys()),
            "done": state.round,
            "stopped": state.stopped or None,
            "weights_sha256": (self.result or {}).get("weights_sha256"),
            "spec_sha256": _sha256(self.path / "spec.yaml"),
        }
        facts |= {"extensions": [*self.extensions, change]}
        facts["sha256"] |= {"spec.yaml": hashlib.sha256(spec).hexdigest()}
        write_atomically(self.path / "run.json", json_line(facts))
        write_atomically(self.path / "spec.yaml", spec)
        self.save(replace(state, stopped=""), self.client_files)

    def mark_incomplete(self) -> None:
        """Remove the summary of a run that goes on; its models stay until it is complete again."""
        path = self.path / "result.json"
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # such as a folder of that name
            raise RunFolderError(f"{path}: cannot be removed ({error.strerror})") from None

    def finish(self, summary: Mapping[str, Any], models: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Write models by file name, and the summary that marks the run complete."""
        for name, model in models.items():
            self._write_model(name, model)
        write_atomically(self.path / "result.json", json_line(summary))

    def repair(self, summary: Mapping[str, Any], models: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Write files of a complete run again that are missing, or that are not what its checkpoint and records say."""
        again = "written again from the checkpoint"
        for name, model in models.items():
            if not _holds(self.path / name, model):
                log.warning("%s: was missing or damaged; it is %s", self.path / name, again)
                self._write_model(name, model)
        before, told = self.result or {}, json.loads(json_line(summary))
        changed = [key for key in before.keys() & told.keys() - {"run"} if not _same(before[key], told[key])]
        if changed:  # keys that only one of them has are those of another version
            log.warning("%s: was changed (%s); it is %s", self.path / "result.json", ", ".join(sorted(changed)), again)
            write_atomically(self.path / "result.json", json_line(summary))

    def _write_model(self, name: str, model: Mapping[str, Tensor]) -> None:
        content = tensors_to_bytes({entry: tensor.contiguous() for entry, tensor in model.items()})
        write_atomically(self.path / name, content)


def _facts_or_none(path: Path) -> dict[str, Any]:
    """What `run.json` says; nothing if it is damaged."""
    try:
        return _read_json(path / "run.json")
    except RunFolderError:
        return {}


def _holds(path: Path, model: Mapping[str, Tensor]) -> bool:
    """Whether a file has exactly these tensors."""
    try:
        found = tensors_from_bytes(read_regular_file(path))
    except (OSError, SafetensorError, ValueError):
        return False
    return found.keys() == model.keys() and all(
        found[name].dtype == tensor.dtype and torch.equal(found[name], tensor.cpu()) for name, tensor in model.items()
    )


def _spec(experiment: Experiment) -> bytes:
    return yaml.safe_dump(experiment.model_dump(mode="json", exclude={"out"}), sort_keys=False).encode()


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_regular_file(path)).hexdigest()


def _extensions(path: Path, facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    found = facts.get("extensions", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise RunFolderError(f"{path / 'run.json'}: is damaged (its extensions cannot be read)")
    return found


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


def _lock(path: Path) -> int:
    """Lock the folder against other processes. The system releases the lock when this process ends."""
    try:
        handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise RunFolderError(f"{path}: another process is working on this run") from None
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written ({error.strerror})") from None
    return handle


def _same(one: Any, other: Any) -> bool:
    """Whether two values of JSON are equal; NaN equals NaN."""
    return bool(one == other) or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(read_regular_file(path))
    except (OSError, ValueError, RecursionError) as error:
        raise RunFolderError(f"{path}: is damaged ({error})") from None
    if not isinstance(value, dict):
        raise RunFolderError(f"{path}: is damaged (not an object)")
    return value
