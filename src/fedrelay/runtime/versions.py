"""What a run depends on: the versions of everything that could change its bits."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType

try:
    __version__ = version("fedrelay")
except PackageNotFoundError:  # used from a source tree that was not installed
    __version__ = "0+unknown"


@cache
def versions() -> Mapping[str, str]:
    """What a run depends on."""
    packages: Iterable[str] = (
        "fedrelay",
        "torch",
        "numpy",
        "scipy",
        "scikit-learn",
        "ortools",
        "safetensors",
    )
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return MappingProxyType(found)
