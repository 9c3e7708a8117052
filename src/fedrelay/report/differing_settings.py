"""What differs between the methods of a comparison besides the method: for the heads of pages and tables."""

from __future__ import annotations

from collections.abc import Mapping

from fedrelay.experiment.spec import Experiment, dotted_settings
from fedrelay.report.format import setting

_NEVER_SHOWN = ("method", "seed", "out", "plugins", "engine", "checkpoint")
"""The name of the method says it, or results do not depend on it."""


def differing_settings(experiments: Mapping[str, Experiment]) -> dict[str, str]:
    """Dotted setting → its values and the methods that have them, for all settings that differ.

    Args:
        experiments: name of a method → one of its experiments.

    Returns:
        Texts such as `0.05 (fedavg, fedprox); 0.1 (fedseq)`. A method that does not have the setting is left out.
    """
    if len(experiments) < 2:
        return {}
    flat = {name: _texts(each) for name, each in experiments.items()}
    paths = dict.fromkeys(path for settings in flat.values() for path in settings)
    found = {path: {name: settings.get(path) for name, settings in flat.items()} for path in paths}
    return {path: values_by_method(values) for path, values in found.items() if len(set(values.values())) > 1}


def values_by_method(values: Mapping[str, str | None]) -> str:
    """Each value once, with the methods that have it; methods without a value are left out."""
    owners: dict[str, list[str]] = {}
    for name, value in values.items():
        if value is not None:
            owners.setdefault(value, []).append(name)
    return "; ".join(f"{value} ({', '.join(names)})" for value, names in owners.items())


def _texts(experiment: Experiment) -> dict[str, str]:
    """Dotted settings as text; those that are not set are left out."""
    settings = dotted_settings(experiment.model_dump(mode="json", exclude=set(_NEVER_SHOWN)))
    return {path: setting(value) for path, value in settings if value is not None and value != []}
