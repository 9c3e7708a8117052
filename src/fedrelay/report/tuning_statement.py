"""What was tuned, and how: whoever reads a comparison of methods has to know it.

A tuning writes its statement beside its comparison, in `tuned.json`. In any other comparison nothing was tuned, and the
statement says whether all methods have the same hyperparameters.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.errors import RunFolderError
from fedrelay.experiment.comparison_runs import experiments
from fedrelay.experiment.spec import Experiment
from fedrelay.files import read_regular_file
from fedrelay.report.format import plural, settings_line, step_size
from fedrelay.runtime.comparison import ComparisonResult

FILE = "tuned.json"
_NO_HYPERPARAMETERS = {"method", "seed", "out", "engine", "checkpoint", "plugins"}
_ABSENT = object()

Statement = dict[str, Any]
"""`tuned`, a `text` for readers, and the facts behind it."""


def tuning_statement(outcome: ComparisonResult, folders: Sequence[Path] = ()) -> Statement:
    """What was tuned for a comparison.

    Args:
        outcome: The comparison.
        folders: Where it is; those of tunings hold their statement.

    Raises:
        RunFolderError: A statement is damaged.
    """
    found = {folder: _read(folder / FILE) for folder in folders if (folder / FILE).is_file()}
    if len(found) == 1 and len(folders) == 1:
        return next(iter(found.values()))
    own = _nothing_tuned(_experiments(outcome))
    if not found:
        return own
    texts = [f"{folder}: {each['text']}" for folder, each in found.items()]
    return {"tuned": True, "text": " ".join(texts), "tunings": {str(folder): each for folder, each in found.items()}}


def _read(path: Path) -> Statement:
    try:
        found: Statement = json.loads(read_regular_file(path))
        if not isinstance(found["text"], str):
            raise TypeError("its text is missing")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFolderError(f"{path}: is damaged ({error})") from None
    return found


def _experiments(outcome: ComparisonResult) -> dict[str, Experiment]:
    """One experiment of every method; methods that failed have theirs in the comparison."""
    comparison = outcome.comparison
    if comparison.methods:
        planned = experiments(comparison.model_copy(update={"seeds": comparison.seeds[:1]}))
        return {entry.name: experiment for entry, experiment in planned}
    return {method.name: method.results[0].experiment for method in outcome.methods if method.results}


def _nothing_tuned(found: Mapping[str, Experiment]) -> Statement:
    settings = {
        name: dict(_flat(each.model_dump(mode="json", exclude=_NO_HYPERPARAMETERS))) for name, each in found.items()
    }
    keys = dict.fromkeys(key for own in settings.values() for key in own)
    first = next(iter(settings.values()), {})
    differing = [
        key for key in keys if any(own.get(key, _ABSENT) != first.get(key, _ABSENT) for own in settings.values())
    ]
    own = {
        name: {key: values[key] for key in differing if values.get(key) is not None}
        for name, values in settings.items()
    }
    own = {name: values for name, values in own.items() if values}
    if own:
        listed = "; ".join(f"{name}: {settings_line(values)}" for name, values in own.items())
        text = f"Nothing was tuned. Methods differ in these settings: {listed}."
    elif found:
        train = next(iter(found.values())).train
        same = f"learning rate {step_size(train)}, {plural(train.epochs, 'epoch')}, batch size {train.batch_size}"
        text = f"Nothing was tuned: one set of hyperparameters for all methods ({same})."
    else:
        text = "Nothing was tuned."
    return {"tuned": False, "text": text, "differing": own}


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested settings under dotted names."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
