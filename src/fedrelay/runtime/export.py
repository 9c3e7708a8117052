"""Exports a model of a run to files that plain PyTorch or another runtime can load, with a model card."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import torch
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from fedrelay.data.dataset import Scaling
from fedrelay.data.own_data_per_seed import OwnData
from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.data_and_model import OwnModel
from fedrelay.experiment.prepare import prepare_without_groups
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.files import make_folder, write_atomically
from fedrelay.local.model_checks import example_batch
from fedrelay.runtime.model_card import model_card
from fedrelay.runtime.model_interface import model_interface, scaling_of
from fedrelay.runtime.predictions import predictions_of
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.trained_model import read_trained_model
from fedrelay.runtime.unsaved_inputs import check_unsaved_inputs, how_to_continue
from fedrelay.tasks.base import Task

Format = Literal["safetensors", "state-dict", "torch-export", "onnx"]
FORMATS: tuple[Format, ...] = get_args(Format)
FILES: dict[Format, str] = {
    "safetensors": "model.safetensors",
    "state-dict": "model.pt",
    "torch-export": "model.pt2",
    "onnx": "model.onnx",
}


@dataclass(frozen=True)
class ExportedRun:
    """The files of an export."""

    folder: Path
    model: Path
    card: Path
    predictions: Path | None = None
    """The predictions for every test sample, if they were wanted."""

    prediction_arrays: Path | None = None
    """More of them in an `.npz` file, where the task has any, such as masks of images."""


class RawInputModel(nn.Module):
    """A model that takes raw values, such as bytes of an image, and scales them itself."""

    shift: Tensor
    scale: Tensor

    def __init__(self, module: nn.Module, scaling: Scaling | None, axes: int) -> None:
        super().__init__()
        self.module = module
        per_channel = (-1, *(1 for _ in range(axes - 1)))
        shift, scale = (scaling.shift, scaling.scale) if scaling is not None else ((0.0,), (1.0,))
        self.register_buffer("shift", torch.tensor(shift).view(per_channel))
        self.register_buffer("scale", torch.tensor(scale).view(per_channel))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.module((x - self.shift) * self.scale)
        return outputs


def _check_same_data(run: Path, records: RunFolderReader, prepared: PreparedExperiment) -> None:
    """Refuse other data than the run's: scores on them would not be those of the model card."""
    experiment = records.experiment
    if experiment.data_at_nodes or experiment.attack.name != "none":  # then data may have changed for good reasons
        return
    if prepared.federation.fingerprint() != records.facts.get("data_fingerprint"):
        raise RunFolderError(f"{run}: the data are not those the run was started with")


def export_run(
    run: Path,
    out: Path,
    *,
    format: Format = "safetensors",
    best: bool = False,
    predictions: bool = False,
    federation: OwnData | None = None,
    module: OwnModel | None = None,
    task: Task | None = None,
) -> ExportedRun:
    """Export a model of a complete run.

    Args:
        run: The folder of the run.
        out: A new or empty folder for the files.
        format: `safetensors` or `state-dict` hold the weights, scaled inputs go in; `torch-export` and `onnx` hold the
            whole model with its preprocessing, raw values go in. Rows of a table are encoded first in any case, as
            `model.json` says.
        best: Whether to export the model that was best on validation samples, instead of that of the last round.
        predictions: Whether to write the predictions for every test sample, too.
        federation: The caller's own data, if the run was started with them.
        module: The caller's own module, or the function that builds it, if the run was started with one.
        task: The caller's own task, if the run was started with one.

    Raises:
        RunFolderError: The run is not complete, or its model is damaged.
        SpecError: The format is unknown or cannot be written here, the run kept no best model, or something of the
            caller's own is missing.
    """
    if format not in FORMATS:
        raise SpecError(f"format: must be one of {', '.join(FORMATS)}, got {format!r}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(f"{out}: is not an empty folder; choose another --out")
    records = RunFolderReader.open(run)
    if records.result is None:
        how = how_to_continue(run, records.facts)
        raise RunFolderError(f"{run}: the run is not complete; continue it with {how}")
    given = {"data": federation, "model": module, "task": task}
    check_unsaved_inputs(run, records.facts, "use fedrelay.export", given, SpecError)
    prepared = prepare_without_groups(records.experiment, federation=federation, module=module, task=task)
    _check_same_data(run, records, prepared)
    prepared = replace(prepared, module=copy.deepcopy(prepared.module))  # the caller's own keeps its weights
    trained = read_trained_model(records, prepared.module, best=best)
    prepared.module.load_state_dict(trained.weights)
    prepared.module.eval()
    content = _WRITERS[format](prepared, trained.weights)
    interface = model_interface(prepared, trained, whole_model=format in ("torch-export", "onnx"))
    predicted = predictions_of(prepared) if predictions else None
    make_folder(out)
    model, card = out / FILES[format], out / "model_card.md"
    write_atomically(model, content)
    write_atomically(out / "model.json", (json.dumps(interface, indent=2) + "\n").encode())
    write_atomically(card, model_card(records, prepared, trained, format, FILES[format]).encode())
    exported = ExportedRun(out, model, card)
    if predicted is not None:
        exported = replace(exported, predictions=out / "predictions.csv")
        write_atomically(out / "predictions.csv", predicted.csv)
    if predicted is not None and predicted.arrays:
        exported = replace(exported, prediction_arrays=out / "predictions.npz")
        write_atomically(out / "predictions.npz", predicted.npz)
    return exported


def _state_dict(prepared: PreparedExperiment, weights: dict[str, Tensor]) -> bytes:
    content = io.BytesIO()
    torch.save(weights, content)
    return content.getvalue()


def _program(prepared: PreparedExperiment, weights: dict[str, Tensor]) -> bytes:
    """The model as a program of `torch.export`, for any number of samples."""
    module, inputs = _with_preprocessing(prepared)
    content = io.BytesIO()
    with _tracing("torch-export"):
        batch = torch.export.Dim("batch", min=1)
        program = torch.export.export(module, (inputs,), dynamic_shapes=({0: batch},))
        torch.export.save(program, content)
    return content.getvalue()


def _onnx(prepared: PreparedExperiment, weights: dict[str, Tensor]) -> bytes:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError:
        raise SpecError("format: onnx needs extra packages; install them with: pip install 'fedrelay[onnx]'") from None
    module, inputs = _with_preprocessing(prepared)
    with _tracing("onnx"):
        batch = torch.export.Dim("batch", min=1)
        program = torch.onnx.export(
            module, (inputs,), dynamo=True, input_names=["x"], output_names=["outputs"], dynamic_shapes=({0: batch},),
            verbose=False,
        )  # fmt: skip
        assert program is not None
        content: bytes = program.model_proto.SerializeToString()
    return content


@contextlib.contextmanager
def _tracing(format: Format) -> Iterator[None]:
    """Keep PyTorch quiet while it traces a model, and say in one line why it could not."""
    disabled, unseen = logging.root.manager.disable, io.StringIO()
    logging.disable(max(disabled, logging.WARNING))
    try:
        with contextlib.redirect_stdout(unseen), contextlib.redirect_stderr(unseen):
            yield
    except Exception as error:  # a module of the user may do anything
        cause: BaseException = error
        while cause.__cause__ is not None:  # PyTorch wraps what went wrong in advice to its own developers
            cause = cause.__cause__
        reason = next(iter(str(cause).strip().splitlines()), type(cause).__name__)
        raise SpecError(f"format: the model cannot be exported as {format} ({reason}); use safetensors") from None
    finally:
        logging.disable(disabled)


_WRITERS: dict[Format, Callable[[PreparedExperiment, dict[str, Tensor]], bytes]] = {
    "safetensors": lambda _, weights: tensors_to_bytes({name: each.contiguous() for name, each in weights.items()}),
    "state-dict": _state_dict,
    "torch-export": _program,
    "onnx": _onnx,
}


def _with_preprocessing(prepared: PreparedExperiment) -> tuple[nn.Module, Tensor]:
    """The model for raw values, and two samples of them."""
    federation = prepared.federation
    inputs = example_batch(federation).x
    if not isinstance(inputs, Tensor):
        raise SpecError("format: torch-export and onnx take models with one input; use safetensors or state-dict")
    if inputs.shape[0] == 1:
        inputs = torch.cat([inputs, inputs])
    if not inputs.is_floating_point():
        return prepared.module, inputs
    scaling = scaling_of(federation)
    module = RawInputModel(prepared.module, scaling, inputs.dim() - 1).eval()
    return module, inputs.to(prepared.layout.dtype)
