"""Parts of a method as plain data: a class name and fields, to send them to workers and nodes.

The receiver looks up the name among its own classes and validates every field. No code is ever sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isabstract
from typing import Any, TypeVar

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Section, unknown, validate

S = TypeVar("S", bound=Section)

Plain = Mapping[str, Any]
"""A part as JSON: its class name under `is`, and its fields."""


def to_plain(part: Section) -> dict[str, Any]:
    """Convert a part to plain data."""
    return {"is": type(part).__name__, **part.model_dump(mode="json")}


def from_plain(base: Callable[..., S], plain: object) -> S:
    """Build a part from plain data.

    Args:
        base: The part must be a subclass of this class.
        plain: What `to_plain` returned.

    Raises:
        SpecError: The class is unknown, or a field is not valid.
    """
    kinds: dict[str, type[S]] = {}
    _collect(base, kinds)
    if not isinstance(plain, Mapping):
        raise SpecError(f"a part must be a mapping of settings, got {type(plain).__name__}")
    name = str(plain.get("is"))
    if name not in kinds:
        raise SpecError(unknown("part", name, kinds))
    return validate(kinds[name], {key: value for key, value in plain.items() if key != "is"}, f"{name}.")


def _collect(base: Any, kinds: dict[str, type[S]]) -> None:
    """Collect all concrete subclasses by name."""
    for kind in base.__subclasses__():
        if not isabstract(kind):
            kinds[kind.__name__] = kind
        _collect(kind, kinds)
