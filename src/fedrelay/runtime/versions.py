"""What a run depends on: the versions of everything that could change its bits."""

from __future__ import annotations

import contextlib
import logging
import platform
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
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
    """SHA-256 of the source of modules, imported or not.

    Args:
        modules: Dotted names. A module inside a package stands for all Python files of that package.

    Returns:
        Package or module → digest. Code without a file, such as that of a notebook, has none.
    """
    found = {}
    for name, folders, file in map(_source, sorted(modules)):
        files = [(folder, path) for folder in folders for path in sorted(folder.rglob("*.py"))]
        if not folders and file is not None:
            files = [(file.parent, file)]
        if files:
            parts = [f"{path.relative_to(folder)} {sha256(path.read_bytes()).hexdigest()}" for folder, path in files]
            found[name] = sha256("\n".join(parts).encode()).hexdigest()
    return found


def _source(name: str) -> tuple[str, list[Path], Path | None]:
    """The package of a module, or the module itself: its name, its folders if it is a package, and its file."""
    folders: Iterable[str] = ()
    file: str | None = None
    if (module := sys.modules.get(name)) is not None:
        package = sys.modules.get(module.__package__ or "", module)
        name, folders, file = package.__name__, getattr(package, "__path__", ()), getattr(package, "__file__", None)
    else:
        with contextlib.suppress(Exception):  # its package may fail, which is not what is asked here
            if (spec := find_spec(name)) is not None:
                folders, file = spec.submodule_search_locations or (), spec.origin
    return name, list(map(Path, folders)), Path(file) if file is not None and Path(file).is_file() else None


def warn_about_other_sources(run: str, then: Mapping[str, str]) -> None:
    """Warn that plug-ins, or the module of the model, changed since a run was started; before they are imported."""
    now = source_digests(then)
    if changed := [name for name, digest in then.items() if now.get(name, digest) != digest]:
        message = "%s: the source of %s changed since the run was started; results may differ"
        log.warning(message, run, " and ".join(changed))
