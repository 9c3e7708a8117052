"""From the command line to the settings of an experiment: METHOD or FILE, options, and `--set`.

Options win over a file, `--set` wins over both.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from typer import Argument, BadParameter, Option

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import (
    SECTIONS,
    Comparison,
    Experiment,
    full_path,
    load_file,
    parse_assignment,
    set_path,
    validate,
)
from fedrelay.user_code import import_from_current_folder

Tree = dict[str, Any]
Assignments = Sequence[tuple[str, Any]]
"""Dotted or short names and their values, in the order in which they apply."""


@dataclass(frozen=True)
class SettingOption:
    """An option for one key of the spec; the spec also has its help text."""

    flag: str
    path: str
    kind: type
    panel: str
    parser: Callable[[str], Any] | None = None
    """Reads the value, where the type alone would not say what is wrong with it."""

    @property
    def parameter(self) -> str:
        """The name of the Python argument."""
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def help(self) -> str:
        """The description in the spec, with the allowed values."""
        section, _, leaf = self.path.rpartition(".")
        field = (SECTIONS[section] if section else Experiment).model_fields[leaf]
        choices = ", ".join(_choices(field.annotation))
        return f"{field.description}; one of {choices}" if choices else str(field.description)

    def as_parameter(self) -> inspect.Parameter:
        kind: Any = self.kind | None
        metavar = self.kind.__name__.upper() if self.parser else None
        option = Option(self.flag, help=self.help, rich_help_panel=self.panel, parser=self.parser, metavar=metavar)
        annotation = Annotated[kind, option]
        return inspect.Parameter(self.parameter, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _target_score(text: str) -> float:
    """The value of `--target`: at nodes the same option names a column."""
    try:
        return float(text)
    except ValueError:
        raise BadParameter(
            f"{text!r} is not a number: the score at which to stop; for the column of a table to predict, use "
            f"--set table.target={text}"
        ) from None


OPTIONS = {
    option.flag: option
    for option in (
        SettingOption("--data", "data.name", str, "Data"),
        SettingOption("--data-path", "data.path", Path, "Data"),
        SettingOption("--clients", "data.clients", int, "Data"),
        SettingOption("--partition", "data.partition", str, "Data"),
        SettingOption("--alpha", "data.alpha", float, "Data"),
        SettingOption("--validation", "data.validation", float, "Data"),
        SettingOption("--holdout", "data.holdout", float, "Data"),
        SettingOption("--model", "model.name", str, "Training"),
        SettingOption("--rounds", "rounds", int, "Training"),
        SettingOption("--fraction", "fraction", float, "Training"),
        SettingOption("--epochs", "train.epochs", int, "Training"),
        SettingOption("--optimizer", "train.optimizer", str, "Training"),
        SettingOption("--lr", "train.lr", float, "Training"),
        SettingOption("--schedule", "train.schedule", str, "Training"),
        SettingOption("--batch-size", "train.batch_size", int, "Training"),
        SettingOption("--patience", "stop.patience", int, "Training"),
        SettingOption("--target", "stop.target", float, "Training", _target_score),
        SettingOption("--seed", "seed", int, "Training"),
        SettingOption("--engine", "engine.name", str, "Running"),
        SettingOption("--address", "engine.address", str, "Running"),
        SettingOption("--workers", "engine.workers", int, "Running"),
        SettingOption("--out", "out", Path, "Running"),
    )
}
DATA_FLAGS = ("--data-path", "--clients", "--partition", "--alpha", "--seed")
TRAINING_FLAGS = ("--model", "--lr", "--batch-size", "--engine", "--address", "--workers")
"""Options that matter if clients train for their profiles."""

PLUGIN = "--plugin"
"""Also the path, in `Assignments`, of modules that are added to `plugins`."""

ALL_FLAGS = (*OPTIONS, PLUGIN)
PLAN_FLAGS = tuple(flag for flag in ALL_FLAGS if flag != "--out")

Source = Annotated[str, Argument(metavar="METHOD|FILE", help="a method such as fedseq, or a YAML file")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="print errors only")]
Json = Annotated[bool, Option("--json", help="print one JSON object to stdout, everything else to stderr")]
Baseline = Annotated[
    str | None,
    Option(metavar="METHOD", help="the method, by its label, that all others are compared with; default: the first"),
]
Plugin = Annotated[
    list[str] | None,
    Option(
        "--plugin",
        metavar="MODULE",
        help="a module that registers your own methods, such as mylab.pairs; repeatable; adds to 'plugins' of a file",
    ),
]
_Set = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="any setting, such as route.loops=2 or terms.prox.mu=0.1; repeatable; wins over files and options",
    ),
]


def takes_settings(*flags: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add options and `--set` to a command, which gets all their values as its argument `settings`."""
    options = [OPTIONS[flag] for flag in flags if flag != PLUGIN]
    plugin = {"plugin": Plugin} if PLUGIN in flags else {}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def with_settings(**given: Any) -> None:
            chosen = [(option.path, given.pop(option.parameter)) for option in options]
            assigned = [parse_assignment(text) for text in given.pop("assignments") or ()]
            if plugins := given.pop("plugin", None):
                load_plugin_options(plugins)  # now, because the names of methods tell METHOD from FILE
                assigned.append((PLUGIN, plugins))
            command(**given, settings=[*((path, value) for path, value in chosen if value is not None), *assigned])

        own = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(command, eval_str=True).parameters.items()
            if name != "settings"
        ]
        repeatable = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in {**plugin, "assignments": _Set}.items()
        ]
        parameters = [*own, *(option.as_parameter() for option in options), *repeatable]
        with_settings.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        with_settings.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return with_settings

    return decorate


def apply(tree: Tree, settings: Assignments) -> Tree:
    """Put settings into a tree, in place, and return it."""
    for path, value in settings:
        if path == PLUGIN:
            named = tree.get("plugins") or []
            tree["plugins"] = [*(named if isinstance(named, list) else [named]), *value]
        else:
            set_path(tree, full_path(path), value)
    import_from_current_folder()
    _refuse_misplaced_options(tree)
    return tree


def load_plugin_options(modules: Sequence[str]) -> None:
    """Import the modules of `--plugin`, also from the current folder."""
    from fedrelay.experiment.method_catalogue import load_plugins

    import_from_current_folder()
    load_plugins(modules, PLUGIN)


def method_settings(source: str, settings: Assignments) -> Tree:
    """The settings of one run, from a method or a file."""
    if not is_file_name(source):
        return apply({"method": source}, settings)
    tree = load_file(Path(source))
    if "methods" in tree:
        raise SpecError(f"{source}: is a comparison (it has 'methods'); use 'fedrelay compare {source}'")
    return apply(tree, settings)


def experiment_of(source: str, settings: Assignments) -> Experiment:
    """The experiment of one run. A wrong setting or name is refused here, before PyTorch is imported."""
    from fedrelay.experiment.method_catalogue import find_methods, load_plugins

    experiment = validate(Experiment, method_settings(source, settings))
    load_plugins(experiment.plugins)
    find_methods(experiment.method)
    return experiment


def methods_settings(sources: Sequence[str]) -> Tree:
    """The settings of a comparison, from methods or one file."""
    files = [source for source in sources if is_file_name(source)]
    if not files:
        return apply({"methods": list(sources)}, ())
    if len(sources) > 1:
        raise SpecError(f"{files[0]}: cannot be combined with other methods or files; give methods, or one file")
    tree = load_file(Path(files[0]))
    if "method" in tree:
        raise SpecError(f"{files[0]}: is a single run (it has 'method'); use 'fedrelay run {files[0]}'")
    return apply(tree, ())


def _refuse_misplaced_options(tree: Tree) -> None:
    named = tree.get("methods", [])
    methods = [tree.get("method"), *(named if isinstance(named, list) else [])]
    if any(methods) and set(tree) - set(Experiment.model_fields) - set(Comparison.model_fields):
        from fedrelay.experiment.method_catalogue import load_plugins
        from fedrelay.experiment.method_grammar import refuse_misplaced_options

        load_plugins(tree.get("plugins", ()))
        refuse_misplaced_options([method for method in methods if isinstance(method, str)], tree)


def is_file_name(source: str) -> bool:
    """Whether METHOD|FILE is a file. A method wins over a file of the same name; a folder is neither."""
    from fedrelay.experiment.method_catalogue import method_names

    known = method_names()
    if all(name.strip() in known for name in source.split("+")):
        return False
    path = Path(source)
    if source and path.is_dir():
        raise SpecError(f"{source}: is a folder; to continue its run, use 'fedrelay resume {source}'")
    return path.suffix.lower() in (".yaml", ".yml") or os.sep in source or path.is_file()


def free_folder(name: str) -> Path:
    """`runs/NAME`, or `runs/NAME-2`, `-3`, … if that exists."""
    folder, number = Path("runs") / name, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder


def examples(*commands: str) -> str:
    """The epilog of a command's help."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"[dim]$[/dim] {command}" for command in commands)])


def _choices(annotation: Any) -> Iterable[str]:
    """The values of the literal inside an annotation."""
    if get_origin(annotation) is Literal:
        return [str(value) for value in get_args(annotation)]
    return [choice for part in get_args(annotation) for choice in _choices(part)]
