"""The node's own copy of what it has signed for audit trails: one file for each run, one line for each entry.

It is written before the reply leaves. So a reply that is lost on the way, or comes too late, is not lost for the trail:
the node sends its entry again with its next reply. Owners can compare it with what the server shows.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fedrelay.engines.flower.audit_entries import AuditEntry, read_journal
from fedrelay.engines.flower.messages import int_field, text_field
from fedrelay.engines.flower.node.client_state_files import checked_run_id
from fedrelay.files import LineFile, drop_incomplete_line, flush_folder, make_folder

MOST_EARLIER = 500
"""Entries that a reply may bring besides its own; about half a megabyte."""

log = logging.getLogger(__name__)


class Link(NamedTuple):
    """Where the next entry of a run goes."""

    number: int
    previous: str


class AuditJournal:
    """Files `RUN.jsonl`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        make_folder(folder, mode=0o700)
        self._last: dict[str, Link] = {}
        """Run → number and digest of its last entry."""

    def next_link(self, run: str, known: Mapping[str, Any]) -> Link:
        """The number of the next entry, and the digest of the one before.

        Args:
            run: The id of the run.
            known: What the server says about the node's entries that it has. If it has more than this journal, which
                was lost then, the node goes on from there; the trail shows whether that was true.
        """
        last = self._last_of(run)
        told = int_field({"number": 0, **known}, "number")
        if told > last.number:
            log.warning("the journal of run %s is behind the server's; it continues at entry %d", run, told + 1)
            last = Link(told, text_field(known, "previous"))
        return Link(last.number + 1, last.previous)

    def append(self, run: str, entry: AuditEntry) -> None:
        """Keep an entry, on disk when this returns."""
        path = self.path(run)
        is_new = not path.exists()
        file = LineFile(path, mode=0o600)
        try:
            file.append((json.dumps(entry.plain()) + "\n").encode())
            file.flush()
        finally:
            file.close()
        if is_new:
            flush_folder(self.folder)
        self._last[run] = Link(entry.statement.number, entry.digest)

    def after(self, run: str, number: int) -> list[AuditEntry]:
        """The entries after this number, the oldest first and not too many."""
        if self._last_of(run).number <= number:
            return []
        return [entry for entry in read_journal(self.path(run)) if entry.statement.number > number][:MOST_EARLIER]

    def path(self, run: str) -> Path:
        return self.folder / f"{checked_run_id(run)}.jsonl"

    def _last_of(self, run: str) -> Link:
        if run not in self._last:
            path = self.path(run)
            if drop_incomplete_line(path):
                log.warning("%s: its last line was not complete and is dropped; its reply never left", path)
            entries = read_journal(path)
            self._last[run] = Link(entries[-1].statement.number, entries[-1].digest) if entries else Link(0, "")
        return self._last[run]
