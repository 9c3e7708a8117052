"""The colours of all figures, for the page and for files.

Each family of colours means one thing: `method-N` a method, `class-N` a class, `route-N` a route of a round, `kind-N`
a kind of something (a transfer, a payload, how a fault event was handled). The colours of a family differ clearly for
colour-blind readers in both themes; tests compute that. Beyond seven methods or routes, lines are dashed as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

METHODS = 7
CLASSES = 10
SHADES = 64
"""The most classes with a shade of their own; above that, neighbouring classes share one."""

KINDS = 6
DASHES: Sequence[Sequence[float]] = ((), (7, 3), (2, 3), (8, 3, 2, 3))
"""On and off lengths of lines, in pixels."""


def _family(name: str, *colours: str) -> dict[str, str]:
    return {f"{name}-{number}": colour for number, colour in enumerate(colours)}


LIGHT: Mapping[str, str] = {
    "paper": "#fcfcfa",
    "card": "#ffffff",
    "ink": "#1c2024",
    "soft": "#5f6a72",
    "faint": "#e6e8e6",
    "rule": "#d4d8d6",
    "hover": "#f1f3f1",
    "accent": "#0072b2",
    "good": "#00714f",
    "warn": "#b04a00",
    "cell": "#0072b2",
    **_family("method", "#1f5597", "#b34200", "#008557", "#a8739f", "#d67e00", "#1f9ae8", "#1c2024"),
    **_family("route", "#0039bb", "#d34734", "#006b75", "#c238b2", "#df791d", "#5196e6", "#6b5b4d"),
    **_family("kind", "#14213d", "#2c5a8c", "#459aab", "#90c8a0", "#c6c552", "#fbeecb"),
    **_family(
        "class", "#19187e", "#68ccee", "#53a194", "#087432", "#928825", "#d2c864", "#c35c6b", "#8b2158", "#9c4293",
        "#b6c7cf",
    ),
}  # fmt: skip

DARK: Mapping[str, str] = {
    "paper": "#14171a",
    "card": "#1b1f23",
    "ink": "#e9ecee",
    "soft": "#9aa6ae",
    "faint": "#2a3035",
    "rule": "#3a4147",
    "hover": "#252b30",
    "accent": "#56b4e9",
    "good": "#35c794",
    "warn": "#ff9a57",
    "cell": "#56b4e9",
    **_family("method", "#1b93dc", "#f27844", "#42d091", "#c289ae", "#ffc93c", "#afd6ff", "#f4f1ec"),
    **_family("route", "#2f9bc1", "#f0693c", "#27feab", "#e470ff", "#ffbf4d", "#a5dcfa", "#b7a08c"),
    **_family("kind", "#fdf5d0", "#c2ce70", "#80c09a", "#4298ad", "#3c6cb4", "#3f3a80"),
    **_family(
        "class", "#6e69da", "#77d7ff", "#38b2a5", "#258d38", "#b0ac25", "#f6e997", "#d8617e", "#b2286f", "#b079c0",
        "#d7dfdb",
    ),
}  # fmt: skip


def css() -> str:
    """Return both themes as CSS variables."""
    themes = ((":root", LIGHT), (':root[data-theme="dark"]', DARK))
    return "".join(
        f"{selector} {{\n{''.join(f'  --{name}: {colour};{chr(10)}' for name, colour in theme.items())}}}\n"
        for selector, theme in themes
    )


def line_style(family: str, number: int) -> dict[str, object]:
    """Return the colour and the dash of the line with this number, as a mark holds them."""
    return {"colour": f"{family}-{number % METHODS}", "dash": number // METHODS % len(DASHES)}


def class_colours(classes: int) -> list[str]:
    """Return one colour per class: roles for few classes, at most `SHADES` shades of viridis for many."""
    if classes <= CLASSES:
        return [f"class-{number}" for number in range(classes)]
    from matplotlib import colormaps  # slow to import, seldom needed
    from matplotlib.colors import to_hex

    shades, most = colormaps["viridis"], min(classes, SHADES)
    return [to_hex(shades((number * most // classes) / (most - 1))) for number in range(classes)]
