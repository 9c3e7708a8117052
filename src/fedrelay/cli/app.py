"""The program `fedrelay`: its commands, and its exit codes."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from importlib import import_module
from typing import Annotated

import typer
from typer import Option
from typer.main import get_command

from fedrelay.cli.interrupts import StoppedByUser, sigterm_as_interrupt
from fedrelay.cli.output import only_json_on_stdout, print_error
from fedrelay.cli.settings import examples
from fedrelay.errors import FedRelayError
from fedrelay.experiment.error_messages import in_plain_words, nearest
from fedrelay.experiment.spec import full_path

_ClickException: type[Exception] = typer.BadParameter.__mro__[2]  # typer does not export this class

PANELS: dict[str, dict[str, tuple[str, ...]]] = {
    "Experiments": {
        "demo": ("demo",),
        "run": ("run", "compare", "resume"),
        "tune": ("tune",),
        "plan": ("plan",),
        "group": ("group",),
        "attack": ("attack",),
    },
    "Results": {
        "show": ("show",),
        "report": ("report", "watch"),
        "export": ("export",),
        "reproduce": ("reproduce",),
    },
    "Catalogue": {
        "methods": ("methods",),
        "data": ("data",),
        "bench": ("bench",),
    },
    "Real federation": {
        "deploy": ("certificates", "key", "roster", "superlink", "node", "nodes"),
        "audit": ("audit",),
    },
}
"""The modules of the commands, by panel of the help, and the commands of each."""

COMMANDS = frozenset(name for modules in PANELS.values() for names in modules.values() for name in names)

REPLACED_OPTIONS = {
    "fedrelay node --hold-out": "is now --holdout",
    "fedrelay node --label": "is now --target, the column to predict; see --categorical, --drop and --min-rows too",
    "fedrelay node --no-header": "is gone: write the names of the columns into the first line of the file",
}
"""Options of earlier versions, by command, and what to use instead."""


def program(command: str | None = None) -> typer.Typer:
    """The program with all commands, or, to load less, with those of the module that has one command."""
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
    app.callback()(_options)
    for panel, modules in PANELS.items():
        for module, names in modules.items():
            if command is None or command in names:
                _add(app, import_module(f"fedrelay.cli.{module}").app, panel)
    return app


def _add(app: typer.Typer, part: typer.Typer, panel: str) -> None:
    """Add the commands of a module."""
    if part.info.name:
        app.add_typer(part, rich_help_panel=panel)
        return
    for command in part.registered_commands:
        command.rich_help_panel = panel
        app.registered_commands.append(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # it takes a while to load

        typer.echo(f"fedrelay {version('fedrelay')}")
        raise typer.Exit


def _options(
    _version: Annotated[
        bool, Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


@cache
def _command_tree(command: str | None) -> Callable[..., object]:
    """Commands as they are called; putting all of them together takes longer than many a command."""
    return get_command(program(command)).main


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code. Without arguments, print the help."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an old terminal prints ? for →
    try:
        with sigterm_as_interrupt(), only_json_on_stdout() if "--json" in words else nullcontext():
            code = _command_tree(words[0] if words[0] in COMMANDS else None)(
                words, prog_name="fedrelay", standalone_mode=False
            )
    except FedRelayError as error:
        print_error(str(error))
        return error.exit_code
    except _ClickException as error:
        print_error(_usage(error))
        return 2
    except KeyboardInterrupt:
        print_error("stopped")
        return 130
    except MemoryError as error:
        print_error(f"not enough memory ({str(error).splitlines()[0] if str(error) else 'no details'})")
        return FedRelayError.exit_code
    except OSError as error:  # such as a full disk
        print_error(str(error))
        return FedRelayError.exit_code
    if code == StoppedByUser.exit_code:  # typer turns an interrupt into a plain exit
        print_error("stopped")
    return code if isinstance(code, int) else 0


def _usage(error: BaseException) -> str:
    """A usage error in one line, and where to find help."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "fedrelay"
    option = getattr(error, "option_name", "")
    if replaced := REPLACED_OPTIONS.get(f"{path} {option}"):
        return f"{option}: {replaced}"
    if option and hasattr(error, "possibilities"):  # it is unknown, not used wrongly
        return f"No such option '{option}'{_instead(option, context)}\nTry '{path} --help'"
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if message.count("Did you mean") > 1:  # click and typer both suggest something
        message = f"{message.split('?')[0]}?"
    what, colon, why = message.partition("': ")  # newer versions of typer quote pydantic
    message = f"{what}{colon}{in_plain_words(why)}" if colon else message
    return f"{message}\nTry '{path} --help'"


def _instead(option: str, context: typer.Context | None) -> str:
    """What to use instead of an unknown option: `--set`, if it is the name of a setting, or an option like it."""
    known = [name for each in context.command.params for name in each.opts] if context else []
    setting = full_path(option.removeprefix("--").replace("-", "_"))
    if "." in setting and "--set" in known:
        return f"; use --set {setting}=VALUE"
    return nearest(option, known)
