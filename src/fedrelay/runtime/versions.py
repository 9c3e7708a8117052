"""What a run depends on: the versions of everything that could change its bits."""

from __future__ import annotations

import logging
import platform
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType

try:
    __version__ = version("fedrelay")
except PackageNotFoundError:  # used from a source tree that was not installed
    __version__ = "0+unknown"


log = logging.getLogger(__name__)


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


def warn_about_other_versions(run: str, then: Mapping[str, str]) -> None:
    """Warn that a run was started with other versions. Another version of torch may round differently."""
    now = versions()
    changed = [
        f"{name} {then[name]} → {now[name]}"
        for name in ("torch", "numpy", "python")
        if then.get(name, now[name]) != now[name]
    ]
    if changed:
        message = "%s was started with other versions (%s); results may differ in the last bits"
        log.warning(message, run, ", ".join(changed))
