"""What a part says about itself: its documentation and its options."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from fedrelay.experiment.sections import Section
from fedrelay.user_code import is_built_in


def documentation(part: type[Section]) -> str:
    """What a part is, its paper, its rule, its deviations.

    A file of the package holds one part and opens with its description. A plug-in's file may hold several parts, so the
    docstring of the class comes first there.
    """
    of_file = inspect.getdoc(sys.modules[part.__module__]) or ""
    return of_file if is_built_in(part) else inspect.cleandoc(part.__doc__ or of_file)


def options_of(part: type[Section]) -> dict[str, FieldInfo]:
    """The options of a part, its own before inherited ones; those of a nested section under dotted names."""
    found: dict[str, FieldInfo] = {}
    for name, option in sorted(part.model_fields.items(), key=lambda pair: pair[0] not in part.__annotations__):
        if isinstance(option.default, Section):
            found |= {f"{name}.{inner}": each for inner, each in type(option.default).model_fields.items()}
        else:
            found[name] = option
    return found


def meaning(option: FieldInfo) -> str:
    """The description of an option, with the names it takes unless the description lists them."""
    text, names = option.description or "", list(_names(option.annotation))
    missing = [name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)]
    return f"{text}; one of {', '.join(names)}" if missing else text


def _names(annotation: Any) -> Iterator[str]:
    """All strings among the literal values of a type."""
    if get_origin(annotation) is Literal:
        yield from (value for value in get_args(annotation) if isinstance(value, str))
    else:
        for part in get_args(annotation):
            yield from _names(part)
