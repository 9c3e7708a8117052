"""Methods for the terminal: the catalogue, and the parts and options of one method."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any

from pydantic.fields import FieldInfo
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from fedrelay.experiment.method_catalogue import MethodEntry
from fedrelay.experiment.part_docs import flat_options, meaning
from fedrelay.experiment.spec import Section
from fedrelay.report.terminal.table_shapes import facts_grid, plain_table

if TYPE_CHECKING:  # needs PyTorch
    from fedrelay.experiment.method_grammar import ParsedMethod


def method_list(catalogue: Mapping[str, MethodEntry], plugins: Mapping[str, EntryPoint]) -> RenderableType:
    """List all methods; methods of installed plug-ins that are not imported yet are listed with their package."""
    table = plain_table("method", "what it does", "parts")
    for name, entry in catalogue.items():
        table.add_row(Text(name, style="bold"), entry.summary, ", ".join(entry.part_names()))
    for name, point in plugins.items():
        if name not in catalogue:
            package = f"{point.dist.name} {point.dist.version}" if point.dist is not None else point.module
            table.add_row(Text(name, style="bold"), f"plug-in of {package}", Text(point.module, style="dim"))
    hint = "Join names with +, as in fedseq+fedprox. Terms add up; a method has one of every other part."
    more = "fedrelay methods show NAME explains a method and its options."
    return Group(table, Text(), Text(f"  {hint}\n  {more}", style="dim"))


def method_page(plan: ParsedMethod, described: Callable[[type[Section]], str]) -> Iterator[RenderableType]:
    """Show a method's parts: the docstring of each part's file, and its options."""
    yield Text(plan.name, style="bold")
    given = {setting: f"{value}" for setting, value in plan.train_settings().items()}
    yield facts_grid({**{where: part.__name__ for where, part in plan.parts()}, "sampling": plan.sampling, **given})
    shown: set[tuple[str, str]] = set()
    for where, part in plan.parts():
        opening, *paragraphs = _paragraphs(described(part))
        yield Text()
        yield Text(f"{where}: {opening}", style="bold")
        if where == "server" and where not in plan.defaults:  # every method has it
            paragraphs = ["Nothing, unless an option is set; 'fedrelay methods show lookahead' says more."]
        for paragraph in paragraphs:
            if (part.__module__, paragraph) in shown:  # of a plug-in's file that describes several parts
                continue
            shown.add((part.__module__, paragraph))
            yield Padding(_labelled(paragraph), (0, 0, 0, 2))
        options = plan.options(where, part)
        usual = dict(flat_options(where, plan.defaults.get(where, {})))
        yield Padding(_options(where, options, usual), (1, 0, 0, 2))


def _options(where: str, options: Mapping[str, FieldInfo], usual: Mapping[str, Any]) -> RenderableType:
    """The options of a part as they are typed; `usual` holds the method's own defaults."""
    if not options:
        return Text("no options", style="dim")
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column()
    for name, field in options.items():
        default = usual.get(f"{where}.{name}", field.default)
        table.add_row(f"--set {where}.{name}={_typed(default)}", meaning(field))
    return table


def _typed(default: Any) -> str:
    """A default value in YAML."""
    if isinstance(default, bool) or default is None:
        return str(default).lower().replace("none", "null")
    if isinstance(default, tuple | list):
        return f"[{', '.join(map(_typed, default))}]"
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
