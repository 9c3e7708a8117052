"""The wording of errors: unknown names with suggestions, and pydantic's messages in plain words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

Finding = Mapping[str, Any]
"""What pydantic found wrong with one value."""

_PLAIN_WORDS = {
    r"^Value error, ": "",
    r"^Input should be": "must be",
    r"a valid (dictionary|mapping).*": "a mapping of settings",
    r"a valid integer.*": "a whole number",
    r"a valid number.*": "a number",
    r"a valid (tuple|list).*": "a list such as [a, b]",
    r"a valid string.*": "text",
    r"^(String|Tuple|List) should have at least 1 .*": "must not be empty",
}
"""Pattern in pydantic's message → what users read."""


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` if a known name is similar, else an empty string."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def nearest_path(path: Path) -> str:
    """` (did you mean 'runs/two'?)` if the folder of a missing path has a similar name, else an empty string."""
    try:
        beside = [each.name for each in path.parent.iterdir()]
    except OSError:
        return ""
    close = difflib.get_close_matches(path.name, beside, n=1, cutoff=0.6)
    return f" (did you mean {str(path.with_name(close[0]))!r}?)" if close else ""


def unknown(what: str, name: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """The message for an unknown name. Names in `also` are suggested but not listed as allowed."""
    names = list(known)
    return f"unknown {what} {name!r}{nearest(name, [*names, *also])}; allowed: {', '.join(names) or 'none'}"


def in_plain_words(message: str) -> str:
    """Reword a message of pydantic."""
    for theirs, ours in _PLAIN_WORDS.items():
        message = re.sub(theirs, ours, message)
    return message


def one_finding_per_value(model: type[BaseModel], findings: Sequence[Finding]) -> list[Finding]:
    """Findings in which no value is refused more than once.

    For a value that may have one of several types, pydantic says why each of them refuses it. Users read one line with
    all that is allowed, or what is wrong inside a value of the right type, such as an entry of a list.
    """
    found: dict[tuple[int | str, ...], list[Finding]] = {}
    for finding in findings:
        found.setdefault(_place_of_value(model, finding["loc"]), []).append(finding)
    return [each for place, refusals in found.items() for each in _joined(place, refusals)]


def _joined(place: tuple[int | str, ...], refusals: Sequence[Finding]) -> list[Finding]:
    depth = len(place) + 1  # the name of a type follows the place
    if all(len(each["loc"]) < depth for each in refusals):
        return list(refusals)
    if inside := [each for each in refusals if len(each["loc"]) > depth]:
        return [{**each, "loc": (*place, *each["loc"][depth:])} for each in inside]
    named = next((each for each in refusals if each["type"] == "literal_error"), refusals[0])  # it may have a hint
    messages = [in_plain_words(each["msg"]).removeprefix("must be ") for each in (named, *refusals)]
    return [{**named, "loc": place, "msg": f"must be {', or '.join(dict.fromkeys(messages))}"}]


def _place_of_value(model: type[BaseModel], location: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """The place of the value that a finding is about: its location up to where a value may have several types."""
    kind: Any = model
    for depth, part in enumerate(location):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(str(part))
            kind = None if field is None else field.annotation
        else:
            kind = next(iter(get_args(kind)), None)  # of a list; settings in mappings are checked elsewhere
        kinds = _allowed_types(kind)
        if len(kinds) > 1 and depth + 1 < len(location):
            return location[: depth + 1]
        kind = kinds[0]
    return location


def _allowed_types(kind: Any) -> list[Any]:
    """The types that an annotation allows, besides None."""
    if get_origin(kind) is Annotated:
        return _allowed_types(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return [each for arm in get_args(kind) if arm is not NoneType for each in _allowed_types(arm)]
    return [kind]
