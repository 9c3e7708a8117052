"""What a part says about itself: its documentation and its options."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from fedrelay.experiment.sections import Section
from fedrelay.user_code import is_built_in

_LABEL = re.compile(r"^(Paper|Rule|Deviation)s?:", re.MULTILINE)
"""How a labelled paragraph of a description begins."""


def documentation(part: type[Section]) -> str:
    """What a part is, its paper, its rule, its deviations.

    A file of the package holds one part and opens with its description. A plug-in's file may hold several parts, so the
    docstring of the class comes first there, then what the file says of papers, rule and deviations.
    """
    of_file = inspect.getdoc(sys.modules[part.__module__]) or ""
    if is_built_in(part) or not part.__doc__:
        return of_file
    own = inspect.cleandoc(part.__doc__)
    labelled = [each for each in re.split(r"\n\s*\n", of_file) if _LABEL.match(each)]
    said = _LABEL.findall(own)
    return "\n\n".join([own, *(each for each in labelled if _LABEL.findall(each)[0] not in said)])


def options_of(part: type[Section]) -> dict[str, FieldInfo]:
    """The options of a part, its own before inherited ones; those of a nested section under dotted names."""
    found: dict[str, FieldInfo] = {}
    for name, option in sorted(part.model_fields.items(), key=lambda pair: pair[0] not in part.__annotations__):
        if isinstance(option.default, Section):
            found |= {f"{name}.{inner}": each for inner, each in type(option.default).model_fields.items()}
        else:
            found[name] = option
    return found


def flat_options(place: str, options: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Nested options under dotted names."""
    for name, value in options.items():
        if isinstance(value, Mapping) and value:
            yield from flat_options(f"{place}.{name}", value)
        else:
            yield f"{place}.{name}", value


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
