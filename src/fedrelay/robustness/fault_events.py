"""Fault events: what went wrong in a run and what was done about it, one line each in `events.jsonl`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fedrelay.cost.ledger import SERVER
from fedrelay.routes.execution_overlay import ExecutionOverlay

if TYPE_CHECKING:
    from fedrelay.routes.arrival import Arrival

GIVEN_UP = "the round was given up"
DIVERGED = "diverged"

REFUSED, PASSED_OVER = "refused: ", "passed over: "
"""How `done` begins for a model that was not accepted, and for a client that sent none; the reason follows."""

LATE = "given up: the merge came first"
"""Why work is left out that was under way when the other models were merged. Nobody did anything wrong."""


UNUSUAL_CLAIM = "unusual claim"
"""The event of a node that says something unusual about itself. It is worth a look, and nothing went wrong."""

UNDEFINED_METRIC = "undefined metric"
"""The event of a metric that the samples do not determine, such as the AUROC of a single class."""

WITHDRAWN = "withdrawn"
"""The event of a client that leaves for good."""

UNSHARED_COUNTS = "class counts not shared"
"""The event of a node whose owner does not share what the method's groups are formed by."""

REMARKS = (UNUSUAL_CLAIM, UNDEFINED_METRIC, WITHDRAWN, UNSHARED_COUNTS)
"""Events that are worth a look once in a run, and are no faults."""


@dataclass(frozen=True)
class FaultEvent:
    """Something that went wrong in a hop, or in a round as a whole, and what was done about it."""

    round: int
    route: int
    hop: int
    client: int
    what: str
    done: str
    node: str = ""
    """The client's name, where it is a node."""

    def line(self) -> dict[str, Any]:
        """As the run folder stores it."""
        return {name: value for name, value in asdict(self).items() if name != "node" or value}


def event_label(event: Mapping[str, Any]) -> str:
    """What a line of `events.jsonl` is counted under: what went wrong, and at which node."""
    return f"{event['what']} ({event['node']})" if event.get("node") else str(event["what"])


def is_fault(event: Mapping[str, Any]) -> bool:
    """Whether a line of `events.jsonl` is about a fault; to be merged too late is part of the method."""
    return bool(event["done"] != LATE and event["what"] not in REMARKS)


def server_event(round: int, what: str, done: str, client: int = SERVER) -> FaultEvent:
    """An event of a round as a whole; −1 stands for the server."""
    return FaultEvent(round, SERVER, SERVER, client, what, done)


def too_few_arrivals(round: int, *, given_up: bool) -> FaultEvent:
    """A round to which fewer models returned than are needed."""
    return server_event(round, "too few arrivals", GIVEN_UP if given_up else "the round repeats")


def events_of_arrivals(round: int, overlay: ExecutionOverlay, arrivals: Sequence[Arrival]) -> list[FaultEvent]:
    """The faults of a round's hops: models that were refused or shortened, and tampering that passed unnoticed."""
    found = []
    for arrival in arrivals:
        for index, (client, hop) in enumerate(zip(arrival.clients, arrival.hops, strict=True)):
            tamper = overlay.tamper_at(arrival.route, index)
            refused = hop.refused.partition(":")[0]  # what follows differs from case to case
            what = tamper.what if tamper else refused or ("long update" if hop.update_clipped else "")
            if what:
                prefix = "" if hop.refused == LATE else REFUSED if hop.answered else PASSED_OVER
                done = f"{prefix}{hop.refused}" if hop.refused else "shortened" if hop.update_clipped else "handed on"
                found.append(FaultEvent(round, arrival.route, index, client, what, done))
    return found
