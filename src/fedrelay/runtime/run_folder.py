"""The run folder: everything that is known of a run, and everything that is needed to continue it.

    run.json              format, versions, the run's name, the data's fingerprint, the method's options, the task's
                          metrics and how they are read, extensions
    spec.yaml             the resolved experiment; only the number of rounds and the withdrawn clients ever change
    plan.json             groups and a summary of what travels; written once
    clients/              client state, one file for each client
    selection.safetensors profiles of clients, where the clients of a warm-up are chosen by them; written once
    profiles.safetensors  profiles of clients, where groups depend on them; written once
    probe.safetensors     the probe network of the profiles, where there is one; written once
    class_counts.npz      simulations: how many samples of each class a client has, of at most 2,000 clients in memory;
                          written once
    metrics.jsonl         one line for each evaluated round; equal runs have equal bytes
    final_metrics.jsonl   with eval.subset, whose samples all lines above are on: one line with the metrics of the last
                          model and of the best one on all samples
    ledger.jsonl          one line for each round: routes, transfers, bytes; line 0 is the setup; evaluations of single
                          clients have lines of their own, after those of their rounds
    client_metrics.jsonl  one line for each client whenever single clients are evaluated on their own held-out samples
    client_resamples.jsonl  one line for each client after the last round: the metric on resamples of these samples
    forgetting.jsonl      one line for each followed route: the score on each client's samples after each hop
    events.jsonl          one line for each fault event; −1 stands for the server or the round as a whole
    timings.jsonl         one line for each round: when it was run (UTC) and real seconds, the only thing that differs
                          between equal runs
    audit.jsonl           real federations: who trained what, when, signed by nodes; it only grows (`fedrelay audit`)
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

import hashlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from fedrelay.errors import RunFolderError
from fedrelay.experiment.spec import Experiment
from fedrelay.experiment.yaml_files import to_yaml
from fedrelay.file_lock import lock_file
from fedrelay.files import LineFile, make_folder, read_regular_file, write_atomically
from fedrelay.runtime.record_lines import (
    CHECKSUMS,
    STREAMS,
    checksum_lines,
    json_line,
    note_checksum,
)
from fedrelay.runtime.run_folder_reader import (
    FORMAT,
    OPEN_FOLDERS,
    SETUP_FILES,
    RunFolderReader,
    beyond_the_first,
    is_temporary,
    read_json,
    sha256_of_file,
)
from fedrelay.runtime.run_state import BestSoFar, RunState, state_from_tensors, state_tensors
from fedrelay.runtime.unsaved_inputs import how_to_continue
from fedrelay.runtime.versions import versions
from fedrelay.utc_time import utc_now

log = logging.getLogger(__name__)


class RunFolder(RunFolderReader):
    """The folder of a run that this process works on; it is locked against other processes."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._place = path.resolve()
        if self._place in OPEN_FOLDERS:
            raise RunFolderError(f"{path}: is open in this process already")
        self._lock = _lock(path)
        OPEN_FOLDERS.add(self._place)
        self._streams: dict[str, LineFile] = {}
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
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> RunFolder:
        """Start a new run in a new or empty folder, or in one whose run died before it had begun.

        Args:
            path: The folder.
            experiment: The resolved experiment.
            facts: More entries of `run.json`.
            plan: The content of `plan.json`.
            files: File name → content of `SETUP_FILES`.
        """
        cls.check(path)
        make_folder(path)
        folder = cls(path)
        spec = _spec(experiment)
        contents = {"spec.yaml": spec, "plan.json": json_line(plan), **files}
        for name in SETUP_FILES:
            (path / name).unlink(missing_ok=True)
        for name, content in contents.items():
            write_atomically(path / name, content)
        checksums = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        about = {"format": FORMAT, "versions": dict(versions()), "name": secrets.token_hex(8), "sha256": checksums}
        write_atomically(path / "run.json", json_line({**about, "created": utc_now(), **facts}))
        if plan.get("setup") is not None:
            folder.append("ledger", plan["setup"])
        return folder

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams = {}
        os.close(self._lock)
        OPEN_FOLDERS.discard(self._place)

    def append(self, stream: str, row: Mapping[str, Any]) -> None:
        """Append a line with one write, so that it is never written in part."""
        line = json_line(row)
        self._append(f"{stream}.jsonl", line)
        note_checksum(self._unsaved_checksums, stream, row, line)

    def _append(self, name: str, content: bytes) -> None:
        if name not in self._streams:
            self._streams[name] = LineFile(self.path / name)
        self._streams[name].append(content)

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
        for stream in self._streams.values():
            stream.flush()

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
        names = read_json(path).get("clients", []) if path.is_file() else []
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise RunFolderError(f"{path}: is damaged (its clients cannot be read)")
        return names

    def restore(
        self, evaluated: Callable[[int], bool], clients_evaluated: Callable[[int], bool] = lambda round: False
    ) -> RunState | None:
        """The state of the newest checkpoint. None: there is no checkpoint yet.

        Later lines are dropped, and the evaluation of a round that was the last one and is not any more.

        Args:
            evaluated: Says which rounds must have a line of metrics; the round in which a run stopped has one, too.
            clients_evaluated: Says in which rounds single clients are evaluated, as well as where a run stopped.
        """
        pointer_path = self.path / "checkpoint.json"
        setup = [self.setup_line] if self.setup_line is not None else []
        if not pointer_path.is_file():
            if any(row["round"] for row in self.lines("ledger")):
                raise RunFolderError(f"{self.path}: checkpoint.json is missing; the run is damaged")
            self._rewrite({"ledger": setup})
            return None
        pointer = read_json(pointer_path)
        try:
            round = int(pointer["round"])
            state = state_from_tensors(round, tensors_from_bytes(self._checked_file(pointer)), pointer)
            if pointer.get("best") is not None:
                state = replace(state, best=self._restore_best(pointer["best"]))
        except (AttributeError, KeyError, TypeError, ValueError, OSError, SafetensorError) as error:
            raise RunFolderError(f"{pointer_path}: does not lead to a checkpoint ({error})") from None
        valid = {stream: [row for row in self._saved_lines(stream) if row["round"] <= round] for stream in STREAMS}
        stop_round = round if state.stopped else None
        valid |= self._client_lines(valid, round, stop_round, clients_evaluated)
        recorded = [row["round"] for row in valid["ledger"] if not row.get("evaluation")]
        if recorded != [*(0 for _ in setup), *range(1, round + 1)]:
            done = sum(1 <= each <= round for each in recorded)
            what = f"{done} of {round} rounds" if done != round else "another setup"
            raise RunFolderError(f"{self.path}: ledger.jsonl has {what}; the run is damaged")
        due = dict.fromkeys(each for each in range(1, round + 1) if evaluated(each) or each == stop_round)
        valid["metrics"] = [row for row in valid["metrics"] if row["round"] in due]
        if [row["round"] for row in valid["metrics"]] != list(due):
            raise RunFolderError(f"{self.path}: metrics.jsonl lacks rounds; the run is damaged")
        over = round == stop_round or round == self.experiment.rounds
        valid["final_metrics"] = valid["final_metrics"] if over else []
        if over and self.experiment.eval.subset is not None and not valid["final_metrics"]:
            raise RunFolderError(f"{self.path}: final_metrics.jsonl lacks round {round}; the run is damaged")
        if any(valid.values()) and not (self.path / CHECKSUMS).exists():
            log.warning(
                "%s: its records cannot be verified, because there is no %s: an earlier version wrote the run, or the "
                "file was deleted; from now on there is one",
                self.path,
                CHECKSUMS,
            )
        self._rewrite(valid)
        for leftover in self.path.iterdir():
            if is_temporary(leftover.name):
                leftover.unlink()
        return state

    def _client_lines(
        self,
        lines: Mapping[str, list[dict[str, Any]]],
        round: int,
        stop_round: int | None,
        evaluated: Callable[[int], bool],
    ) -> dict[str, list[dict[str, Any]]]:
        """The lines of evaluations of single clients, and the ledger, without evaluations that are not due any more."""
        settings = self.experiment
        due = {each for each in range(1, round + 1) if evaluated(each)}
        due |= {stop_round} if stop_round is not None and settings.eval.per_client else set()
        ends = {each for each in due if each in (settings.rounds, stop_round)}
        found = {
            "ledger": [row for row in lines["ledger"] if not row.get("evaluation") or row["round"] in due],
            "client_metrics": [row for row in lines["client_metrics"] if row["round"] in due],
            "client_resamples": [row for row in lines["client_resamples"] if row["round"] in ends],
        }
        if {row["round"] for row in found["client_metrics"]} != due:
            raise RunFolderError(f"{self.path}: client_metrics.jsonl lacks rounds; the run is damaged")
        return found

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
            "time": utc_now(),
            "from": before.rounds,
            "to": experiment.rounds,
            "without": sorted(experiment.withdrawn.keys() - before.withdrawn.keys()),
            "done": state.round,
            "stopped": state.stopped or None,
            "weights_sha256": (self.result or {}).get("weights_sha256"),
            "spec_sha256": sha256_of_file(self.path / "spec.yaml"),
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
        return read_json(path / "run.json")
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
    return to_yaml(experiment.model_dump(mode="json", exclude={"out"})).encode()


def _lock(path: Path) -> int:
    """Lock the folder against other processes. The system releases the lock when this process ends."""
    try:
        return lock_file(path / ".lock")
    except BlockingIOError:
        raise RunFolderError(f"{path}: another process is working on this run") from None
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be written ({error.strerror})") from None


def _same(one: Any, other: Any) -> bool:
    """Whether two values of JSON are equal; NaN equals NaN."""
    return bool(one == other) or json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
