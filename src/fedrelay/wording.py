"""How names that nobody knows are answered: with what is allowed, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` when something known is close, else nothing."""
    close = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return f" (did you mean {close[0]!r}?)" if close else ""


def unknown(what: str, name: str, known: Iterable[str], also: Iterable[str] = ()) -> str:
    """The message for a name nobody knows; `also` are names that may be meant but are not listed."""
    names = list(known)
    return f"unknown {what} {name!r}{nearest(name, [*names, *also])}; allowed: {', '.join(names) or 'none'}"
