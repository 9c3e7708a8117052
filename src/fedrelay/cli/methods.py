"""`fedrelay methods`: the catalogue of methods, and the parts of each."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Plugin, examples, load_plugin_options

app = typer.Typer(
    name="methods",
    epilog=examples(
        "fedrelay methods", "fedrelay methods --plugin mylab.pairs", "fedrelay methods show fedseq+fedprox"
    ),
)


@app.callback(invoke_without_command=True)
def methods(context: typer.Context, plugin: Plugin = None) -> None:
    """List all methods, including those of plug-ins."""
    if plugin:
        load_plugin_options(plugin)
    if context.invoked_subcommand is None:
        from fedrelay.experiment.method_catalogue import METHODS, plugin_methods
        from fedrelay.report.terminal.method_pages import method_list

        CommandOutput().print(method_list(METHODS, plugin_methods()))


@app.command(
    epilog=examples(
        "fedrelay methods show fedseq+fedprox",
        "fedrelay methods show pairs --plugin mylab.pairs",
    )
)
def show(
    name: Annotated[str, Argument(metavar="NAME", help="a method, or several joined with +")], plugin: Plugin = None
) -> None:
    """Explain a method: its parts, their papers, rules and options."""
    from fedrelay.experiment.method_grammar import parse_method
    from fedrelay.experiment.part_docs import documentation
    from fedrelay.report.terminal.method_pages import method_page

    if plugin:
        load_plugin_options(plugin)
    CommandOutput().print(*method_page(parse_method(name), documentation))
