"""How results, plans and federations are shown in notebooks: as HTML.

These values are defined below the report, which draws them. So `report/notebook.py` registers its renderers here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

RENDERERS: dict[type, Callable[[Any], str]] = {}
"""Class → the function that returns the HTML of a value, also for its subclasses."""


class NotebookDisplay:
    """A value that notebooks show as HTML; as text where nothing is registered for its class."""

    def _repr_html_(self) -> str | None:
        render = next((RENDERERS[kind] for kind in type(self).__mro__ if kind in RENDERERS), None)
        return None if render is None else render(self)
