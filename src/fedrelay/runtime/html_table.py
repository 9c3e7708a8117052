"""Plain tables for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


class Bold(str):
    """A cell in bold type."""


def html_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A plain table for notebooks; all text is escaped."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join(f"<tr>{''.join(f'<td>{_content(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _content(cell: str) -> str:
    return f"<b>{escape(cell)}</b>" if isinstance(cell, Bold) else escape(cell)
