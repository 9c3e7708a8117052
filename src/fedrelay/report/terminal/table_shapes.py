"""The two shapes of tables in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich import box
from rich.console import RenderableType
from rich.table import Table


def facts_grid(rows: Mapping[str, RenderableType]) -> Table:
    """Names and values in two columns."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows.items():
        grid.add_row(f"  {name}", value)
    return grid


def plain_table(*columns: str, numeric: bool = False) -> Table:
    """A table with one rule below its head; with `numeric` all columns but the first hold numbers."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=True, header_style="bold", show_edge=False)
    for index, column in enumerate(columns):
        number = numeric and index > 0
        table.add_column(column, justify="right" if number else "left", no_wrap=number, overflow="fold")
    return table
