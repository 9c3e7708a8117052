"""The runs of a comparison: one experiment for every method and seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedrelay.errors import SpecError
from fedrelay.experiment.method import build_method, with_train_settings_of_method
from fedrelay.experiment.method_catalogue import load_plugins
from fedrelay.experiment.method_grammar import ParsedMethod, parse_method
from fedrelay.experiment.spec import PARTS, Comparison, ComparisonEntry, Experiment, validate
from fedrelay.robustness.label_flip import swapped_classes

PUBLIC_SAMPLES = 10
"""Public samples of every class, if a method needs them and the spec does not say how many."""


def experiments(comparison: Comparison) -> list[tuple[ComparisonEntry, Experiment]]:
    """Every run of a comparison: methods in order, seeds within. Common options go to the methods that take them."""
    if comparison.sweep:
        raise SpecError("sweep: only 'fedrelay compare' and fr.compare run a sweep")
    load_plugins(comparison.plugins)
    common = comparison.model_dump(exclude={"methods", "seeds", "baseline", "sweep", "out"})
    parsed = {entry.name: parse_method(entry.method) for entry in comparison.methods}
    for part in PARTS:
        if common[part] and not any(_accepted(method, part, common[part]) for method in parsed.values()):
            raise SpecError(f"{part}: no method of this comparison takes these options")
    runs = []
    for entry in comparison.methods:
        method = parsed[entry.name]
        own = {part: _override(_accepted(method, part, common[part]), getattr(entry, part)) for part in PARTS}
        sections = ("train", "transfer", "guard", "recovery")
        own |= {section: {**common[section], **getattr(entry, section)} for section in sections}
        own |= {
            name: getattr(entry, name)
            for name in ("fraction", "sampling", "faults")
            if getattr(entry, name) is not None
        }
        settings = {**common, **own, "method": entry.method}
        if entry.attack:  # an attack with a name replaces the common one
            settings["attack"] = {**({} if "name" in entry.attack else common["attack"]), **entry.attack}
        seeded = [validate(Experiment, {**settings, "seed": seed}) for seed in comparison.seeds]
        runs += [(entry, with_train_settings_of_method(experiment)) for experiment in seeded]
    resolved = with_watched_classes(with_public_samples([experiment for _, experiment in runs]))
    return [(entry, experiment) for (entry, _), experiment in zip(runs, resolved, strict=True)]


def with_public_samples(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Compared experiments with the size of the public set filled in, the same for all that leave it open.

    A method that needs public samples takes them out of the test set of all methods.
    """
    groupings = [build_method(experiment).grouping for experiment in experiments]
    needed = any(grouping is not None and grouping.needs_public for grouping in groupings)
    needed |= any(experiment.guard.tolerance is not None for experiment in experiments)
    size = PUBLIC_SAMPLES if needed else 0
    return [
        experiment.model_copy(update={"data": experiment.data.model_copy(update={"public": size})})
        if experiment.data.public is None
        else experiment
        for experiment in experiments
    ]


def with_watched_classes(experiments: Sequence[Experiment]) -> list[Experiment]:
    """Compared experiments with `eval.classes` filled in: the classes that any of their attacks swaps."""
    attacks = [experiment.attack for experiment in experiments if experiment.attack.name != "none"]
    swapped = tuple(sorted({each for attack in attacks for each in swapped_classes(attack)}))
    return [
        experiment.model_copy(update={"eval": experiment.eval.model_copy(update={"classes": swapped})})
        if swapped and not experiment.eval.classes
        else experiment
        for experiment in experiments
    ]


def _override(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """A method's own options over the common ones; mappings inside, such as one term's options, are merged."""
    merged = {
        name: {**common[name], **given}
        for name, given in own.items()
        if isinstance(given, Mapping) and isinstance(common.get(name), Mapping)
    }
    return {**common, **own, **merged}


def _accepted(method: ParsedMethod, part: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The common options that a method accepts."""
    parts = dict(method.parts())
    if part == "terms":
        return {name: given for name, given in options.items() if f"terms.{name}" in parts}
    return {name: given for name, given in options.items() if part in parts and name in parts[part].model_fields}
