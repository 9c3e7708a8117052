"""Verification of an audit trail: every line is as it was written, and every entry was signed by its node.

What it shows and what it does not is said in docs/security.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrelay.engines.flower.audit_entries import (
    SERVER_PURPOSE,
    AuditEntry,
    AuditLine,
    BrokenAudit,
    Statement,
    check_follows,
    line_signature,
    read_journal,
    read_line,
    signed_part,
)
from fedrelay.engines.flower.credentials import (
    PublicKey,
    parse_public_key,
    requests_key_at_any_time,
    requests_key_named,
)
from fedrelay.engines.flower.messages import BadMessage, text_field
from fedrelay.engines.flower.printable_text import one_line
from fedrelay.engines.flower.reply_signatures import REPLY_PURPOSE
from fedrelay.engines.flower.sealing import is_signed_by
from fedrelay.errors import RunFolderError, SpecError
from fedrelay.files import read_regular_file


@dataclass(frozen=True)
class TrustedKeys:
    """What the reader of a trail knows from elsewhere."""

    nodes: Mapping[str, PublicKey]
    """The roster: name of a node → its key. Empty: the keys that the trail itself names are taken, with a remark."""

    authority: bytes | None = None
    """The certificates that the server's is checked with, as PEM. None: it is not checked, with a remark."""


@dataclass
class AuditReport:
    """What a trail says, as far as it is whole."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    """One for each line, as `fedrelay audit` shows it."""

    problem: str = ""
    """The first line that is wrong, and what is wrong with it; empty if the trail is whole."""

    remarks: list[str] = field(default_factory=list)
    """What could not be checked."""

    head: str = ""
    """The SHA-256 of the last line."""

    nodes: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Node → the number of its entries, and the digest of the last one."""

    @property
    def whole(self) -> bool:
        return not self.problem


def verify_audit(path: Path, trusted: TrustedKeys, run: str, journals: Iterable[Path] = ()) -> AuditReport:
    """Verify a trail.

    Args:
        path: The file.
        trusted: Keys that are known from elsewhere.
        run: The id of the run whose trail it is.
        journals: Files in which nodes have kept what they signed: all their entries of this run must be in the trail.

    Raises:
        RunFolderError: The file, or a journal, cannot be read.
    """
    try:
        content = read_regular_file(path)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read ({error.strerror})") from None
    lines = content.split(b"\n")
    verifier = _Verifier(trusted, run)
    try:
        for number, line in enumerate(lines[:-1], 1):
            verifier.add(read_line(number, line))
        if lines[-1]:
            raise BrokenAudit(f"line {len(lines)}: is not complete; the server died while it wrote it, or it was cut")
        if verifier.last is None:
            raise BrokenAudit("line 1: is missing; the file is empty")
        for journal in journals:
            verifier.check_journal(journal)
    except BrokenAudit as error:
        verifier.report.problem = str(error)
    return verifier.report


class _Verifier:
    """Reads a trail from its first line on."""

    def __init__(self, trusted: TrustedKeys, run: str) -> None:
        self.trusted, self.run, self.report = trusted, run, AuditReport()
        self.last: AuditLine | None = None
        self.heads = {""}
        """The SHA-256 of every line so far."""
        self.server: PublicKey | None = None
        self.named: dict[str, PublicKey] = {}
        """The keys that the trail names."""
        self.digests: set[str] = set()
        """Of all entries."""

    def add(self, line: AuditLine) -> None:
        """Check the next line.

        Raises:
            BrokenAudit: It is wrong.
        """
        row, where = line.row, f"line {line.number}"
        server = self._server_key(where, row) if row.get("event") == "start" else self.server
        if server is None:
            raise BrokenAudit(f"{where}: the first line of a trail names the run and its keys, and this one does not")
        if not is_signed_by(server, SERVER_PURPOSE, signed_part(row), line_signature(row)):
            raise BrokenAudit(f"{where}: was changed after it was written; the server's signature does not fit")
        check_follows(line, self.last)
        self.server = server
        if row.get("event") == "start":
            self._start(where, row)
        try:
            entry = AuditEntry.from_plain(row["entry"]) if row.get("entry") is not None else None
            if entry is not None:
                self._check_entry(where, row, entry)
        except BadMessage as error:
            raise BrokenAudit(f"{where}: its entry is impossible: {error}") from None
        self.last = line
        self.heads.add(line.sha256)
        self.report.head = line.sha256
        self.report.rows.append(_shown(line, entry))

    def check_journal(self, path: Path) -> None:
        """Raise `BrokenAudit` if a node has signed an entry of this run that the trail has not, or if it has none."""
        entries = [entry for entry in _kept_entries(path) if entry.statement.run == self.run]
        if not entries:
            raise BrokenAudit(f"{path}: has no entry of this run, which is {self.run}, and so shows nothing about it")
        for entry in entries:
            found = entry.statement
            if entry.digest not in self.digests:
                self._check_signed_by_any(entry, path)
                raise BrokenAudit(
                    f"{path}: entry {found.number} (round {found.round}, {found.time}) is not in the trail: lines were "
                    "removed from its end, or the reply came too late and the node was not asked again"
                )

    def _check_signed_by_any(self, entry: AuditEntry, path: Path) -> None:
        """Raise `BrokenAudit` unless a node of the run has signed an entry: anybody can write a file."""
        keys = [*self.trusted.nodes.values(), *self.named.values()]
        if not any(is_signed_by(key, REPLY_PURPOSE, entry.digest.encode(), entry.signature) for key in keys):
            raise BrokenAudit(
                f"{path}: entry {entry.statement.number} is signed by no node of this run; the journal was changed"
            )

    def _server_key(self, where: str, row: Mapping[str, Any]) -> PublicKey:
        """The key that signs the lines from here on."""
        certificate = str(row.get("certificate", "")).encode()
        try:
            if self.trusted.authority is not None:
                return requests_key_at_any_time(certificate, self.trusted.authority)
            self._remark("the server's certificate was not checked: give the authority's with --ca")
            return requests_key_named(certificate)
        except SpecError as error:
            raise BrokenAudit(f"{where}: the certificate of the server is not valid: {error}") from None
        except Exception as error:  # a damaged one has many ways to fail
            what = f"it is damaged ({type(error).__name__})"
            raise BrokenAudit(f"{where}: the certificate of the server is not valid: {what}") from None

    def _start(self, where: str, row: Mapping[str, Any]) -> None:
        run, nodes = row.get("run"), row.get("nodes")
        if run != self.run or not isinstance(nodes, dict):
            raise BrokenAudit(f"{where}: is of another run, {one_line(str(run))}; this one is {self.run}")
        for name, text in nodes.items():
            try:
                key = parse_public_key(str(text).encode(), f"node {name}")
            except SpecError as error:
                raise BrokenAudit(f"{where}: {error}") from None
            if self.trusted.nodes.get(name, key) != key:
                raise BrokenAudit(f"{where}: the key of node {name!r} is not the one in the roster")
            self.named[name] = key
        if not self.trusted.nodes:
            self._remark("the keys of nodes are those that the trail itself names: give a roster with --roster")

    def _check_entry(self, where: str, row: Mapping[str, Any], entry: AuditEntry) -> None:
        node, found, digest = str(row.get("node")), entry.statement, entry.digest
        key = self.trusted.nodes.get(node) or self.named.get(node)
        if key is None:
            raise BrokenAudit(f"{where}: node {node!r} has no key in the roster")
        if self.trusted.nodes and node not in self.trusted.nodes:
            self._remark(f"the key of node {node!r} is not in the roster, but only in the trail itself")
        if not is_signed_by(key, REPLY_PURPOSE, digest.encode(), entry.signature):
            raise BrokenAudit(f"{where}: node {node!r} has not signed this entry with the key in the roster")
        number, previous = self.report.nodes.get(node, (0, ""))
        if (found.number, found.previous) != (number + 1, previous):
            raise BrokenAudit(
                f"{where}: is entry {found.number} of node {node!r}, and entry {number + 1} is due: one was removed "
                "or moved"
            )
        place: Any = tuple(row.get(name) for name in Statement.place_names()) if row.get("event") == "hop" else None
        if problem := found.why_wrong(self.run, self.heads, place):
            raise BrokenAudit(f"{where}: node {node!r} has signed it, but {problem}")
        self.report.nodes[node] = (found.number, digest)
        self.digests.add(digest)

    def _remark(self, text: str) -> None:
        if text not in self.report.remarks:
            self.report.remarks.append(text)


def _kept_entries(path: Path) -> list[AuditEntry]:
    """The entries of a journal that somebody has named."""
    try:
        path.stat()
        return read_journal(path)
    except OSError as error:
        raise RunFolderError(f"{path}: cannot be read ({error.strerror})") from None


def _shown(line: AuditLine, entry: AuditEntry | None) -> dict[str, Any]:
    """A line as it is shown. Where a node has signed an entry, time, place and models are those that it states."""
    row = line.row
    texts = {name: one_line(str(row.get(name, ""))) for name in ("event", "node", "note")}
    found: dict[str, Any] = {"line": line.number, "time": one_line(str(row.get("time", ""))), **texts}
    if entry is None:
        return {**found, **{name: row[name] for name in Statement.place_names() if isinstance(row.get(name), int)}}
    stated, header = entry.statement, entry.header
    place = dict(zip(Statement.place_names(), stated.place, strict=True))
    trained = {name: header.get(name) for name in ("samples", "steps", "loss")}
    digests = {"model_in": stated.model_in, "model_out": stated.model_out}
    refusal = entry.refusal
    notes = [refusal if refusal and refusal not in texts["note"] else "", texts["note"]]
    notes += ["answered before" if stated.repeated else "", "came late" if texts["event"] == "earlier" else ""]
    return {
        **found,
        "time": stated.time,
        **place,
        **{name: value for name, value in trained.items() if isinstance(value, int | float)},
        **digests,
        "note": "; ".join(filter(None, notes)),
        "number": stated.number,
        "entry_sha256": entry.digest,
        "answered_sha256": text_field(header, "answered_sha256"),
    }
