"""How far a run is, what went wrong, and how it ended, as its folder shows it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from fedrelay.errors import DivergedError, FedRelayError, NoUpdateAcceptedError, RunFolderError
from fedrelay.robustness.fault_events import DIVERGED, GIVEN_UP, event_label, is_fault
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.unsaved_inputs import continued_in_python

Failure = Literal["diverged", "untrained"]
StatusName = Literal["waiting", "running", "complete", "stopped", "diverged", "untrained"]

FAILURES: Mapping[Failure, tuple[type[FedRelayError], str]] = {
    "diverged": (DivergedError, "diverged"),
    "untrained": (NoUpdateAcceptedError, "learnt nothing"),
}
"""How a run can end without a result: the error, and the words for it."""


@dataclass(frozen=True)
class RunStatus:
    """How far a run is, what went wrong, and how it ended."""

    state: StatusName
    reason: str
    """Why the run failed; empty if it did not."""

    stopped: str
    """Why a complete run stopped before its last round; empty if it did not."""

    round: int
    """The last round that was done, or the round in which the run diverged."""

    saved_round: int
    """The last round that is saved; `resume` continues after it."""

    fault_events: Mapping[str, int]
    seconds: float
    selection_seconds: float
    continue_with: str
    """The command, or the call in Python, that continues the run."""

    @classmethod
    def of(cls, records: RunFolderReader) -> Self:
        """Read the status from a run folder.

        Raises:
            RunFolderError: `events.jsonl` is damaged.
        """
        events, timings = records.lines("events"), records.lines("timings")
        try:
            last = events[-1] if events and events[-1]["what"] == DIVERGED else None
            given_up = sum(event["done"] == GIVEN_UP for event in events)
            fault_events = Counter(map(event_label, filter(is_fault, events)))
            reason = str(last["done"]) if last else ""
        except KeyError as error:
            raise RunFolderError(f"{records.path / 'events.jsonl'}: is damaged (a line without {error})") from None
        done, round, stopped = len(timings), len(timings), records.stopped
        state: StatusName = "stopped"
        if records.result is not None:
            state, reason = "complete", ""
        elif records.under_way:
            state, reason = "running", ""
        elif last is not None:
            state, round = "diverged", int(last["round"])
        elif (stopped or done >= records.experiment.rounds) and given_up >= done:
            state, reason = "untrained", "no client update was accepted in any round"
        seconds, choosing = (sum(line.get(name, 0.0) for line in timings) for name in ("seconds", "selection_seconds"))
        stopped = stopped if state == "complete" else ""
        events_by_kind = dict(sorted(fault_events.items()))
        how = continued_in_python(records.path, records.facts) or f"fedrelay resume {shlex.quote(str(records.path))}"
        return cls(state, reason, stopped, round, records.saved_round, events_by_kind, seconds, choosing, how)

    def facts(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "state": self.state,
            "stopped": self.stopped or None,
            "saved_round": self.saved_round,
            "diverged": {"round": self.round, "why": self.reason} if self.state == "diverged" else None,
            "fault_events": dict(self.fault_events),
            "seconds": round(self.seconds, 3),
            "selection_seconds": round(self.selection_seconds, 3),
        }
