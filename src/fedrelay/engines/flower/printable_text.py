"""Text from others, made safe to print. Without PyTorch, because the SuperLink's command needs no more."""

from __future__ import annotations


def one_line(text: str, most: int = 300) -> str:
    """Text without control characters, and not too long."""
    return "".join(each if each.isprintable() else " " for each in text)[:most].strip()
