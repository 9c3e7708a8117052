"""What was tuned, and how: whoever reads a comparison of methods has to know it.

A tuning writes its statement beside its comparison, in `tuned.json`. In any other comparison nothing was tuned, and the
statement says whether all methods have the same hyperparameters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.spec import Experiment, dotted_settings
from fedrelay.files import read_regular_file
from fedrelay.report.format import settings_line, step_size, work_per_hop
from fedrelay.runtime.comparison_result import ComparisonResult

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
    """One experiment of every method; if some have no results, as the comparison plans them.

    Planning imports plug-ins; where they are not installed, methods without results are left out.
    """
    comparison = outcome.comparison
    done = {method.name: method.results[0].experiment for method in outcome.methods if method.results}
    if not comparison.methods or len(done) == len(outcome.methods):
        return done
    from fedrelay.experiment.comparison_runs import experiments  # imports PyTorch

    try:
        planned = experiments(comparison.model_copy(update={"seeds": comparison.seeds[:1]}))
    except SpecError:
        return done
    return {entry.name: experiment for entry, experiment in planned}


def _nothing_tuned(found: Mapping[str, Experiment]) -> Statement:
    settings = {
        name: dict(dotted_settings(each.model_dump(mode="json", exclude=_NO_HYPERPARAMETERS)))
        for name, each in found.items()
    }
    keys = dict.fromkeys(key for own in settings.values() for key in own)
    first = next(iter(settings.values()), {})
    differing = [
        key for key in keys if any(own.get(key, _ABSENT) != first.get(key, _ABSENT) for own in settings.values())
    ]
    own = {
        name: {key: values[key] for key in differing if values.get(key) not in (None, [])}
        for name, values in settings.items()
    }
    own = {name: values for name, values in own.items() if values}
    if own:
        alike: dict[str, list[str]] = {}
        for name, values in own.items():
            alike.setdefault(settings_line(values), []).append(name)
        listed = "; ".join(f"{', '.join(names)}: {line}" for line, names in alike.items())
        text = f"Nothing was tuned. Methods differ in these settings: {listed}."
    elif found:
        train = next(iter(found.values())).train
        same = f"learning rate {step_size(train)}, {work_per_hop(train)}, batch size {train.batch_size}"
        text = f"Nothing was tuned: one set of hyperparameters for all methods ({same})."
    else:
        text = "Nothing was tuned."
    return {"tuned": False, "text": text, "differing": own}
