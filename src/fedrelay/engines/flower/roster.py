"""The roster: what owners and the server have agreed on. Each node has a name, a key and numbers that it may claim.

The server keeps it in its folder. An owner who pins it (`fedrelay node --roster`) takes part in sealed routes, and
hands models to nodes of the roster only: the server cannot put a key of its own into a route.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Section, validate
from fedrelay.experiment.yaml_files import read_file, to_yaml
from fedrelay.files import expand_home

if TYPE_CHECKING:  # cryptography is installed with Flower only, and claims are checked without it
    from fedrelay.engines.flower.credentials import PublicKey

ROSTER = "roster.yaml"
"""The roster in the server's folder."""

AgreedNumber = Annotated[int, Field(ge=0)]


class AgreedNumbers(Section):
    """The largest numbers that the owner of a node has agreed to, and the key of the node."""

    samples: AgreedNumber | None = None
    test_samples: AgreedNumber | None = None
    validation_samples: AgreedNumber | None = None
    key: str | None = Field(None, max_length=1000)
    """The public key of the node, as in its `.pub` file."""

    @property
    def table_rows(self) -> int | None:
        """Rows that the sums of a table may be over: those to train on and to validate."""
        return None if self.samples is None else self.samples + (self.validation_samples or 0)


class Roster(Section):
    """What was agreed on before the federation started."""

    classes: AgreedNumber | None = None
    """Classes that any node may have."""

    categories: AgreedNumber | None = None
    """Categories that all columns of a node's table may have together."""

    nodes: dict[str, AgreedNumbers] = Field(default_factory=dict)


def read_roster_file(folder: Path, names: Sequence[str]) -> Roster:
    """The roster in the server's folder; an empty one where there is no file.

    Raises:
        SpecError: It cannot be read, names a node without a key, or has another key than the folder `nodes`.
    """
    path = folder / ROSTER
    if not path.exists():
        return Roster()
    roster = _read(path)
    for name in roster.nodes:
        if name not in names:
            raise SpecError(f"{path}: nodes.{name}: there is no key of this node ({', '.join(names) or 'no nodes'})")
    if any(entry.key for entry in roster.nodes.values()):
        _check_keys(roster, path, folder)
    return roster


def pinned_keys(path: Path) -> dict[str, PublicKey]:
    """Name → public key of every node in a roster that an owner has pinned.

    Raises:
        SpecError: It cannot be read, has no node, or a node in it has no key.
    """
    path = expand_home(path)
    roster = _read(path)
    for name, entry in roster.nodes.items():
        if entry.key is None:
            raise SpecError(f"{path}: nodes.{name}: has no key; make a roster with: fedrelay roster FOLDER FILE")
    if not roster.nodes:
        raise SpecError(f"{path}: has no nodes; make a roster with: fedrelay roster FOLDER FILE")
    return _keys(roster, path)


def name_in_roster(keys: Mapping[str, PublicKey], own: PublicKey, path: Path) -> str:
    """The name that a roster gives to the node with this key.

    Raises:
        SpecError: The roster does not have the key.
    """
    for name, key in keys.items():
        if key == own:
            return name
    raise SpecError(f"{path}: the key of this node is not in it; it has the keys of {', '.join(keys)}")


def roster_with_keys(roster: Roster, keys: Mapping[str, PublicKey]) -> str:
    """The text of a roster file with these keys and the agreed numbers of `roster`."""
    from fedrelay.engines.flower.credentials import public_text

    nodes = {name: {**_numbers(roster.nodes.get(name)), "key": public_text(key)} for name, key in keys.items()}
    plain = {**roster.model_dump(exclude={"nodes"}, exclude_none=True), "nodes": nodes}
    return to_yaml(plain, width=1000)


def keys_digest(keys: Mapping[str, PublicKey]) -> str:
    """The SHA-256 of all names and keys, by which owners see that they have pinned the same."""
    from fedrelay.engines.flower.credentials import public_text

    plain = {name: public_text(key) for name, key in keys.items()}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _read(path: Path) -> Roster:
    return validate(Roster, read_file(path, "a roster"), f"{path}: ")


def _numbers(entry: AgreedNumbers | None) -> dict[str, int]:
    return {} if entry is None else entry.model_dump(exclude={"key"}, exclude_none=True)


def _keys(roster: Roster, path: Path) -> dict[str, PublicKey]:
    from fedrelay.engines.flower.credentials import parse_public_key

    found: dict[str, PublicKey] = {}
    for name, entry in roster.nodes.items():
        if entry.key is not None:
            key = parse_public_key(entry.key.encode(), f"{path}: nodes.{name}")
            for other, known in found.items():
                if key == known:
                    raise SpecError(f"{path}: nodes.{name}: has the same key as {other}; every node needs its own")
            found[name] = key
    return found


def _check_keys(roster: Roster, path: Path, folder: Path) -> None:
    from fedrelay.engines.flower.credentials import NODES, public_keys

    registered = public_keys(folder)
    for name, key in _keys(roster, path).items():
        if registered.get(name) != key:
            raise SpecError(
                f"{path}: nodes.{name}: has another key than {folder / NODES / name}.pub; ask its owner which is right"
            )
