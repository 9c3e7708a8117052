"""Parts of a method as plain data: a name and fields, so that they can be sent to where the data are.

Whoever receives them looks the name up among the classes it has itself and checks every field. No code is ever sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import isabstract
from typing import Any, TypeVar

from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Section, unknown, validate

S = TypeVar("S", bound=Section)

Plain = Mapping[str, Any]
"""What JSON can say of a part: `is`, the name of its class, and its fields."""


def to_plain(part: Section) -> dict[str, Any]:
    """A part as plain data."""
    return {"is": type(part).__name__, **part.model_dump(mode="json")}


def from_plain(base: Callable[..., S], plain: object) -> S:
    """The part that plain data describe: one of the classes below the class `base`."""
    kinds: dict[str, type[S]] = {}
    _collect(base, kinds)
    if not isinstance(plain, Mapping):
        raise SpecError(f"a part must be a mapping of settings, got {type(plain).__name__}")
    name = str(plain.get("is"))
    if name not in kinds:
        raise SpecError(unknown("part", name, kinds))
    return validate(kinds[name], {key: value for key, value in plain.items() if key != "is"}, f"{name}.")


def _collect(base: Any, kinds: dict[str, type[S]]) -> None:
    """All classes below a class, by name."""
    for kind in base.__subclasses__():
        if not isabstract(kind):
            kinds[kind.__name__] = kind
        _collect(kind, kinds)
