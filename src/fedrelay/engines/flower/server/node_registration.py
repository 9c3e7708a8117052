"""Registration: which nodes belong to the federation, what they hold, and whether they fit the server."""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from fedrelay.engines.flower.messages import Message
from fedrelay.engines.flower.node_facts import NodeFacts, parse_facts
from fedrelay.engines.flower.printable_text import one_line
from fedrelay.engines.flower.roster import read_roster_file
from fedrelay.engines.flower.server.claims import Remark, refused_claims, unusual_claims
from fedrelay.engines.flower.server.connection_interface import Connection
from fedrelay.engines.flower.server.dispatcher import OFFLINE, Dispatcher, Signatures
from fedrelay.errors import EngineError
from fedrelay.experiment.spec import unknown
from fedrelay.files import make_folder, write_atomically
from fedrelay.local.terms.base import Term
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.runtime.versions import __version__

log = logging.getLogger(__name__)

KNOWN = "known"
"""The folder in which the server remembers facts, for nodes that are offline."""


@dataclass(frozen=True)
class ListedNode:
    """One node of the federation."""

    name: str
    status: str
    """`ready`, or why it is not."""

    seen: float | None
    """Seconds since its last heartbeat."""

    facts: NodeFacts | None
    remarks: tuple[Remark, ...] = ()
    """What is unusual about its claims."""

    def to_json(self) -> dict[str, Any]:
        """All but the sums of a table, which can point at single rows."""
        facts = self.facts.model_dump(mode="json", exclude={"table": {"statistics"}}) if self.facts is not None else {}
        return {"name": self.name, "status": self.status, "seen_seconds_ago": self.seen, **facts}


class Registration(NamedTuple):
    """What all nodes said about themselves, and what is unusual about it."""

    facts: dict[str, NodeFacts]
    remarks: tuple[Remark, ...] = ()


def ask_for_facts(
    connection: Connection,
    names: Sequence[str],
    wanted: Collection[str],
    timeout: float,
    signatures: Signatures | None = None,
) -> tuple[dict[str, NodeFacts], dict[str, str]]:
    """Ask nodes to describe themselves: the facts of those that did, and a reason for each of the others."""

    def parse(client: int, reply: Message) -> NodeFacts | str:
        try:
            return parse_facts(reply.header)
        except ValidationError as error:
            first = error.errors()[0]
            return one_line(f"its facts are invalid: {first['loc']} {first['msg']}")

    clients = [client for client, name in enumerate(names) if name in wanted]
    dispatcher = Dispatcher(connection, names, timeout, signatures=signatures)
    asked = dispatcher.ask(clients, lambda _: Message({"kind": "describe"}), parse)
    replies = {names[client]: reply for client, reply in asked}
    found = {name: reply for name, reply in replies.items() if not isinstance(reply, str)}
    return found, {name: reply for name, reply in replies.items() if isinstance(reply, str)}


def register_nodes(
    connection: Connection,
    names: Sequence[str],
    folder: Path,
    wait: float,
    plugins: Collection[str] = (),
    signatures: Signatures | None = None,
    withdrawn: Collection[str] = (),
) -> Registration:
    """Register all nodes. Facts of an offline node are those it sent last.

    Args:
        connection: The connection to the nodes.
        names: All nodes of the federation.
        folder: The server's folder, in which facts are remembered.
        wait: Seconds to wait for nodes that are offline.
        plugins: Plug-in modules that the experiment needs at every node.
        signatures: Signs requests, and checks that replies are the nodes' own.
        withdrawn: Nodes that have left for good. They are not asked; the run still needs the facts they sent last.

    Raises:
        EngineError: A node does not fit the server, claims what is not agreed, or is offline and was never seen.
    """
    roster = read_roster_file(folder, names)
    found: dict[str, NodeFacts] = {}
    reasons: dict[str, str] = {}
    known, began = remembered_facts(folder, names), time.monotonic()
    while True:
        missing = [name for name in names if name not in found and name not in withdrawn]
        new, reasons = ask_for_facts(connection, names, missing, min(10.0, max(1.0, wait)), signatures)
        found |= new
        if len(found) == len(names) - len(withdrawn) or time.monotonic() - began >= wait:
            break
        time.sleep(0.5)
    for name, facts_of_node in found.items():
        if problem := misfit(facts_of_node, plugins):
            raise EngineError(f"node {name!r} is refused: {problem}")
    for name in names:
        if name not in found and name not in known:
            if name in withdrawn:
                raise EngineError(f"withdrawn: {unknown('node', name, sorted(known))}")
            raise EngineError(
                f"node {name!r} has never registered ({reasons.get(name, OFFLINE)}); start it, or remove its key from "
                "the folder 'nodes'"
            )
        if name not in found and name not in withdrawn:
            log.warning("node %r is not available (%s); it joins when it is back", name, reasons.get(name, OFFLINE))
    facts = {name: found.get(name) or known[name] for name in names}
    for refused in refused_claims(facts, roster):
        raise EngineError(f"node {refused.node!r} is refused: it {refused.text}")
    remarks = tuple(unusual_claims(facts, known, roster))
    _remember(folder, facts)
    for remark in remarks:
        log.warning(str(remark))
    return Registration(facts, remarks)


def _remember(folder: Path, facts: Mapping[str, NodeFacts]) -> None:
    make_folder(folder / KNOWN, mode=0o700)
    for name, each in facts.items():
        write_atomically(folder / KNOWN / f"{name}.json", each.model_dump_json().encode())


def remembered_facts(folder: Path, names: Sequence[str]) -> dict[str, NodeFacts]:
    """The facts that nodes sent last."""
    found = {}
    for name in names:
        path = folder / KNOWN / f"{name}.json"
        if path.is_file():
            try:
                found[name] = NodeFacts.model_validate_json(path.read_bytes())
            except ValidationError:
                log.warning("%s: is damaged and not used", path)
    return found


def _without_withdrawn_histograms(
    known: Mapping[str, NodeFacts], found: Mapping[str, NodeFacts]
) -> dict[str, NodeFacts]:
    """What is remembered of nodes that no longer share these class counts, without them."""
    withdrawn = {"histogram": None, "histogram_epsilon": None}
    return {
        name: known[name].model_copy(update=withdrawn)
        for name in known.keys() & found.keys()
        if known[name].histogram not in (None, found[name].histogram)
    }


def misfit(facts: NodeFacts, plugins: Collection[str] = ()) -> str:
    """Why a node does not fit the server, in its version or its plug-ins; empty if it does."""
    if facts.version.split(".")[:2] != __version__.split(".")[:2]:
        theirs = one_line(facts.version, 40) or "an unknown version"
        return f"it runs FedRelay {theirs}, the server runs {__version__}; install the same version on both"
    if missing := sorted(set(plugins) - set(facts.plugins)):
        allowed = ", ".join(one_line(name, 60) for name in facts.plugins) or "none"
        options = " ".join(f"--plugin {name}" for name in missing)
        needed = ", ".join(sorted(plugins))
        return f"the server needs plug-ins {needed}, the node allows {allowed}; start the node with {options}"
    return ""


def privacy_warnings(facts: Mapping[str, NodeFacts], terms: Sequence[Term]) -> Iterator[str]:
    """A line for every node that will decline its hops, because its owner demands more noise than the method has."""
    noise = max((term.noise for term in terms if isinstance(term, ClientLevelPrivacy)), default=0.0)
    for name, each in facts.items():
        if each.least_noise is not None and each.least_noise > noise:
            least = f"terms.dp.noise at least {each.least_noise:g}"
            yield f"node {name!r} takes part only with +dp and {least}; without, it will be skipped"


def list_nodes(
    connection: Connection,
    names: Sequence[str],
    folder: Path,
    timeout: float,
    seen: Mapping[str, float],
    signatures: Signatures | None = None,
) -> list[ListedNode]:
    """All nodes as they are now; `seen` is when each node sent its last heartbeat."""
    with closing(connection):
        found, reasons = ask_for_facts(connection, names, names, timeout, signatures)
    known, roster = remembered_facts(folder, names), read_roster_file(folder, names)
    if changed := _without_withdrawn_histograms(known, found):
        _remember(folder, changed)
    facts = {**known, **found}
    refused = {each.node: f"it {each.text}" for each in refused_claims(facts, roster)}
    remarks = list(unusual_claims(facts, known, roster))

    def entry(name: str) -> ListedNode:
        problem = misfit(found[name]) or refused.get(name) if name in found else None
        status = reasons[name] if name not in found else f"refused: {problem}" if problem else "ready"
        own = tuple(remark for remark in remarks if remark.node == name)
        return ListedNode(name, status, seen.get(name), facts.get(name), own)

    return [entry(name) for name in names]
