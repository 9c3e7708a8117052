"""Real run folders, small enough to be made for every test session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fedrelay as fr
from fedrelay.errors import DivergedError, NoUpdateAcceptedError
from fedrelay.runtime.callback import Callback

SMALL: dict[str, Any] = {"data": "digits", "clients": 20, "alpha": 0.1, "fraction": 0.5, "batch_size": 16, "workers": 1}


def compared(folder: Path) -> Path:
    """Three methods over two seeds, four rounds each."""
    methods = ["fedavg", "fedseq", "centralized"]
    common = SMALL | {"rounds": 4, "forgetting": 2}
    fr.compare(methods, seeds=[1, 2], out=folder, **common)
    return folder


def ran(folder: Path, method: str, **settings: Any) -> Path:
    """One run of three rounds."""
    fr.run(method, out=folder, **(SMALL | {"rounds": 3} | settings))
    return folder


class Stopper(Callback):
    """Somebody who pulls the plug after so many rounds."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_round_end(self, context) -> None:
        if context.round == self.after:
            raise KeyboardInterrupt


def stopped(folder: Path, method: str, after: int, **settings: Any) -> Path:
    """A run that was stopped after so many of three rounds."""
    try:
        fr.run(method, out=folder, callbacks=Stopper(after), **(SMALL | {"rounds": 3} | settings))
    except KeyboardInterrupt:
        return folder
    raise AssertionError("the run was not stopped")


def failed(folder: Path, method: str, **settings: Any) -> Path:
    """A run that came to no result."""
    try:
        ran(folder, method, **settings)
    except (DivergedError, NoUpdateAcceptedError):
        return folder
    raise AssertionError("the run came to a result")


def add_event(run: Path, **event: Any) -> None:
    """Note a fault in a run folder."""
    (run / "checksums.jsonl").unlink(missing_ok=True)  # as in runs of earlier versions
    with (run / "events.jsonl").open("a") as file:
        file.write(json.dumps(event) + "\n")
