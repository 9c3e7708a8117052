"""`fedrelay methods`: what there is, and what each method consists of."""

from __future__ import annotations

from typing import Annotated

import typer

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import examples


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(rich_markup_mode="rich")
    group.callback(invoke_without_command=True)(methods)
    group.command(
        epilog=examples("fedrelay methods show fedseq", "fedrelay methods show fedseq+fedprox"),
    )(show)
    app.add_typer(group, name="methods", epilog=examples("fedrelay methods", "fedrelay methods show fedseq+fedprox"))


def methods(context: typer.Context) -> None:
    """List all methods; names can be joined with +."""
    if context.invoked_subcommand is None:
        from fedrelay.experiment.catalogue import CATALOGUE
        from fedrelay.report.listings import method_list

        CommandOutput().show(method_list(CATALOGUE))


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a method, or several joined with +")],
) -> None:
    """Explain a method: its parts, their options and the papers behind them."""
    from fedrelay.experiment.catalogue import blueprint, described
    from fedrelay.report.listings import method_page

    CommandOutput().show(*method_page(blueprint(name), described))
