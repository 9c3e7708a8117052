"""Lists for the terminal: data sets and partitions, nodes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from fedrelay.data.client_class_counts import ClientClassCounts
from fedrelay.data.registry import DatasetSource
from fedrelay.data.search_folders import ROOT_VARIABLE
from fedrelay.files import expand_home
from fedrelay.report.format import NONE, count
from fedrelay.report.terminal.table_shapes import facts_grid, plain_table

if TYPE_CHECKING:  # behind an extra
    from fedrelay.engines.flower.node_facts import NodeFacts
    from fedrelay.engines.flower.server.node_registration import ListedNode

BINS = 8
BAR = 24


def node_list(members: Sequence[ListedNode]) -> RenderableType:
    """List the nodes of a federation."""
    table = plain_table("node", "state", "samples", "held out", "classes", "last seen")
    for number, member in enumerate(members):
        facts = member.facts
        held = [count(facts.samples), _held_out(facts), _class_mix(facts)] if facts is not None else [NONE] * 3
        seen = "never" if member.seen is None else f"{max(0.0, member.seen):.0f} s ago"
        asks = f", requires dp ≥ {facts.least_noise:g}" if facts is not None and facts.least_noise else ""
        table.add_row(f"{number} {member.name}", Text(f"{member.status}{asks}"), *held, seen)
    ready = sum(member.status == "ready" for member in members)
    told = {member.name: member.facts.classes for member in members if member.facts is not None}
    most = max(told, key=lambda name: told[name], default="")
    classes = f"; {told[most]:,} classes, from the labels of {most}" if told else ""
    return Group(table, Text(), Text(f"  {ready} of {len(members)} are ready{classes}", style="dim"))


def _held_out(facts: NodeFacts) -> str:
    """The held-out samples of a node, with those for validation if there are any."""
    return count(facts.tests) + (f" + {count(facts.validations)} validation" if facts.validations else "")


def _class_mix(facts: NodeFacts) -> str:
    """The class counts of a node if it reports them, else the number of classes."""
    if facts.histogram is None:
        return f"up to {facts.classes}, counts not reported"
    counts = " ".join(f"{number}:{held}" for number, held in enumerate(facts.histogram) if held)
    return counts if facts.histogram_epsilon is None else f"{counts} (noisy, ε {facts.histogram_epsilon:g})"


def dataset_list(sources: Iterable[DatasetSource]) -> Iterator[RenderableType]:
    """List all data sets, where they were found, and the searched folders."""
    table = plain_table("data set", "what it is", "found")
    searched: dict[Path, None] = {}
    for source in sources:
        found = source.find()
        table.add_row(Text(source.name, style="bold" if found else "dim"), source.summary, _place(source, found))
        searched |= dict.fromkeys(folder.parent for folder in source.folders() if folder.name == source.name)
    table.add_row(
        Text("table", style="dim"),
        "any .csv or .parquet table, with data.table.target and optionally a column of clients",
        Text("needs a path", style="dim"),
    )
    table.add_row(
        Text("synthetic", style="bold"),
        "generated, Synthetic(α, β) of FedProx; any number of clients",
        "always",
    )
    yield table
    yield Text()
    yield facts_grid({"searched": "\n".join(f"{_short(folder)}/NAME" for folder in searched)})
    yield Text(f"  ${ROOT_VARIABLE} names a folder with one sub-folder per data set;", style="dim")
    yield Text("  --data-path points at one directly.", style="dim")


def partition_page(partition: ClientClassCounts, *, histograms: bool) -> RenderableType:
    """Show a partition in numbers and, if wanted, with histograms."""
    facts = partition.summary()
    rows: dict[str, RenderableType] = {
        "clients": count(facts["clients"]),
        "samples": f"{count(facts['samples'])} to train, {count(facts['test_samples'])} to test",
        "classes": count(partition.classes),
        "samples per client": _span(facts["samples_per_client"]),
        "classes per client": _span(facts["classes_per_client"]),
        "median CPD": f"{_decimal(facts['median_cpd'])}  (0: same class mix, 1.26: no class in common)",
        "balance ratio": f"{_decimal(facts['balance_ratio'])}  (rarest over most frequent class, all clients)",
    }
    if facts["looked_at"] < facts["clients"]:
        rows["counted"] = f"classes of {count(facts['looked_at'])} clients, evenly chosen"
    page: list[RenderableType] = [Text(partition.name, style="bold"), facts_grid(rows)]
    if histograms:
        page += [Text(), _bars("samples", partition.sizes), Text(), _bars("classes", partition.classes_held)]
    return Group(*page)


def _place(source: DatasetSource, found: Path | None) -> Text:
    if found is None:
        return Text("needs a path" if not source.folders() else "not found", style="dim")
    if source.name == "digits":
        return Text("always")
    return Text(_short(found if found.is_dir() else found.parent), overflow="fold")


def _short(path: Path) -> str:
    """Shorten a path with `$FEDRELAY_DATA` or `~`."""
    root = os.environ.get(ROOT_VARIABLE)
    for name, folder in ((f"${ROOT_VARIABLE}", expand_home(Path(root)) if root else None), ("~", Path.home())):
        if folder is not None and path.is_relative_to(folder):
            return f"{name}/{path.relative_to(folder)}".removesuffix("/.")
    return str(path)


def _span(values: Mapping[str, float]) -> str:
    return "   ".join(f"{name} {count(values[name])}" for name in ("min", "median", "max"))


def _decimal(value: float | None) -> str:
    return NONE if value is None else f"{value:.3f}"


def _bars(what: str, values: NDArray[np.int64]) -> Table:
    """A histogram over clients in text."""
    edges = _edges(values)
    heights: list[int] = np.histogram(values, bins=edges)[0].tolist()
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="dim")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(justify="right")
    table.add_row(f"  {what}", "", Text("clients", style="dim"))
    for low, high, held in zip(edges[:-1], edges[1:] - 1, heights, strict=True):
        name = count(low) if low == high else f"{count(low)}–{count(high)}"
        table.add_row(f"  {name}", "█" * round(BAR * held / max(1, *heights)) or ("▏" if held else ""), count(held))
    return table


def _edges(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integer edges of at most `BINS` equal bins; the last edge is above the greatest value."""
    low, high = int(values.min()), int(values.max())
    width = -(-(high - low + 1) // BINS)
    return np.arange(low, high + width + 1, width)
