"""What became of a run: how far it is, what went wrong, and how it ended if it ended badly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from fedrelay.errors import DivergedError, FedRelayError, FruitlessError, RunFolderError
from fedrelay.report.format import duration, times
from fedrelay.robustness.faults import DIVERGED, GIVEN_UP, event_label, is_fault
from fedrelay.runtime.store import Records

Failure = Literal["diverged", "fruitless"]
FAILURES: Mapping[Failure, tuple[type[FedRelayError], str]] = {
    "diverged": (DivergedError, "diverged"),
    "fruitless": (FruitlessError, "learnt nothing"),
}
"""How a run can end without a result: the error, and how it is said."""


@dataclass(frozen=True)
class Fate:
    """A run by its records; one under way can be looked at as well."""

    state: str
    """`complete`, `under way`, `diverged`, `fruitless` or `stopped`."""

    why: str
    """Why it ended early, if that is known."""

    round: int
    """The last round that was carried out, or in which it ended."""

    fault_events: Mapping[str, int]
    seconds: float
    choosing_seconds: float

    @classmethod
    def of(cls, records: Records) -> Self:
        """Read it off a run folder."""
        events, timings = records.lines("events"), records.lines("timings")
        try:
            last = events[-1] if events and events[-1]["what"] == DIVERGED else None
            given_up = sum(event["done"] == GIVEN_UP for event in events)
            fault_events = Counter(map(event_label, filter(is_fault, events)))
            why = str(last["done"]) if last else ""
        except KeyError as error:
            raise RunFolderError(f"{records.path / 'events.jsonl'}: is damaged (a line without {error})") from None
        done = len(timings)
        fruitless = done >= records.experiment.rounds and given_up >= done
        if records.result is not None:
            state = "complete"
        elif records.under_way:
            state = "under way"
        elif last is not None:
            state = "diverged"
        else:
            state = "fruitless" if fruitless else "stopped"
        return cls(
            state,
            why if state == "diverged" else "in no round anybody's work was accepted" if state == "fruitless" else "",
            int(last["round"]) if last is not None and state == "diverged" else done,
            dict(sorted(fault_events.items())),
            sum(line["seconds"] for line in timings),
            sum(line.get("choosing_seconds", 0.0) for line in timings),
        )

    def rows(self) -> dict[str, str]:
        """For the terminal."""
        reason = f" in round {self.round}" if self.state == "diverged" else ""
        rows = {"state": f"{self.state}{reason}" + (f" ({self.why})" if self.why else "")}
        if self.seconds:
            choosing = f", of which {duration(self.choosing_seconds)} choosing clients" if self.choosing_seconds else ""
            rows["time in rounds"] = f"{duration(self.seconds)}{choosing}"
        if self.fault_events:
            rows["went wrong"] = times(self.fault_events)
        return rows

    def facts(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "state": self.state,
            "diverged": {"round": self.round, "why": self.why} if self.state == "diverged" else None,
            "fault_events": dict(self.fault_events),
            "seconds": round(self.seconds, 3),
            "choosing_seconds": round(self.choosing_seconds, 3),
        }
