"""A sweep is one comparison for every combination of values: its cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from fedrelay.errors import SpecError
from fedrelay.experiment.method_catalogue import load_plugins
from fedrelay.experiment.spec import Comparison, has_path, set_path, validate


@dataclass(frozen=True)
class SweepCell:
    """One value for every swept setting, and the comparison with these values."""

    values: Mapping[str, Any]
    comparison: Comparison
    """Its folder is a folder of the sweep, and an ordinary folder of a comparison."""

    @property
    def name(self) -> str:
        """`alpha 0.1, clients 10`."""
        return ", ".join(f"{axis} {value}" for axis, value in self._named())

    @property
    def folder(self) -> str:
        """`alpha=0.1,clients=10`, without characters that mean something to a file system."""
        text = ",".join(f"{axis}={value}" for axis, value in self._named())
        return "".join(each if each.isalnum() or each in "+-_.=," else "_" for each in text)

    def _named(self) -> list[tuple[str, Any]]:
        return list(zip(axis_names(self.values), self.values.values(), strict=True))


def axis_names(axes: Mapping[str, Any]) -> list[str]:
    """Short names of settings: `data.alpha` → `alpha`, `model.name` → `model`; whole names where short ones are equal.

    >>> axis_names({"data.alpha": 0, "model.name": "cnn"})
    ['alpha', 'model']
    """
    short = [path.removesuffix(".name").split(".")[-1] for path in axes]
    return short if len(set(short)) == len(short) else list(axes)


def sweep_cells(comparison: Comparison) -> list[SweepCell]:
    """All cells of a sweep; the last setting varies fastest.

    Raises:
        SpecError: A setting is unknown, a value is not valid, or a method has a value of its own.
    """
    load_plugins(comparison.plugins)
    _check_own_values(comparison)
    tree = comparison.model_dump(exclude={"sweep", "out"})
    cells: list[SweepCell] = []
    for values in product(*comparison.sweep.values()):
        chosen = dict(zip(comparison.sweep, values, strict=True))
        cells.append(_cell(comparison, tree, chosen))
    folders = [cell.folder.casefold() for cell in cells]
    for place, cell in enumerate(cells):
        if folders.index(folders[place]) < place:
            other = cells[folders.index(folders[place])]
            raise SpecError(f"sweep: {other.name} and {cell.name} would share the folder {cell.folder}")
    return cells


def _cell(comparison: Comparison, tree: Mapping[str, Any], chosen: Mapping[str, Any]) -> SweepCell:
    from fedrelay.experiment.comparison_runs import experiments  # imports PyTorch

    settings = {name: dict(value) if isinstance(value, Mapping) else value for name, value in tree.items()}
    try:
        for path, value in chosen.items():
            set_path(settings, path, value)
        found = validate(Comparison, settings)
        experiments(found)
    except SpecError as error:
        raise SpecError(f"sweep, {', '.join(f'{path} {value}' for path, value in chosen.items())}: {error}") from None
    cell = SweepCell(chosen, found)
    if comparison.out is None:
        return cell
    return SweepCell(chosen, found.model_copy(update={"out": comparison.out / cell.folder}))


def _check_own_values(comparison: Comparison) -> None:
    """Refuse a sweep that would not change a method."""
    for entry in comparison.methods:
        own = entry.model_dump(exclude_defaults=True)
        for path in comparison.sweep:
            if has_path(own, path):
                raise SpecError(f"sweep.{path}: the method {entry.name!r} has its own {path}; remove one of them")
