"""One self-contained page: style, scripts and document in a single file that needs no network.

The document is data, never markup: nothing in it can end its element. The page's content security policy names the
digest of its one script, so no other script runs.
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

from fedrelay.report import palette

SCRIPTS = ("basics", "marks", "cards", "routes", "page")
"""Later scripts use earlier ones."""

_UNSAFE = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def web_page(document: Mapping[str, Any], *, live: bool = False) -> str:
    """Return the page of a document; a live page asks its own server for updates."""
    parts = {
        "title": html.escape(f"{document['title']} · FedRelay"),
        "style": palette.css() + _resource("page.css"),
        "script": script(),
        "script_hash": f"sha256-{base64.b64encode(hashlib.sha256(script().encode()).digest()).decode()}",
        "first": html.escape(next((section["id"] for section in document["sections"]), "top")),
        "live": "yes" if live else "no",
        "connect": "'self'" if live else "'none'",
        "document": as_json(document),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _resource("page.html"))


def as_json(document: Mapping[str, Any]) -> str:
    """Return JSON that is safe inside an HTML element, whatever its strings contain."""
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_UNSAFE)


@cache
def script() -> str:
    """Return all scripts as one, in a scope of their own."""
    dashes = json.dumps([" ".join(map(str, dash)) for dash in palette.DASHES])
    parts = "\n".join(_resource(f"{name}.js") for name in SCRIPTS)
    return f"(() => {{\n'use strict';\nconst DASHES = {dashes};\n{parts}}})();\n"


@cache
def _resource(name: str) -> str:
    return (files("fedrelay.report") / "web" / name).read_text(encoding="utf-8")
