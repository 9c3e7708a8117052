"""A model that a run folder holds: that of the last round, or the one that was best on validation samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from torch import Tensor, nn

from fedrelay.errors import RunFolderError, SpecError
from fedrelay.files import read_regular_file
from fedrelay.runtime.record_lines import Row
from fedrelay.runtime.result import on_validation
from fedrelay.runtime.run_folder_reader import RunFolderReader


@dataclass(frozen=True)
class TrainedModel:
    """The weights of a model, and the line of metrics of its round."""

    weights: dict[str, Tensor]
    row: Row
    chosen_by: str | None = None
    """The metric that the round was chosen by; None for the last round."""

    @property
    def which(self) -> str:
        """`best` or `last`."""
        return "last" if self.chosen_by is None else "best"

    @property
    def round(self) -> int | None:
        """Its round; None if a damaged folder does not tell."""
        return self.row.get("round")


def read_trained_model(records: RunFolderReader, module: nn.Module, *, best: bool) -> TrainedModel:
    """A model of a complete run.

    Args:
        records: The run folder.
        module: A module of the same structure.
        best: Whether to read the model that was best on validation samples, instead of the last one.

    Raises:
        SpecError: The run kept no best model.
        RunFolderError: The model is missing, damaged, or does not fit the module.
    """
    rows, final = records.lines("metrics"), records.final_metrics
    if not best:
        row = (rows or [{}])[-1] | final.get("last", {})
        return TrainedModel(_weights(records.path / "model.safetensors", module), row)
    found = records.best
    if found is None and any(on_validation("loss") in row for row in rows):
        metric = on_validation(records.task.headline)
        advice = "choose another eval.metric"
        raise SpecError(f"{records.path}: kept no best model, because {metric} had no value; {advice}")
    if found is None:
        how = "nodes that keep some (fedrelay node --validation 0.1)"
        how = how if records.experiment.data_at_nodes else "data.validation, such as --validation 0.1"
        raise SpecError(f"{records.path}: kept no best model, because it has no validation samples; run it with {how}")
    row = next((row for row in rows if row["round"] == found["round"]), None)
    if row is None:
        raise RunFolderError(f"{records.path}: is damaged (metrics.jsonl lacks round {found['round']}, its best)")
    return TrainedModel(
        _weights(records.path / "best.safetensors", module), row | final.get("best", {}), found["metric"]
    )


def _weights(path: Path, module: nn.Module) -> dict[str, Tensor]:
    try:
        weights = tensors_from_bytes(read_regular_file(path))
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from None
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    if {name: tuple(tensor.shape) for name, tensor in weights.items()} != wanted:
        raise RunFolderError(f"{path}: does not fit the model of the run")
    return weights
