"""The audit trail of a run: who trained what, when, and what became of it, in a file that only grows.

Lines are flushed to disk before the next request leaves, and `resume` drops none: a hop that was trained has been
trained, even if its round is repeated. What a node has signed and the server has not received (because it was killed,
or did not wait) comes with the node's next reply.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from fedrelay.engines.flower.audit_entries import (
    AuditEntry,
    AuditLine,
    BrokenAudit,
    Statement,
    check_follows,
    read_line,
    written_line,
)
from fedrelay.engines.flower.messages import AUDIT, BadMessage, Message
from fedrelay.files import LineFile, drop_incomplete_line, flush_folder, read_regular_file
from fedrelay.routes.plan import Hop
from fedrelay.utc_time import utc_now

LATER = "its entry comes with a later reply"
"""The note of a reply whose node has so many older entries to send that this one has to wait."""

LARGEST_ENTRY = 1 << 16
"""Bytes of an entry; usual ones have about a thousand."""

log = logging.getLogger(__name__)


class AuditTrail:
    """Appends to the file.

    Args:
        path: The file; it may have lines of the run already.
        sign: The server's signature of some bytes.
        is_signed: Whether a node has signed an entry.

    Raises:
        BrokenAudit: The file is not as it was written.
    """

    def __init__(
        self, path: Path, sign: Callable[[bytes], bytes], is_signed: Callable[[str, AuditEntry], bool]
    ) -> None:
        self.path, self.sign, self.is_signed = path, sign, is_signed
        if drop_incomplete_line(path):
            log.warning("%s: its last line was not complete and is dropped", path)
        self.last: AuditLine | None = None
        self.recorded: dict[str, tuple[int, str]] = {}
        """Node → number and digest of its last entry here."""
        self.withdrawn: set[str] = set()
        self.run = ""
        self.heads = {""}
        """The SHA-256 of every line."""
        try:
            for number, content in enumerate(_lines(path), 1):
                self._count(read_line(number, content))
        except BrokenAudit as error:
            raise BrokenAudit(f"{path}, {error}; restore the file from a copy") from None
        self.file = LineFile(path)
        flush_folder(path.parent)

    @property
    def head(self) -> str:
        """The SHA-256 of the last line; empty if there is none."""
        return "" if self.last is None else self.last.sha256

    def start(self, run: str, certificate: str, keys: Mapping[str, str]) -> None:
        """Note that the server starts to work on the run.

        Args:
            run: The id of the run, by which nodes know it.
            certificate: That of the key with which lines are signed.
            keys: Name of each node → its public key.
        """
        self._append({"event": "start", "run": run, "certificate": certificate, "nodes": dict(keys)})

    def withdraw(self, nodes: Iterable[str]) -> None:
        """Note that nodes have left the run; once for each."""
        for node in sorted(set(nodes) - self.withdrawn):
            self._append({"event": "withdrawn", "node": node})

    def request_field(self, node: str) -> dict[str, Any]:
        """What a request tells its node: which of its entries are here, and the last line."""
        number, digest = self.recorded.get(node, (0, ""))
        return {"number": number, "previous": digest, "head": self.head}

    def add_hop(self, node: str, hop: Hop, reply: Message | None, note: str) -> None:
        """Note how a request for a hop ended.

        Args:
            node: The node that was asked.
            hop: The hop.
            reply: What the node has signed; None if nothing came that it has.
            note: Why the reply is not used, or why there is none; empty if it is used.
        """
        entry, place = None, (hop.round, hop.attempt, hop.route, hop.index)
        try:
            for earlier in _earlier(reply) if reply is not None else ():
                if self._is_next(node, earlier):
                    self._check(node, earlier, None)
                    self._append({"event": "earlier", "node": node, "entry": earlier.plain()})
            if reply is not None and AUDIT in reply.header:
                entry = AuditEntry.from_plain(AuditEntry.of(reply).plain())
                self._check(node, entry, place)
        except BadMessage as error:  # what a node states wrongly must not spoil the trail of all
            entry, note = None, note or f"its entry is not recorded: {error}"
        if entry is not None and not self._is_next(node, entry):
            entry, note = None, note or LATER
        plain = None if entry is None else entry.plain()
        where = dict(zip(Statement.place_names(), place, strict=True))
        self._append({"event": "hop", "node": node, **where, "entry": plain, "note": note})

    def close(self) -> None:
        self.file.close()

    def _check(self, node: str, entry: AuditEntry, place: tuple[int, ...] | None) -> None:
        """Raise `BadMessage` if an entry would not be verified later."""
        if len(json.dumps(entry.plain())) > LARGEST_ENTRY:
            raise BadMessage(f"it has more than {LARGEST_ENTRY} bytes")
        if not self.is_signed(node, entry):
            raise BadMessage("its node has not signed it")
        if problem := entry.statement.why_wrong(self.run, self.heads, place):
            raise BadMessage(problem)

    def _is_next(self, node: str, entry: AuditEntry) -> bool:
        number, digest = self.recorded.get(node, (0, ""))
        found = entry.statement
        return (found.number, found.previous) == (number + 1, digest)

    def _append(self, fields: Mapping[str, Any]) -> None:
        number = 1 if self.last is None else self.last.number + 1
        content = written_line({"time": utc_now(), "previous": self.head, **fields}, self.sign)
        self.file.append(content)
        self.file.flush()
        self._count(read_line(number, content[:-1]))

    def _count(self, line: AuditLine) -> None:
        check_follows(line, self.last)
        self.last, row = line, line.row
        self.heads.add(line.sha256)
        if row.get("event") == "start":
            self.run = str(row.get("run"))
        if row.get("event") == "withdrawn":
            self.withdrawn.add(str(row.get("node")))
        if row.get("entry") is not None:
            try:
                entry = AuditEntry.from_plain(row["entry"])
                self.recorded[str(row.get("node"))] = (entry.statement.number, entry.digest)
            except BadMessage:
                raise BrokenAudit(f"line {line.number}: has an impossible entry") from None


def _lines(path: Path) -> list[bytes]:
    content = read_regular_file(path) if path.exists() else b""
    return content.split(b"\n")[:-1]


def _earlier(reply: Message) -> list[AuditEntry]:
    """Entries that the node has signed before and the server has not received.

    Raises:
        BadMessage: They cannot be read.
    """
    if AUDIT not in reply.arrays:
        return []
    try:
        plain = json.loads(reply.arrays[AUDIT].tobytes())
    except (ValueError, RecursionError):
        raise BadMessage("earlier entries cannot be read") from None
    if not isinstance(plain, list):
        raise BadMessage("earlier entries are no list")
    return [AuditEntry.from_plain(each) for each in plain]
