"""Parts of a method as plain data: the name of a class and its fields, to send them to workers and nodes.

The receiver looks up the name and validates every field. No code is ever sent. A class of the package is named by its
class name, a class of a plug-in by its module too, so no plug-in can take the place of another class. Of plug-ins, only
classes that `register` got can be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import isabstract
from typing import Any, TypeVar

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Section, unknown, validate
from fedrelay.user_code import is_built_in

S = TypeVar("S", bound=Section)

Plain = Mapping[str, Any]
"""A part as JSON: the name of its class under `is`, and its fields."""

REGISTERED: dict[str, type[Section]] = {}
"""The classes of plug-ins that can be sent, by name."""


def part_name(kind: type[Section]) -> str:
    """The name under which a class is sent, such as `ProximalPenalty` or `mylab.terms.L1Prox`."""
    return kind.__name__ if is_built_in(kind) else f"{kind.__module__}.{kind.__qualname__}"


def to_plain(part: Section) -> dict[str, Any]:
    """Convert a part to plain data.

    Raises:
        SpecError: The class belongs to a plug-in that did not register it.
    """
    kind, name = type(part), part_name(type(part))
    if not is_built_in(kind) and REGISTERED.get(name) is not kind:
        why = "another class of this name was registered" if name in REGISTERED else "pass it to fedrelay.register"
        raise SpecError(f"{name}: cannot be sent to nodes; {why}")
    return {"is": name, **part.model_dump(mode="json")}


def from_plain(base: Callable[..., S], plain: object) -> S:
    """Build a part from plain data.

    Args:
        base: The part must be a subclass of this class.
        plain: What `to_plain` returned.

    Raises:
        SpecError: The class is unknown or not registered, or a field is not valid.
    """
    if not isinstance(plain, Mapping):
        raise SpecError(f"a part must be a mapping of settings, got {type(plain).__name__}")
    kinds = {part_name(kind): kind for kind in _concrete(base) if is_built_in(kind)}
    kinds |= {name: kind for name, kind in REGISTERED.items() if base in kind.__mro__}
    name = str(plain.get("is"))
    if name not in kinds:
        raise SpecError(unknown("part", name, kinds))
    part: S = validate(kinds[name], {key: value for key, value in plain.items() if key != "is"}, f"{name}.")
    return part


def _concrete(base: Any) -> Iterator[Any]:
    """All concrete subclasses."""
    for kind in base.__subclasses__():
        if not isabstract(kind):
            yield kind
        yield from _concrete(kind)
