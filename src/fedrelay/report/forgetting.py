"""How much a model forgets of earlier clients along a chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.errors import RunFolderError
from fedrelay.report.format import NONE, percent
from fedrelay.report.terminal.tables import facts_grid, plain_table
from fedrelay.runtime.store import Records

MOST_HOPS = 9
"""The most hops that fit a table of 80 columns; a figure shows any number."""


@dataclass(frozen=True)
class ForgettingMatrix:
    """Accuracy on the samples of each earlier client after every hop of one chain."""

    round: int
    clients: tuple[int, ...]
    matrix: tuple[tuple[float, ...], ...]
    """Row i holds the accuracies after hop i, on the clients of hops 0 to i."""

    backward_transfer: float | None
    forgetting: tuple[float, ...]

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Self:
        """Read a line of `forgetting.jsonl`."""
        clients, matrix = tuple(line["clients"]), tuple(tuple(map(float, row)) for row in line["matrix"])
        if [len(row) for row in matrix] != list(range(1, len(clients) + 1)):
            raise ValueError("its matrix does not fit its clients")
        transfer, lost = line["backward_transfer"], line["forgetting"] or ()
        return cls(int(line["round"]), clients, matrix, None if transfer is None else float(transfer), tuple(lost))

    def facts(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        return {
            "round": self.round,
            "clients": list(self.clients),
            "matrix": [list(row) for row in self.matrix],
            "backward_transfer": self.backward_transfer,
            "forgetting": list(self.forgetting),
        }


def forgetting_matrices(records: Records) -> list[ForgettingMatrix]:
    """Read all chains that a run followed.

    Raises:
        RunFolderError: `forgetting.jsonl` is damaged.
    """
    try:
        return [ForgettingMatrix.of(line) for line in records.lines("forgetting")]
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{records.path / 'forgetting.jsonl'}: is damaged ({error})") from None


def last_forgetting(records: Records) -> ForgettingMatrix | None:
    """Return the last chain that the run followed, preferring chains of more than one client."""
    followed = forgetting_matrices(records)
    chains = [each for each in followed if len(each.clients) > 1] or followed
    return chains[-1] if chains else None


def forgetting_table(chain: ForgettingMatrix) -> RenderableType:
    """Show the matrix in the terminal, one row per hop."""
    facts = facts_grid(
        {
            "chain": f"round {chain.round}, {len(chain.clients)} hops",
            "backward transfer": f"{_signed(chain.backward_transfer)}  (below 0: the model forgets)",
        }
    )
    if len(chain.clients) > MOST_HOPS:
        hint = f"  more than {MOST_HOPS} hops; --plot FILE.png draws all of them"
        return Group(facts, Text(), Text(hint, style="dim"))
    table = plain_table("accuracy % on client", *map(str, chain.clients), numeric=True)
    for client, row in zip(chain.clients, chain.matrix, strict=True):
        table.add_row(f"after client {client}", *(f"{100 * share:.1f}" for share in row))
    if chain.forgetting:
        table.add_row("forgotten", *(f"{100 * lost:.1f}" for lost in chain.forgetting))
    return Group(facts, Text(), table)


def _signed(transfer: float | None) -> str:
    return NONE if transfer is None else f"{'+' if transfer > 0 else ''}{percent(transfer)}"
