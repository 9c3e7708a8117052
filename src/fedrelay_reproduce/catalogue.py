"""Finding claims: those of this package, or a user's own Python files."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

import fedrelay as fr
from fedrelay_reproduce import claims
from fedrelay_reproduce.claim import SCALES, Claim, ClaimExperiment


def load_claims(path: Path | None = None) -> dict[int, Claim]:
    """All claims by number, in order.

    Args:
        path: a Python file that defines `CLAIM`, or a folder of such files; by default the claims of this package.

    Raises:
        SpecError: if a file cannot be loaded, or two claims contradict each other.
    """
    if path is None:
        names = [f"{claims.__name__}.{module.name}" for module in pkgutil.iter_modules(claims.__path__)]
        return _by_number({name: importlib.import_module(name).CLAIM for name in names})
    files = sorted(path.glob("[!_]*.py")) if path.is_dir() else [path]
    if not files:
        raise fr.SpecError(f"{path}: has no claims; a claim is a Python file, see docs/reproduction.md")
    sys.path.append(str(files[0].parent))  # files of a folder may import each other
    try:
        return _by_number({str(file): load_claim(file) for file in files})
    finally:
        sys.path.remove(str(files[0].parent))


def load_claim(path: Path) -> Claim:
    """The claim of a file. The file is executed."""
    spec = importlib.util.spec_from_file_location(f"claim_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise fr.SpecError(f"{path}: is not a Python file with a claim, or a folder of them")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise fr.SpecError(f"{path}: {type(error).__name__}: {error}".replace("SpecError: ", "")) from error
    claim = getattr(module, "CLAIM", None)
    if not isinstance(claim, Claim):
        raise fr.SpecError(f"{path}: must define CLAIM = Claim(…)")
    return claim


def chosen(claims: dict[int, Claim], numbers: Sequence[int]) -> list[Claim]:
    """The claims with these numbers, or all if there are none."""
    for number in numbers:
        if number not in claims:
            raise fr.SpecError(f"there is no claim {number}; there are {', '.join(map(str, claims))}")
    return [claim for number, claim in claims.items() if not numbers or number in numbers]


def _by_number(loaded: dict[str, Claim]) -> dict[int, Claim]:
    found: dict[int, Claim] = {}
    owners: dict[str, ClaimExperiment] = {}
    for origin, claim in loaded.items():
        if claim.number in found:
            raise fr.SpecError(f"{origin}: there are two claims with the number {claim.number}")
        found[claim.number] = claim
        for experiment in claim.experiments.values():
            other = owners.setdefault(experiment.folder, experiment)
            if any(other.spec(scale) != experiment.spec(scale) for scale in SCALES):
                raise fr.SpecError(f"{origin}: another experiment has the folder {experiment.folder!r} too")
    return dict(sorted(found.items()))
