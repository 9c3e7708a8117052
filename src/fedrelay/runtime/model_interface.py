"""What goes into a model and what comes out, as plain data: the file `model.json` of an export."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fedrelay.data.dataset import Scaling
from fedrelay.data.federation import ArrayFederation, Federation
from fedrelay.data.federation_wrapper import find_wrapper, innermost
from fedrelay.data.table_federation import TableFederation
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.local.model_checks import example_batch
from fedrelay.models.nested_inputs import map_inputs, with_float_type
from fedrelay.runtime.trained_model import TrainedModel


def model_interface(prepared: PreparedExperiment, model: TrainedModel, *, whole_model: bool) -> dict[str, Any]:
    """Which model it is, its inputs and its outputs.

    Args:
        prepared: The experiment.
        model: The model that is exported.
        whole_model: Whether the file holds the model with its preprocessing, not only its weights.
    """
    federation, scaling = prepared.federation, scaling_of(prepared.federation)
    table = find_wrapper(federation, TableFederation)
    inputs = with_float_type(example_batch(federation).x, prepared.layout.dtype)
    return {
        "model": {"name": prepared.experiment.model.name, "which": model.which, "round": model.round},
        "inputs": {
            "kind": federation.kind,
            "shape": map_inputs(lambda tensor: ["batch", *tensor.shape[1:]], inputs),
            "type": map_inputs(lambda tensor: str(tensor.dtype).removeprefix("torch."), inputs),
            "scaling": None if scaling is None else {"shift": list(scaling.shift), "scale": list(scaling.scale)},
            "scaled_by_the_model": table is None and whole_model,
            **({} if table is None else {"table": _table_interface(table)}),
        },
        "outputs": {
            "task": prepared.task.name,
            "shape": ["batch", *prepared.task.output_shape(federation)],
            "classes": federation.class_count or None,
            **({} if table is None else {"labels": list(table.shared.labels)}),
        },
    }


def scaling_of(federation: Federation) -> Scaling | None:
    """How raw values are scaled, where the samples are arrays with a scaling."""
    found = innermost(federation)
    return found.dataset.scaling if isinstance(found, ArrayFederation) else None


def _table_interface(table: TableFederation) -> dict[str, Any]:
    """How a row becomes the input of the model, as plain data."""
    encoding = table.shared.encoding
    return {
        "features": encoding.feature_names,
        **asdict(encoding),
        "scaled_per_client": table.shared.scaled_per_client,
        "clients": [asdict(each) for each in table.own],
    }
