"""The wording of errors: unknown names with suggestions, and pydantic's messages in plain words."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_PLAIN_WORDS = {
    r"^Value error, ": "",
    r"^Input should be": "must be",
    r"a valid (dictionary|mapping).*": "a mapping of settings",
    r"a valid integer.*": "a whole number",
    r"a valid number.*": "a number",
    r"a valid (tuple|list).*": "a list",
    r"a valid string.*": "text",
    r"^(String|Tuple|List) should have at least 1 .*": "must not be empty",
}
"""Pattern in pydantic's message → what users read."""


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` if a known name is similar, else an empty string."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def unknown(what: str, name: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """The message for an unknown name. Names in `also` are suggested but not listed as allowed."""
    names = list(known)
    return f"unknown {what} {name!r}{nearest(name, [*names, *also])}; allowed: {', '.join(names) or 'none'}"


def in_plain_words(message: str) -> str:
    """Reword a message of pydantic."""
    for theirs, ours in _PLAIN_WORDS.items():
        message = re.sub(theirs, ours, message)
    return message
