"""Colours by computation: what colour-blind people see of them, and whether text stands out."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from fedrelay.report.palette import DARK, LIGHT, class_colours, css, line_style

# How colours look without one kind of cone, on linear RGB (Machado, Oliveira and Fernandes, 2009, severity 1).
EYES = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
WHITE = np.array([0.95047, 1.0, 1.08883])
TEXT = ("ink", "soft", "good", "warn", "accent")


def themes() -> dict[str, Mapping[str, str]]:
    return {"light": LIGHT, "dark": DARK}


def family(theme: str, name: str) -> list[str]:
    return [colour for role, colour in themes()[theme].items() if role.startswith(f"{name}-")]


def linear(colour: str) -> NDArray[np.float64]:
    shares = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)


def seen(colour: str, eyes: str) -> NDArray[np.float64]:
    """A colour in CIELAB, where equal distances look about equally large."""
    xyz = XYZ @ np.clip(EYES[eyes] @ linear(colour), 0, 1) / WHITE
    bent = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * bent[1] - 16, 500 * (bent[0] - bent[1]), 200 * (bent[1] - bent[2])])


def contrast(one: str, other: str) -> float:
    """As the guidelines for accessible web pages have it, from 1 to 21."""
    dark, bright = sorted(float(linear(each) @ XYZ[1]) for each in (one, other))
    return (bright + 0.05) / (dark + 0.05)


def nearest(colours: list[str], eyes: str) -> float:
    return min(
        float(np.linalg.norm(seen(one, eyes) - seen(other, eyes))) for one, other in itertools.combinations(colours, 2)
    )


def test_the_measures_are_right():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)
    assert seen("#ffffff", "usual") == pytest.approx([100, 0, 0], abs=0.01)
    assert seen("#ff0000", "usual") == pytest.approx([53.24, 80.09, 67.20], abs=0.02)
    assert nearest(["#d55e00", "#b98200"], "deuteranopia") < 5  # an orange and an ochre that look the same to many


@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_series_and_classes_can_be_told_apart(theme, eyes):
    assert nearest(family(theme, "method"), eyes) > 18
    assert nearest(family(theme, "route"), eyes) > 18
    assert nearest(family(theme, "class"), eyes) > 13
    assert nearest(family(theme, "kind"), eyes) > 13


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_lines_stand_out(theme):
    colours = themes()[theme]
    for text, ground in itertools.product(TEXT, ("paper", "card", "hover")):
        assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast(colours["paper"], colours["ink"]) >= 4.5  # the server on the map
    assert contrast(colours["paper"], colours["accent"]) >= 4.5  # the button that plays
    for line in (*family(theme, "method"), *family(theme, "route")):
        assert contrast(line, colours["card"]) >= 3, line


def test_black_or_white_is_readable_on_anything():
    for grey in range(256):
        colour = f"#{grey:02x}{grey:02x}{grey:02x}"
        bright = float(linear(colour) @ XYZ[1]) > 0.179
        assert contrast("#000000" if bright else "#ffffff", colour) >= 4.5


def test_the_page_has_both_themes():
    blocks = re.findall(r':root(?:\[data-theme="dark"\])? \{(.*?)\}', css(), re.S)
    assert [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block)) for block in blocks] == [LIGHT, DARK]
    assert LIGHT.keys() == DARK.keys()


def test_beyond_seven_lines_are_dashed():
    assert line_style("method", 3) == {"colour": "method-3", "dash": 0}
    assert line_style("method", 10) == {"colour": "method-3", "dash": 1}


def test_every_class_has_a_colour():
    assert class_colours(3) == ["class-0", "class-1", "class-2"]
    assert len(set(class_colours(64))) == 64
