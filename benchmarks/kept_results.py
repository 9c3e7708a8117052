"""Results of runs, appended to a file as each run ends: a benchmark can be stopped at any time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from fedrelay.files import make_folder, write_atomically
from fedrelay.runtime.side_by_side import RunWorkers

Result = dict[str, Any]


class MeasuredRun(Protocol):
    """A run that can be found again by its key."""

    @property
    def key(self) -> str: ...

    def measure(self) -> Result:
        """What was measured; `score` is shown, None if the run diverged."""


def measure(run: MeasuredRun) -> Result:
    """What a worker process does."""
    return run.measure()


class KeptResults:
    """The results of runs by their keys. Runs that are not known are done by workers."""

    def __init__(self, path: Path, workers: RunWorkers) -> None:
        self.path, self.workers = path, workers
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole != text:  # stopped while it wrote a line
            write_atomically(path, whole.encode())
        self.known: dict[str, Result] = {each["run"]: each for each in map(json.loads, whole.splitlines())}

    def of(self, runs: Sequence[MeasuredRun]) -> list[Result]:
        """The result of each run; those that are not known are done now."""
        left = list({run.key: run for run in runs if run.key not in self.known}.values())
        for run, found in self.workers.each(measure, left):
            self.known[run.key] = {"run": run.key, **found}
            make_folder(self.path.parent)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self.known[run.key], ensure_ascii=False) + "\n")
            print(f"  {self.path.stem}: {run.key}: {found['score'] and round(100 * found['score'], 1)}", flush=True)
        return [self.known[run.key] for run in runs]
