"""Code of the user's own: plug-in modules, and functions named `MODULE:FUNCTION`."""

from __future__ import annotations

import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from pydantic import BaseModel, ValidationError

from fedrelay.errors import FedRelayError, SpecError


def import_from_current_folder() -> None:
    """Let imports find modules of the current folder, as `python -m` does.

    Commands that run or plan an experiment call this. Commands that only read folders, such as `fedrelay report`, do
    not, so that a folder from somebody else cannot bring code along.
    """
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))


def is_built_in(part: type) -> bool:
    """Whether a class belongs to the package itself."""
    return part.__module__.startswith("fedrelay.")


def is_module_name(name: object) -> bool:
    """Whether a value looks like the dotted name of a module."""
    if not isinstance(name, str) or name.endswith(".py"):
        return False
    return all(part.isidentifier() for part in name.split("."))


def is_code_reference(name: object) -> TypeGuard[str]:
    """Whether a value names something of the user's own as `MODULE:NAME`.

    Example:
        >>> is_code_reference("mylab.nets:make_net"), is_code_reference("adam"), is_code_reference("C:/data")
        (True, False, False)
    """
    if not isinstance(name, str):
        return False
    module, _, inner = name.partition(":")
    return is_module_name(module) and inner.isidentifier()


def is_findable_elsewhere(reference: object) -> bool:
    """Whether another process can import what `MODULE:NAME` names: not a script, nor what a function or class holds.

    Example:
        >>> [is_findable_elsewhere(each) for each in ("mylab:Net", "__main__:Net", "mylab:make.<locals>.Net")]
        [True, False, False]
    """
    return is_code_reference(reference) and module_of_reference(reference) != "__main__"


def module_of_reference(reference: str) -> str:
    """The module of `MODULE:NAME`."""
    return reference.partition(":")[0]


def import_module_of_user(module: str, what: str, failure: type[FedRelayError] = SpecError) -> ModuleType:
    """Import a module of the user's own; any failure in it becomes one line.

    Args:
        module: The dotted name of the module.
        what: The setting that names it, for the message.
        failure: The error to raise.

    Raises:
        failure: The module cannot be imported.
    """
    try:
        return import_module(module)
    except FedRelayError as error:
        raise failure(f"{what}: {module}: {error}") from None
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            advice = "install it, or run in the folder that holds it"
            raise failure(f"{what}: cannot import {module} ({error_in_one_line(error)}); {advice}") from None
        where = _place(error, module)
        raise failure(f"{what}: {module} failed when it was imported: {error_in_one_line(error)}{where}") from None


def find_function(source: str, failure: type[FedRelayError] = SpecError) -> Callable[..., Any]:
    """The function that `MODULE:FUNCTION` names.

    Raises:
        failure: There is no such module or function.
    """
    function = find_value(source, failure)
    if not callable(function):
        name, _, function_name = source.partition(":")
        callables = [(key, value) for key, value in vars(import_module(name)).items() if callable(value)]
        own = [key for key, value in callables if getattr(value, "__module__", None) == name]
        raise failure(f"{source}: {name} has no function {function_name!r}; it has {', '.join(own) or 'none'}")
    return function  # type: ignore[no-any-return]


def find_value(source: str, failure: type[FedRelayError] = SpecError) -> Any:
    """What `MODULE:NAME` names in a module of the user's own; None if the module has no such name.

    Raises:
        failure: There is no such module.
    """
    if not is_code_reference(source):
        raise failure(f"{source!r}: must be MODULE:FUNCTION, such as mylab.nets:make_net, without .py")
    module, _, name = source.partition(":")
    return getattr(import_module_of_user(module, source, failure), name, None)


def call_function(source: str, *arguments: Any, failure: type[FedRelayError] = SpecError) -> Any:
    """Call `MODULE:FUNCTION` and return its result; a function that does not take the arguments gets none.

    Raises:
        failure: There is no such function, or it failed, even by trying to end the program.
    """
    function = find_function(source, failure)
    return call_own(function, source, *(arguments if accepts(function, *arguments) else ()), failure=failure)


def call_own(function: Callable[..., Any], what: str, *arguments: Any, failure: type[FedRelayError] = SpecError) -> Any:
    """Call a function of the user's own and return its result; any failure in it becomes one line.

    Args:
        function: The function, or any other callable.
        what: What the message calls it.
        *arguments: Its arguments.
        failure: The error to raise.

    Raises:
        failure: The function failed, even by trying to end the program.
    """
    try:
        return function(*arguments)
    except FedRelayError:
        raise
    except (Exception, SystemExit) as error:
        place = _place(error, getattr(function, "__module__", ""))
        raise failure(f"{what}: {error_in_one_line(error)}{place}") from None


def accepts(function: Callable[..., Any], *arguments: Any) -> bool:
    """Whether a function can be called with these arguments."""
    try:
        inspect.signature(function).bind(*arguments)
    except (TypeError, ValueError):  # they do not fit, or a built-in does not say what it takes
        return False
    return True


def name_of(function: Callable[..., Any]) -> str:
    """What to call a function of the user's own."""
    return str(getattr(function, "__name__", type(function).__name__)).strip("<>")  # a lambda is called <lambda>


@contextmanager
def errors_in_own_part(part: object = None, hook: str = "", place: str = "", *, kind: str = "part") -> Iterator[None]:
    """Turn a failure in a part from outside the package into one line; failures of built-in parts are bugs of ours.

    Args:
        part: The part that is called; None to find it in the traceback.
        hook: The hook that is called.
        place: What is done there, such as `round 3: `.
        kind: What the message calls the part, if its base class does not tell.

    Raises:
        SpecError: The part failed. Its `__cause__` is the original error, with the whole traceback.
    """
    try:
        yield
    except FedRelayError:
        raise
    except (Exception, SystemExit) as error:
        found = (part, hook) if part is not None else _part_in(error)
        if found is None or is_built_in(type(found[0])):
            raise
        own = type(found[0])
        what = next((_KINDS[base.__name__] for base in own.__mro__ if base.__name__ in _KINDS), kind)
        where = f"{place}{what} {own.__name__!r}, {found[1]}"
        raise SpecError(f"{where}: {error_in_one_line(error)}{_place(error, own.__module__)}") from error


_KINDS = {
    "Term": "term",
    "Routing": "route",
    "Merge": "merge",
    "Grouping": "grouping",
    "Warmup": "warm-up",
    "ClientProfiler": "profiler",
    "Task": "task",
}
"""What the base classes of parts are called in messages."""


def _part_in(error: BaseException) -> tuple[BaseModel, str] | None:
    """The first part from outside the package in a traceback, and its hook."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        part = frame.f_locals.get("self")
        if isinstance(part, BaseModel) and not is_built_in(type(part)):
            return part, frame.f_code.co_name
    return None


def _place(error: BaseException, module: str) -> str:
    """Where the user's code failed: the last line of its package in the traceback."""
    package = module.partition(".")[0]
    lines = [
        f" (line {line} of {frame.f_code.co_filename})"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] == package
    ]
    return lines[-1] if lines else ""


def error_in_one_line(error: BaseException) -> str:
    """The type and the message of an error in one line."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        if first["type"] == "frozen_instance":
            return f"{first['loc'][0]} cannot be set: parts are frozen; declare what is kept in 'tensors'"
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    return " ".join(f"{type(error).__name__}: {error}".split())
