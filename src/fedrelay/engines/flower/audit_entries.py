"""Entries of the audit trail: what nodes have signed about their hops, and the lines of the file that holds them.

An entry is a signed reply without its arrays, of which the digests are left. So it needs no signature of its own: that
of the reply holds for it. Each entry of a node has a number and the digest of the node's entry before it.

A line of the file has the SHA-256 of the line before it, and is signed by the server. Every request for a hop tells its
node the digest of the last line, and the node signs it with its reply: so nodes witness the lines before theirs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from fedrelay.engines.flower.message_bytes import ArrayDigests, array_digests, digest_with_arrays
from fedrelay.engines.flower.messages import (
    AUDIT,
    FAILED,
    SIGNATURE,
    BadMessage,
    Header,
    Message,
    int_field,
    text_field,
)
from fedrelay.errors import RunFolderError
from fedrelay.files import read_regular_file

AUDIT_FILE = "audit.jsonl"
"""The audit trail in a run folder."""

SERVER_PURPOSE = "audit line"
"""What the server's signatures of lines are for."""


@dataclass(frozen=True)
class AuditEntry:
    """A signed reply to a request for a hop, without its arrays."""

    header: Header
    arrays: ArrayDigests

    @classmethod
    def of(cls, reply: Message) -> Self:
        return cls(reply.header, array_digests(reply))

    @classmethod
    def from_plain(cls, plain: Any) -> Self:
        """The entry in a file or message.

        Raises:
            BadMessage: It is none.
        """
        header = plain.get("header") if isinstance(plain, dict) else None
        arrays = plain.get("arrays") if isinstance(plain, dict) else None
        if not isinstance(header, dict) or not isinstance(header.get(AUDIT), dict) or not isinstance(arrays, dict):
            raise BadMessage("it is no entry of an audit trail")
        return cls(header, arrays)

    def plain(self) -> dict[str, Any]:
        return {"header": dict(self.header), "arrays": dict(self.arrays)}

    @property
    def digest(self) -> str:
        """The digest that the node has signed."""
        return digest_with_arrays(self.header, self.arrays)

    @property
    def signature(self) -> bytes:
        """The node's signature; empty if there is none."""
        try:
            return bytes.fromhex(text_field(self.header, SIGNATURE))
        except ValueError:
            return b""

    @property
    def statement(self) -> Statement:
        """What the node states about the hop.

        Raises:
            BadMessage: It is impossible.
        """
        return Statement.from_plain(self.header[AUDIT])

    @property
    def refusal(self) -> str:
        """Why the node did not train, or does not send its model; empty otherwise."""
        if self.header.get("kind") == FAILED:
            return text_field(self.header, "reason")
        return text_field(self.header, "refused") or text_field(self.header, "refused_received")


class Statement(NamedTuple):
    """What a node adds to its reply for the audit trail."""

    time: str
    """UTC, by the node's clock."""

    run: str
    round: int
    attempt: int
    route: int
    position: int
    number: int
    """The node's entries of this run, from 1."""

    previous: str
    """The digest of the node's entry before; empty for the first."""

    head: str
    """The SHA-256 of the last line of the server's file when the request was made; empty if it keeps none."""

    model_in: str
    """SHA-256 of the model that the node was sent, or of its envelope; empty if it was not read."""

    model_out: str
    """The same of the model that it sends; empty if it sends none."""

    repeated: bool = False
    """Whether the reply was given before: the node did not train again."""

    @staticmethod
    def place_names() -> tuple[str, ...]:
        """The fields that say which hop it is."""
        return ("round", "attempt", "route", "position")

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Raise `BadMessage` where it is impossible."""
        numbers = {name: int_field(plain, name) for name in (*cls.place_names(), "number")}
        texts = {name: text_field(plain, name) for name in ("time", "run", "previous", "head", "model_in", "model_out")}
        fields: dict[str, Any] = {**numbers, **texts, "repeated": plain.get("repeated") is True}
        return cls(**fields)

    @property
    def place(self) -> tuple[int, ...]:
        """Which hop it is."""
        return (self.round, self.attempt, self.route, self.position)

    def why_wrong(self, run: str, heads: Collection[str], place: tuple[int, ...] | None) -> str:
        """Why it does not belong into a trail; empty if it does.

        Args:
            run: The id of the run.
            heads: The SHA-256 of every line so far, one of which the node was told.
            place: The hop that it was asked for, where that is known.
        """
        if self.run != run:
            return "it is for another run"
        if self.head not in heads:
            return "its node was told of a line that is not here: lines before this one were exchanged"
        return "it is for another hop" if place not in (None, self.place) else ""


class AuditLine(NamedTuple):
    """One line of the file."""

    number: int
    row: dict[str, Any]
    sha256: str
    """Of the whole line."""


class BrokenAudit(RunFolderError):
    """A trail or a journal is not as it was written. The text names the line."""


def written_line(row: Mapping[str, Any], sign: Callable[[bytes], bytes]) -> bytes:
    """A line with its signature."""
    return (json.dumps({**row, SIGNATURE: sign(signed_part(row)).hex()}) + "\n").encode()


def signed_part(row: Mapping[str, Any]) -> bytes:
    """What the server signs of a line."""
    return json.dumps({name: value for name, value in row.items() if name != SIGNATURE}).encode()


def line_signature(row: Mapping[str, Any]) -> bytes:
    """The signature of a line; empty if it is not written as signatures are."""
    try:
        found = bytes.fromhex(str(row.get(SIGNATURE, "")))
    except ValueError:
        return b""
    return found if found.hex() == row.get(SIGNATURE) else b""


def read_line(number: int, content: bytes) -> AuditLine:
    """A line, if it can be read.

    Raises:
        BrokenAudit: It cannot.
    """
    try:
        text = content.decode()
        row = json.loads(text)
        if isinstance(row, dict) and json.dumps(row) == text:
            return AuditLine(number, row, hashlib.sha256(content).hexdigest())
    except (ValueError, RecursionError):
        pass
    raise BrokenAudit(f"line {number}: was changed after it was written; it is not what FedRelay writes")


def check_follows(line: AuditLine, before: AuditLine | None) -> None:
    """Raise `BrokenAudit` unless a line is the next one."""
    if line.row.get("previous") != ("" if before is None else before.sha256):
        what = "is not the first line" if before is None else f"does not follow line {before.number}"
        raise BrokenAudit(f"line {line.number}: {what} as it is; a line was removed, added, changed or moved here")


def read_journal(path: Path) -> list[AuditEntry]:
    """The entries that a node has kept in its journal; none if there is no file.

    Raises:
        BrokenAudit: A line cannot be read.
    """
    found = []
    content = read_regular_file(path) if path.exists() else b""
    for number, line in enumerate(content.split(b"\n")[:-1], 1):
        try:
            found.append(AuditEntry.from_plain(json.loads(line)))
            _ = found[-1].statement
        except (BadMessage, ValueError, RecursionError):
            raise BrokenAudit(f"{path}, line {number}: is no entry of an audit trail") from None
    return found
