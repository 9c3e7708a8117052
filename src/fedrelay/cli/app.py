"""The program `fedrelay`: its commands, and what becomes of errors."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer
from typer.main import get_command

from fedrelay.cli import (
    attack,
    bench,
    data,
    federation,
    group,
    methods,
    plan,
    report,
    reproduce,
    run,
    show,
)
from fedrelay.cli.interrupts import Stopped, terminated_like_interrupted
from fedrelay.cli.output import complain
from fedrelay.cli.settings import examples
from fedrelay.errors import FedRelayError

_ClickException: type[Exception] = typer.BadParameter.__mro__[2]  # typer exports this class under no name of its own

app = typer.Typer(
    name="fedrelay",
    help="Federated learning in which models travel from client to client.",
    epilog=examples(
        "fedrelay run fedseq --clients 100 --alpha 0 --rounds 60",
        "fedrelay compare fedavg fedseq --alpha 0 --seeds 1,2,3",
        "fedrelay methods show fedseq+fedprox",
    ),
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
run.register(app)
show.register(app)
report.register(app)
plan.register(app)
group.register(app)
attack.register(app)
methods.register(app)
data.register(app)
bench.register(app)
reproduce.register(app)
federation.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fedrelay {version('fedrelay')}")
        raise typer.Exit


@app.callback()
def _program(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="show the version and exit"),
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and give back its exit code; without arguments it shows its help."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old terminal shows ? for →
    try:
        with terminated_like_interrupted():
            code = get_command(app).main(words, prog_name="fedrelay", standalone_mode=False)
    except FedRelayError as error:
        complain(str(error))
        return error.exit_code
    except _ClickException as error:
        complain(_usage(error))
        return 2
    except KeyboardInterrupt:
        complain("stopped")
        return 130
    except MemoryError as error:
        complain(f"there is not enough memory ({str(error).splitlines()[0] if str(error) else 'no details'})")
        return FedRelayError.exit_code
    except OSError as error:  # such as a full disk
        complain(str(error))
        return FedRelayError.exit_code
    if code == Stopped.exit_code:  # typer makes a plain exit of an interrupt
        complain("stopped")
    return code if isinstance(code, int) else 0


def _usage(error: BaseException) -> str:
    """Wrong usage in one line, and where to look."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "fedrelay"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    return f"{message}\nTry '{path} --help'"
