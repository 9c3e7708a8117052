"""One self-contained page: style, scripts and document in a single file that needs no network.

The document is data, never markup: nothing in it can end its element, and the page's policy runs one script alone, the
one whose digest it names.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

STYLES = ("frame.css", "figures.css")
SCRIPTS = (
    "basics",
    "figure",
    "bars",
    "curves",
    "headlines",
    "targets",
    "results",
    "places",
    "relay-drawing",
    "timetable",
    "relay",
    "federation",
    "forgetting",
    "communication",
    "records",
    "main",
)
"""In the order in which they build on each other."""

_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def webpage(document: Mapping[str, Any], *, live: bool = False) -> str:
    """The page of a document; a live one may ask its own server for news."""
    parts = {
        "title": html.escape(f"{document['title']} · FedRelay"),
        "style": "".join(map(_resource, STYLES)),
        "script": script(),
        "script_hash": f"sha256-{base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()}",
        "live": "yes" if live else "no",
        "connect": "'self'" if live else "'none'",
        "document": as_data(document),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _resource("page.html"))


def as_data(document: Mapping[str, Any]) -> str:
    """JSON that can stand inside an element of a page, whatever its strings say."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


@cache
def script() -> str:
    """All scripts as one, with names of their own."""
    return "(() => {\n'use strict';\n" + "\n".join(_resource(f"{name}.js") for name in SCRIPTS) + "})();\n"


@cache
def _resource(name: str) -> str:
    return (files("fedrelay.report") / "web" / name).read_text(encoding="utf-8")
