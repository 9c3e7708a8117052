"""Lists for the terminal: methods and their options, data sets and partitions, nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic.fields import FieldInfo
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedrelay.data.registry import DatasetSource
from fedrelay.data.search_folders import ROOT_VARIABLE
from fedrelay.experiment.method_catalogue import MethodEntry
from fedrelay.experiment.method_grammar import ParsedMethod
from fedrelay.experiment.part_docs import meaning
from fedrelay.experiment.spec import Section
from fedrelay.files import expand_home
from fedrelay.report.client_class_counts import ClientClassCounts
from fedrelay.report.format import NONE, count
from fedrelay.report.terminal.run_tables import facts_grid, plain_table

if TYPE_CHECKING:  # behind an extra
    from fedrelay.engines.flower.node_facts import NodeFacts
    from fedrelay.engines.flower.server.node_registration import ListedNode

BINS = 8
BAR = 24


def method_list(catalogue: Mapping[str, MethodEntry], plugins: Mapping[str, EntryPoint]) -> RenderableType:
    """List all methods; methods of installed plug-ins that are not imported yet are listed with their package."""
    table = plain_table("method", "what it does", "parts")
    for name, entry in catalogue.items():
        table.add_row(Text(name, style="bold"), entry.summary, ", ".join(_parts_of(entry)))
    for name, point in plugins.items():
        if name not in catalogue:
            package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.module
            table.add_row(Text(name, style="bold"), f"plug-in of {package}", Text(point.module, style="dim"))
    hint = "Join names with +, as in fedseq+fedprox. Terms add up; a method has one of every other part."
    more = "fedrelay methods show NAME explains a method and its options."
    return Group(table, Text(), Text(f"  {hint}\n  {more}", style="dim"))


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
    return " ".join(f"{number}:{held}" for number, held in enumerate(facts.histogram) if held)


def method_page(plan: ParsedMethod, described: Callable[[type[Section]], str]) -> Iterator[RenderableType]:
    """Show a method's parts: the docstring of each part's file, and its options."""
    yield Text(plan.name, style="bold")
    yield facts_grid({where: part.__name__ for where, part in plan.parts()})
    shown: set[tuple[str, str]] = set()
    for where, part in plan.parts():
        opening, *paragraphs = _paragraphs(described(part))
        yield Text()
        yield Text(f"{where}: {opening}", style="bold")
        for paragraph in paragraphs:
            if (part.__module__, paragraph) in shown:  # of a plug-in's file that describes several parts
                continue
            shown.add((part.__module__, paragraph))
            yield Padding(_labelled(paragraph), (0, 0, 0, 2))
        options = plan.options(where, part)
        yield Padding(_options(where, options, plan.defaults.get(where, {})), (1, 0, 0, 2))


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


def _parts_of(entry: MethodEntry) -> list[str]:
    """The parts that a name adds to a method."""
    terms = {f"term {name}": term for name, term in entry.terms.items()}
    parts = {"warm-up": entry.warmup, "route": entry.route, "grouping": entry.grouping, **terms, "merge": entry.merge}
    return [name for name, part in parts.items() if part is not None]


def _options(where: str, options: Mapping[str, FieldInfo], usual: Mapping[str, Any]) -> RenderableType:
    """The options of a part as they are typed; `usual` holds the method's own defaults."""
    if not options:
        return Text("no options", style="dim")
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for name, field in options.items():
        default = usual.get(name, field.default)
        table.add_row(f"--set {where}.{name}={_typed(default)}", meaning(field))
    return table


def _typed(default: Any) -> str:
    """A default value in YAML."""
    if isinstance(default, bool) or default is None:
        return str(default).lower().replace("none", "null")
    return f"{default:g}" if isinstance(default, float) else str(default)


def _paragraphs(text: str) -> list[str]:
    """Paragraphs without their line breaks; indented ones keep theirs."""
    blocks = [block for block in re.split(r"\n\s*\n", text.strip("\n")) if block.strip()]
    return [block if block.startswith(" ") else " ".join(block.split()) for block in blocks] or [""]


def _labelled(paragraph: str) -> Text:
    """A paragraph with its label in bold, such as `Rule:`."""
    text = Text(paragraph)
    if label := re.match(r"\w+:", paragraph):
        text.stylize("bold", 0, label.end())
    return text


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
    counts, _ = np.histogram(values, bins=edges)
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(justify="right", style="dim")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(justify="right")
    table.add_row(f"  {what}", "", Text("clients", style="dim"))
    for low, high, held in zip(edges[:-1], edges[1:] - 1, counts, strict=True):
        name = count(low) if low == high else f"{count(low)}–{count(high)}"
        table.add_row(f"  {name}", "█" * round(BAR * held / max(1, counts.max())) or ("▏" if held else ""), count(held))
    return table


def _edges(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Integer edges of at most `BINS` equal bins; the last edge is above the greatest value."""
    low, high = int(values.min()), int(values.max())
    width = -(-(high - low + 1) // BINS)
    return np.arange(low, high + width + 1, width)
