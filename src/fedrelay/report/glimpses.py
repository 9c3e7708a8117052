"""What spies have gathered, beside each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from fedrelay.espionage import Haul
from fedrelay.report.format import NONE, percent
from fedrelay.report.tables import plain_table

LEVELS = (0.6, 0.7, 0.8)
"""Accuracies of the received model at which spies are compared."""


def haul_facts(hauls: Mapping[str, Haul]) -> dict[str, Any]:
    """Every visit of every spy, as `results.json` and `--json` have them."""
    return {name: {"spy": haul.spy, "visits": [each.facts() for each in haul.glimpses]} for name, haul in hauls.items()}


def glimpse_table(hauls: Mapping[str, Haul]) -> RenderableType:
    """Distances at equal accuracies of the model received, and in the end."""
    table = plain_table("method", "visits", "model", "FID previous", "FID all", numeric=True)
    for name, haul in hauls.items():
        reached = {f"≥ {percent(level, 0)}": haul.first_at(level) for level in LEVELS}
        last = {"last": haul.glimpses[-1]} if haul.glimpses else {}
        for label, glimpse in {**reached, **last}.items():
            numbers = (glimpse.fid_previous, glimpse.fid_all) if glimpse else (None, None)
            shown = (NONE if number is None else f"{number:.3g}" for number in numbers)
            table.add_row(name, str(len(haul.glimpses)), label, *shown)
    hint = "FID of features of a small network trained here: compare within this table only; larger is a weaker attack"
    return Group(table, Text(), Text(f"  {hint}", style="dim"))
