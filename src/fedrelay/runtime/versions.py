"""What a run depends on: the versions of everything that could change its bits."""

from __future__ import annotations

import logging
import platform
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType

try:
    __version__ = version("fedrelay")
except PackageNotFoundError:  # used from a source tree that was not installed
    __version__ = "0+unknown"


log = logging.getLogger(__name__)

PACKAGES = ("fedrelay", "torch", "numpy", "scipy", "scikit-learn", "ortools", "safetensors")


@cache
def versions() -> Mapping[str, str]:
    """What a run depends on."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
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


def source_digests(modules: Iterable[str]) -> dict[str, str]:
    """SHA-256 of the source of imported modules.

    Args:
        modules: Dotted names. A module inside a package stands for all Python files of that package.

    Returns:
        Package or module → digest. Code without a file, such as that of a notebook, has none.
    """
    found = {}
    for module in map(sys.modules.get, sorted(modules)):
        package = sys.modules.get(getattr(module, "__package__", None) or "", module)
        folders = [Path(folder) for folder in getattr(package, "__path__", ())]
        files = [(folder, path) for folder in folders for path in sorted(folder.rglob("*.py"))]
        if not folders and (file := getattr(package, "__file__", None)) is not None:
            files = [(Path(file).parent, Path(file))]
        if package is not None and files:
            parts = [f"{path.relative_to(folder)} {sha256(path.read_bytes()).hexdigest()}" for folder, path in files]
            found[package.__name__] = sha256("\n".join(parts).encode()).hexdigest()
    return found


def warn_about_other_sources(run: str, then: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Warn that plug-ins, or the module of the model, changed since a run was started."""
    if changed := [name for name, digest in now.items() if then.get(name, digest) != digest]:
        message = "%s: the source of %s changed since the run was started; results may differ"
        log.warning(message, run, " and ".join(changed))
