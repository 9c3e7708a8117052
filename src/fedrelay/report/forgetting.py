"""How much a model forgets of earlier clients along a chain."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.errors import RunFolderError
from fedrelay.report.format import NONE, percent
from fedrelay.report.terminal.table_shapes import facts_grid, plain_table
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.tasks.task_facts import CLASSIFICATION, metric_label

MOST_HOPS = 9
"""The most hops that fit a table of 80 columns; a figure shows any number."""


def forgetting_matrices(records: RunFolderReader) -> list[Row]:
    """Read all chains that a run followed.

    Row i of a `matrix` holds the scores, such as accuracies, after hop i, on the samples of the clients of hops 0 to i.

    Raises:
        RunFolderError: `forgetting.jsonl` is damaged.
    """
    try:
        return [_checked(line) for line in records.lines("forgetting")]
    except (KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{records.path / 'forgetting.jsonl'}: is damaged ({error})") from None


def _checked(line: Row) -> Row:
    if [len(row) for row in line["matrix"]] != list(range(1, len(line["clients"]) + 1)):
        raise ValueError("its matrix does not fit its clients")
    names = ("round", "clients", "matrix", "backward_transfer")
    return {**{name: line[name] for name in names}, "forgetting": line["forgetting"] or []}


def last_forgetting(records: RunFolderReader) -> Row | None:
    """Return the last chain that the run followed, preferring chains of more than one client."""
    followed = forgetting_matrices(records)
    chains = [each for each in followed if len(each["clients"]) > 1] or followed
    return chains[-1] if chains else None


def forgetting_table(chain: Row, metric: str = CLASSIFICATION.measured_on_clients) -> RenderableType:
    """Show the matrix in the terminal, one row per hop."""
    clients, transfer = chain["clients"], chain["backward_transfer"]
    change = NONE if transfer is None else f"{'+' if transfer > 0 else ''}{percent(transfer)}"
    facts = facts_grid(
        {
            "chain": f"round {chain['round']}, {len(clients)} hops",
            "backward transfer": f"{change}  (below 0: the model forgets)",
        }
    )
    if len(clients) > MOST_HOPS:
        hint = f"  more than {MOST_HOPS} hops; --plot FILE.png draws all of them"
        return Group(facts, Text(), Text(hint, style="dim"))
    table = plain_table(f"{metric_label(metric)} % on client", *map(str, clients), numeric=True)
    lines = {f"after client {client}": row for client, row in zip(clients, chain["matrix"], strict=True)}
    for name, shares in (lines | ({"forgotten": chain["forgetting"]} if chain["forgetting"] else {})).items():
        table.add_row(name, *(f"{100 * share:.1f}" for share in shares))
    return Group(facts, Text(), table)
