"""Exports the model of a run to files that plain PyTorch or another runtime can load, with a model card."""

from __future__ import annotations

import contextlib
import copy
import csv
import io
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from fedrelay.data.dataset import Dataset, Scaling
from fedrelay.data.federation import ArrayFederation, Federation
from fedrelay.data.federation_wrapper import FederationWrapper
from fedrelay.data.table_federation import TableFederation, table_part
from fedrelay.errors import RunFolderError, SpecError
from fedrelay.experiment.prepare import prepare_without_groups
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.files import read_regular_file, write_atomically
from fedrelay.local.evaluation import chunk_count, chunk_outputs
from fedrelay.local.model_checks import example_batch
from fedrelay.models.flat_layout import FlatModule
from fedrelay.models.nested_inputs import logits_of, map_inputs, with_float_type
from fedrelay.runtime.run_folder import RunFolderReader
from fedrelay.runtime.unsaved_inputs import check_unsaved_inputs
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


def export_run(
    run: Path,
    out: Path,
    *,
    format: Format = "safetensors",
    predictions: bool = False,
    federation: Federation | None = None,
    module: nn.Module | None = None,
    task: Task | None = None,
) -> ExportedRun:
    """Export the final model of a complete run.

    Args:
        run: The folder of the run.
        out: A new or empty folder for the files.
        format: `safetensors` or `state-dict` hold the weights, scaled inputs go in; `torch-export` and `onnx` hold the
            whole model with its preprocessing, raw values go in. Rows of a table are encoded first in any case, as
            `model.json` says.
        predictions: Whether to write the outputs for every test sample, too.
        federation: The caller's own data, if the run was started with them.
        module: The caller's own module, if the run was started with one.
        task: The caller's own task, if the run was started with one.

    Raises:
        RunFolderError: The run is not complete, or its model is damaged.
        SpecError: The format is unknown, cannot be written here, or something of the caller's own is missing.
    """
    if format not in FORMATS:
        raise SpecError(f"format: must be one of {', '.join(FORMATS)}, got {format!r}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SpecError(f"{out}: is not an empty folder; choose another --out")
    records = RunFolderReader.open(run)
    if records.result is None:
        raise RunFolderError(f"{run}: the run is not complete; continue it with 'fedrelay resume {run}'")
    given = {"data": federation, "model": module, "task": task}
    check_unsaved_inputs(run, records.facts, "use fedrelay.export", given, SpecError)
    prepared = prepare_without_groups(records.experiment, federation=federation, module=module, task=task)
    prepared = replace(prepared, module=copy.deepcopy(prepared.module))  # the caller's own keeps its weights
    weights = _final_weights(run, prepared.module)
    prepared.module.load_state_dict(weights)
    prepared.module.eval()
    content = _WRITERS[format](prepared, weights)
    cases = _predictions(prepared) if predictions else None
    out.mkdir(parents=True, exist_ok=True)
    model, card = out / FILES[format], out / "model_card.md"
    write_atomically(model, content)
    write_atomically(out / "model.json", (json.dumps(_interface(prepared, format), indent=2) + "\n").encode())
    write_atomically(card, _card(run, records, prepared, format).encode())
    if cases is not None:
        write_atomically(out / "predictions.csv", cases.encode())
    return ExportedRun(out, model, card, out / "predictions.csv" if cases is not None else None)


def _final_weights(run: Path, module: nn.Module) -> dict[str, Tensor]:
    path = run / "model.safetensors"
    try:
        weights = tensors_from_bytes(read_regular_file(path))
    except (OSError, SafetensorError) as error:
        raise RunFolderError(f"{path}: cannot be read ({error})") from None
    wanted = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    if {name: tuple(tensor.shape) for name, tensor in weights.items()} != wanted:
        raise RunFolderError(f"{path}: does not fit the model of the run")
    return weights


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
    scaling = _scaling(federation)
    module = RawInputModel(prepared.module, scaling, inputs.dim() - 1).eval()
    return module, inputs.to(prepared.layout.dtype)


def _scaling(federation: Federation) -> Scaling | None:
    dataset = _dataset(federation)
    return dataset.scaling if dataset is not None else None


def _dataset(federation: Federation) -> Dataset | None:
    """The arrays behind a federation, where there are any."""
    while isinstance(federation, FederationWrapper):
        federation = federation.inner
    return federation.dataset if isinstance(federation, ArrayFederation) else None


def _interface(prepared: PreparedExperiment, format: Format) -> dict[str, Any]:
    """What goes into the model and what comes out, as plain data."""
    federation, scaling = prepared.federation, _scaling(prepared.federation)
    table = table_part(federation)
    inputs = with_float_type(example_batch(federation).x, prepared.layout.dtype)
    return {
        "inputs": {
            "kind": federation.kind,
            "shape": map_inputs(lambda tensor: ["batch", *tensor.shape[1:]], inputs),
            "type": map_inputs(lambda tensor: str(tensor.dtype).removeprefix("torch."), inputs),
            "scaling": None if scaling is None else {"shift": list(scaling.shift), "scale": list(scaling.scale)},
            "scaled_by_the_model": table is None and format in ("torch-export", "onnx"),
            **({} if table is None else {"table": _table_interface(table)}),
        },
        "outputs": {
            "task": prepared.task.name,
            "shape": ["batch", *prepared.task.output_shape(federation)],
            "classes": federation.class_count or None,
            **({} if table is None else {"labels": list(table.shared.labels)}),
        },
    }


def _table_interface(table: TableFederation) -> dict[str, Any]:
    """How a row becomes the input of the model, as plain data."""
    encoding = table.shared.encoding
    return {
        "features": encoding.feature_names,
        **asdict(encoding),
        "scaled_per_client": table.shared.scaled_per_client,
        "clients": [asdict(each) for each in table.own],
    }


def _predictions(prepared: PreparedExperiment) -> str:
    """A line for each test sample: its number, its target and the outputs of the model, as evaluation computes them."""
    test = prepared.federation.test
    if not test.size:
        raise SpecError("predictions: there are no test samples here")
    if prepared.federation.target_shape and prepared.task.name not in ("multilabel", "regression"):
        raise SpecError(f"predictions: the task {prepared.task.name!r} has many targets per sample; no table fits them")
    train = prepared.experiment.train
    flat_module = FlatModule(copy.deepcopy(prepared.module), prepared.layout, train.device, train.precision)
    weights = prepared.layout.flatten(prepared.module)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    number = 0
    for chunk in range(chunk_count(test)):
        for found, targets in chunk_outputs(flat_module, weights, test, chunk):
            outputs, expected = (each.reshape(len(targets), -1) for each in (logits_of(found), targets))
            if number == 0:
                names = ["target"] if expected.shape[1] == 1 else [f"target_{k}" for k in range(expected.shape[1])]
                writer.writerow(["sample", *names, *(f"output_{k}" for k in range(outputs.shape[1]))])
            for target, output in zip(expected.tolist(), outputs.tolist(), strict=True):
                writer.writerow([number, *target, *(repr(value) for value in output)])
                number += 1
    return text.getvalue()


def _card(run: Path, records: RunFolderReader, prepared: PreparedExperiment, format: Format) -> str:
    """The model card: what the model is, how it was trained, how good it is, and how it is loaded."""
    experiment, summary, federation = prepared.experiment, records.result or {}, prepared.federation
    last = (records.lines("metrics") or [{}])[-1]
    scores = {name: last[name] for name in (*prepared.task.metrics, "loss") if last.get(name) is not None}
    versions = records.facts.get("versions", {})
    facts = {
        "task": prepared.task.name,
        "model": f"{experiment.model.name} ({prepared.layout.trained_size:,} trained parameters)",
        "data": f"{federation.name}: {federation.client_count:,} clients, {int(federation.sample_counts().sum()):,} "
        f"train and {federation.test.size:,} test samples",
        "data fingerprint": str(records.facts.get("data_fingerprint")),
        "method": experiment.method,
        "rounds": f"{summary.get('rounds')} ({summary.get('client_updates'):,} client updates)",
        "seed": str(experiment.seed),
        "weights": f"SHA-256 {summary.get('weights_sha256')}",
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    numbers = "\n".join(f"| {name} | {value:.6g} |" for name, value in scores.items())
    return f"""# Model card: {experiment.method} on {federation.name}

| fact | value |
|---|---|
{rows}

## Scores on the test samples, after the last round

| metric | value |
|---|---|
{numbers}

The test samples are those of the federation; how the model does at a single client or on other data is not known from
these numbers.

## Use

{_usage(prepared, format)}
`model.json` has the shapes of inputs and outputs and the scaling of inputs. `spec.yaml` of the run folder
({run.name}) has all settings.
"""


def _usage(prepared: PreparedExperiment, format: Format) -> str:
    name, table = FILES[format], table_part(prepared.federation)
    inputs = "raw values" if table is None else "encoded rows"
    note = ""
    if table is not None:
        note = _TABLE_NOTE + (_OWN_NUMBERS_NOTE if table.shared.scaled_per_client else "") + "\n"
    elif _scaling(prepared.federation) is not None and format in ("safetensors", "state-dict"):
        note = "Inputs must be scaled: `(x - shift) * scale`, see `model.json`.\n\n"
    code = {
        "safetensors": f'from safetensors.torch import load_file\n\nnet.load_state_dict(load_file("{name}"))',
        "state-dict": f'import torch\n\nnet.load_state_dict(torch.load("{name}", weights_only=True))',
        "torch-export": f'import torch\n\nnet = torch.export.load("{name}").module()\noutputs = net(x)  # {inputs}',
        "onnx": f'import onnxruntime\n\nsession = onnxruntime.InferenceSession("{name}")\n'
        f'outputs = session.run(None, {{"x": x}})  # {inputs}',
    }[format]
    return f"{note}```python\n{code}\n```\n"


_TABLE_NOTE = """\
Rows must be encoded first; the model does not do it. `inputs.table` of `model.json` has what is needed, and
`features` the order of the columns: a number is `(value - shift) / scale`, a category is one column of 0 and 1 for each
known one. A missing value is replaced by `missing`; where `marked` is true, one more column is 1 for missing values.
"""
_OWN_NUMBERS_NOTE = """\
Clients scaled numbers by their own means and deviations: for rows of a client use its `numbers` in `clients`. A client
that is not listed there takes the means and deviations of its own train rows; rows of no client take the shared
`numbers`.
"""
