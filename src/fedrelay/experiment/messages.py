"""How mistakes are worded: what is unknown and what was probably meant, and pydantic's findings in plain words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_WORDS = {
    r"^Value error, ": "",
    r"^Input should be": "must be",
    r"a valid (dictionary|mapping).*": "a mapping of settings",
    r"a valid integer.*": "a whole number",
    r"a valid number.*": "a number",
    r"a valid (tuple|list).*": "a list",
    r"a valid string.*": "text",
    r"^(String|Tuple|List) should have at least 1 .*": "must not be empty",
}
"""What pydantic says, and what users read."""


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` when something known is close, else nothing."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def unknown(what: str, name: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """The message for a name nobody knows; `also` are names that may be meant but are not listed."""
    names = list(known)
    return f"unknown {what} {name!r}{nearest(name, [*names, *also])}; allowed: {', '.join(names) or 'none'}"


def in_plain_words(message: str) -> str:
    """A message of pydantic's as users read it."""
    for theirs, ours in _WORDS.items():
        message = re.sub(theirs, ours, message)
    return message
