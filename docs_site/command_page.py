"""The page of all commands, from the program itself."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from fedrelay.cli.app import PANELS, program

_MARKUP = re.compile(r"\[/?(?:bold|dim|italic|cyan)\]")


def commands_page() -> str:
    """Every command with its arguments, its options and its examples."""
    return "\n".join(
        [
            "# Commands\n",
            "What `fedrelay --help` and `fedrelay COMMAND --help` print. Options of experiments are short for "
            "[settings](../settings.md); `--set` takes every other setting. Exit codes: "
            "[errors](errors.md) say which error has which code.\n",
            *_overview(),
            *(line for name, command in commands() for line in _section(name, command)),
        ]
    )


def commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, in the order of the program's help."""
    tree = get_command(program())
    names = [name for modules in PANELS.values() for of_module in modules.values() for name in of_module]
    for name in sorted(tree.commands, key=names.index):  # type: ignore[attr-defined]
        command = tree.commands[name]  # type: ignore[attr-defined]
        if not hasattr(command, "commands") or command.invoke_without_command:
            yield name, command
        for inner, each in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", each


def _overview() -> Iterator[str]:
    yield "| command | what it does |"
    yield "|---|---|"
    for name, command in commands():
        yield f"| [`fedrelay {name}`](#fedrelay-{name.replace(' ', '-')}) | {_plain(_lead(command))} |"
    yield ""


def _lead(command: Any) -> str:
    return _plain((command.help or "").split("\n\n")[0].replace("\n", " "))


def _section(name: str, command: Any) -> Iterator[str]:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    words = " ".join(_shown(each) for each in arguments)
    yield f"## fedrelay {name}\n"
    yield f"```text\nfedrelay {name}{f' {words}' if words else ''} [OPTIONS]\n```\n"
    yield f"{_plain(command.help or '')}\n"
    if arguments:
        yield from _table("argument", [(f"`{_shown(each)}`", each.help) for each in arguments])
    panels: dict[str | None, list[Any]] = {}
    for option in options:
        panels.setdefault(getattr(option, "rich_help_panel", None), []).append(option)
    for panel, each in panels.items():
        rows = [(_flags(option), f"{option.help or ''}{_default(option)}") for option in each]
        yield from _table(f"options: {panel.lower()}" if panel else "option", rows)
    if command.epilog:
        lines = [line.removeprefix("$ ") for line in _plain(command.epilog).splitlines() if line.startswith("$ ")]
        yield "```sh\n" + "\n".join(lines) + "\n```\n"


def _shown(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).strip("[]")
    several = "…" if argument.nargs == -1 and not name.endswith(("…", "...")) else ""
    return f"{name}{several}" if argument.required else f"[{name}{several}]"


def _flags(option: Any) -> str:
    flags = ", ".join((*option.opts, *option.secondary_opts))
    if option.is_flag:
        return f"`{flags}`"
    return f"`{flags} {option.metavar or _kind(option)}`"


def _kind(option: Any) -> str:
    """What an option takes, such as `INTEGER`; newer versions of typer have no `type`."""
    if hasattr(option, "type"):
        return str(option.type.name.upper())
    return str(option.display_type(typer.Context(get_command(program()))))


def _default(option: Any) -> str:
    shown = option.default is not None and not option.is_flag and not callable(option.default) and option.default != ()
    return f" (default: `{option.default}`)" if shown and "default" not in (option.help or "") else ""


def _table(title: str, rows: list[tuple[str, str | None]]) -> Iterator[str]:
    yield f"| {title} | meaning |"
    yield "|---|---|"
    for name, text in rows:
        yield f"| {_cell(name)} | {_cell(_plain(text or ''))} |"
    yield ""


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


def _plain(text: str) -> str:
    return _MARKUP.sub("", text).replace(r"\[", "[")
