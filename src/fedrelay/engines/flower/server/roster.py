"""The roll-call: which nodes are there, what they hold, and when they were last seen."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

from fedrelay.engines.flower.identity import CA, authority, public_keys
from fedrelay.engines.flower.server.dispatcher import Dispatcher
from fedrelay.engines.flower.server.remote_federation import NodeFacts
from fedrelay.engines.flower.start import folder_of, open_connection, remembered, who
from fedrelay.engines.flower.wire import last_seen
from fedrelay.experiment.spec import EngineSettings


@dataclass(frozen=True)
class RosterEntry:
    """A node of the federation."""

    name: str
    status: str
    """What it answered, or why it did not."""

    seen: float | None
    """Seconds since a sign of life."""

    facts: NodeFacts | None

    def facts_and_presence(self) -> dict[str, Any]:
        """All of it as plain data."""
        facts = self.facts.model_dump(mode="json") if self.facts is not None else {}
        return {"name": self.name, "status": self.status, "seen_seconds_ago": self.seen, **facts}


def take_roster(wanted: EngineSettings) -> list[RosterEntry]:
    """Ask every node whose key is in the folder."""
    folder = folder_of(wanted)
    keys = public_keys(folder)
    names = tuple(keys)
    found: dict[str, NodeFacts] = {}
    reasons: dict[str, str] = {}
    with closing(open_connection(wanted)) as connection:
        for _ in Dispatcher(connection, names, max(1.0, wanted.wait)).run(
            who(names, place, found, reasons) for place in range(len(names))
        ):
            pass
    seen = last_seen(wanted.superlink, authority(folder / CA), keys)
    known = remembered(folder, names)
    return [
        RosterEntry(name, "ready" if name in found else reasons[name], seen.get(name), found.get(name, known.get(name)))
        for name in names
    ]
