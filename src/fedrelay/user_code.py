"""Code of the user's own: plug-in modules, and functions named `MODULE:FUNCTION`."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from fedrelay.errors import FedRelayError, SpecError


def import_from_current_folder() -> None:
    """Let imports find modules of the current folder, as `python -m` does.

    Commands that run or plan an experiment call this. Commands that only read folders, such as `fedrelay report`, do
    not, so that a folder from somebody else cannot bring code along.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def import_module_of_user(module: str, what: str) -> None:
    """Import a module of the user's own; any failure in it becomes one line.

    Args:
        module: The dotted name of the module.
        what: The setting that names it, for the message.

    Raises:
        SpecError: The module cannot be imported.
    """
    try:
        import_module(module)
    except FedRelayError:
        raise
    except ModuleNotFoundError as error:
        raise SpecError(f"{what}: cannot import {module} ({_one_line(error)}); install it where this runs") from None
    except (Exception, SystemExit) as error:
        raise SpecError(f"{what}: {module} failed when it was imported: {_one_line(error)}{_place(error)}") from None


def find_function(source: str, failure: type[FedRelayError] = SpecError) -> Callable[..., Any]:
    """The function that `MODULE:FUNCTION` names.

    Raises:
        failure: There is no such module or function.
    """
    module, _, name = source.partition(":")
    try:
        function = getattr(import_module(module), name)
    except FedRelayError:
        raise
    except (Exception, SystemExit) as error:
        raise failure(f"{source}: {_one_line(error)}") from None
    if not callable(function):
        raise failure(f"{source}: is not a function")
    return function  # type: ignore[no-any-return]


def call_function(source: str, *arguments: Any, failure: type[FedRelayError] = SpecError) -> Any:
    """Call `MODULE:FUNCTION` and return its result; a function without parameters gets no arguments.

    Raises:
        failure: There is no such function, or it failed, even by trying to end the program.
    """
    function = find_function(source, failure)
    try:
        takes_arguments = arguments and bool(inspect.signature(function).parameters)
        return function(*arguments) if takes_arguments else function()
    except FedRelayError:
        raise
    except (Exception, SystemExit) as error:
        raise failure(f"{source}: {_one_line(error)}") from None


@contextmanager
def errors_in_own_part(part: object, hook: str) -> Iterator[None]:
    """Turn a failure in a part from outside the package into one line; failures of built-in parts are bugs of ours."""
    try:
        yield
    except FedRelayError:
        raise
    except Exception as error:
        kind = type(part)
        if kind.__module__.startswith("fedrelay."):
            raise
        raise SpecError(f"{kind.__module__}.{kind.__name__}.{hook}: {_one_line(error)}{_place(error)}") from None


def _place(error: BaseException) -> str:
    """Where the user's code failed: the last line of it in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())
