"""The lines of Python that build the module of a run again, to load its weights into."""

from __future__ import annotations

import json

from fedrelay.experiment.data_and_model import is_own_model
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.local.module_rebuilder import ZooModelRebuilder
from fedrelay.local.terms.base import Term
from fedrelay.user_code import accepts, find_function, is_findable_elsewhere


def rebuild_code(prepared: PreparedExperiment) -> tuple[list[str], list[str]]:
    """The imports, and the statements that bind the module to the name `net`.

    A module that was given from Python cannot be found by its name; then a comment says what to write.
    """
    imports, lines = _base_module(prepared)
    for term in prepared.method.terms:
        kind = type(term)
        if kind.adapt_model is not Term.adapt_model:
            imports.append(f"from {kind.__module__} import {kind.__name__}")
            lines.append(f"net = {term!r}.adapt_model(net)")
    return imports, lines


def _base_module(prepared: PreparedExperiment) -> tuple[list[str], list[str]]:
    """The same for the module before the terms of the method adapt it."""
    rebuilder, model = prepared.module_rebuilder, prepared.experiment.model
    if isinstance(rebuilder, ZooModelRebuilder):
        options = {"kind": rebuilder.kind, "hidden": rebuilder.hidden, "stem": rebuilder.stem}
        given = "".join(f", {name}={_literal(value)}" for name, value in options.items() if value is not None)
        call = f"build_model({_literal(rebuilder.name)}, {rebuilder.shape}, {rebuilder.classes}{given})"
        return ["from fedrelay.models.zoo import build_model"], [f"net = {call}"]
    reference = model.name or ""
    if is_own_model(prepared.experiment) and is_findable_elsewhere(reference):
        module, _, function = reference.partition(":")
        arguments = (prepared.federation.sample_shape, prepared.task.output_count(prepared.federation))
        given = ", ".join(map(repr, arguments)) if accepts(find_function(reference), *arguments) else ""
        return [f"from {module} import {function}"], [f"net = {function}({given})"]
    return [], [f"net = ...  # your own module {reference}, built as it was given to fedrelay.run"]


def _literal(value: object) -> str:
    """A value as Python code; text in double quotes."""
    return json.dumps(value) if isinstance(value, str) else repr(value)
