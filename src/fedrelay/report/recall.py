"""What a travelling model still knows of the clients it has left: the last chain that a run followed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.errors import RunFolderError
from fedrelay.report.format import NONE, percent
from fedrelay.report.tables import facts_grid, plain_table
from fedrelay.runtime.store import Records

MOST_HOPS = 9
"""So many hops are shown in a table of 80 columns; a picture shows any number."""


@dataclass(frozen=True)
class Recall:
    """A followed chain: its clients, and after every hop the accuracy on each one's samples so far."""

    round: int
    clients: tuple[int, ...]
    matrix: tuple[tuple[float, ...], ...]
    backward_transfer: float | None
    forgetting: tuple[float, ...]

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Self:
        """From a line of forgetting.jsonl."""
        clients, matrix = tuple(line["clients"]), tuple(tuple(map(float, row)) for row in line["matrix"])
        if [len(row) for row in matrix] != list(range(1, len(clients) + 1)):
            raise ValueError("its matrix does not fit its clients")
        transfer, lost = line["backward_transfer"], line["forgetting"] or ()
        return cls(int(line["round"]), clients, matrix, None if transfer is None else float(transfer), tuple(lost))

    def facts(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "round": self.round,
            "clients": list(self.clients),
            "matrix": [list(row) for row in self.matrix],
            "backward_transfer": self.backward_transfer,
            "forgetting": list(self.forgetting),
        }


def recalls(records: Records) -> list[Recall]:
    """All chains that a run followed."""
    try:
        return [Recall.of(line) for line in records.lines("forgetting")]
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{records.path / 'forgetting.jsonl'}: is damaged ({error})") from None


def last_recall(records: Records) -> Recall | None:
    """The last chain that a run followed, if it followed any; one of a single client has nothing to forget."""
    followed = recalls(records)
    chains = [each for each in followed if len(each.clients) > 1] or followed
    return chains[-1] if chains else None


def recall_of(run: Path) -> Recall | None:
    """The same of a run that is not open."""
    return last_recall(Records.open(run))


def recall_table(recall: Recall) -> RenderableType:
    """The matrix, one row for every hop, and what it says of forgetting."""
    facts = facts_grid(
        {
            "chain": f"round {recall.round}, {len(recall.clients)} hops",
            "backward transfer": f"{_points(recall.backward_transfer)}  (below 0: it forgets)",
        }
    )
    if len(recall.clients) > MOST_HOPS:
        hint = f"  more than {MOST_HOPS} hops; --plot FILE.png draws them all"
        return Group(facts, Text(), Text(hint, style="dim"))
    table = plain_table("accuracy % on client", *map(str, recall.clients), numeric=True)
    for client, row in zip(recall.clients, recall.matrix, strict=True):
        table.add_row(f"after client {client}", *(f"{100 * share:.1f}" for share in row))
    if recall.forgetting:
        table.add_row("forgotten", *(f"{100 * lost:.1f}" for lost in recall.forgetting))
    return Group(facts, Text(), table)


def _points(transfer: float | None) -> str:
    """A difference of accuracies with its sign."""
    return NONE if transfer is None else f"{'+' if transfer > 0 else ''}{percent(transfer)}"
