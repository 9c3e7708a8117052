"""`fedrelay methods`: the catalogue of methods, and the parts of each."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument, Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import examples
from fedrelay.user_code import import_from_current_folder

app = typer.Typer(name="methods", epilog=examples("fedrelay methods", "fedrelay methods show fedseq+fedprox"))


@app.callback(invoke_without_command=True)
def methods(context: typer.Context) -> None:
    """List all methods, including those of plug-ins."""
    if context.invoked_subcommand is None:
        from fedrelay.experiment.catalogue import METHODS, plugin_methods
        from fedrelay.report.terminal.catalogue import method_list

        CommandOutput().print(method_list(METHODS, plugin_methods()))


@app.command(epilog=examples("fedrelay methods show fedseq", "fedrelay methods show fedseq+fedprox"))
def show(
    name: Annotated[str, Argument(metavar="NAME", help="a method, or several joined with +")],
    plugin: Annotated[
        list[str] | None, Option(metavar="MODULE", help="a module that registers methods; repeatable")
    ] = None,
) -> None:
    """Explain a method: its parts, their papers, rules and options."""
    from fedrelay.experiment.catalogue import load_plugins
    from fedrelay.experiment.grammar import parse_method
    from fedrelay.experiment.part_docs import documentation
    from fedrelay.report.terminal.catalogue import method_page

    if plugin:
        import_from_current_folder()
        load_plugins(plugin)
    CommandOutput().print(*method_page(parse_method(name), documentation))
