"""The model card of an export: what the model is, how it was trained, how good it is, and how it is loaded."""

from __future__ import annotations

from datetime import UTC, datetime

from fedrelay.data.federation_wrapper import find_wrapper
from fedrelay.data.table_federation import TableFederation
from fedrelay.experiment.prepared_experiment import PreparedExperiment
from fedrelay.models.flat_layout import weights_sha256
from fedrelay.models.nested_inputs import single_shape
from fedrelay.runtime.model_interface import scaling_of
from fedrelay.runtime.rebuild_code import rebuild_code
from fedrelay.runtime.result import on_validation
from fedrelay.runtime.run_folder_reader import RunFolderReader
from fedrelay.runtime.trained_model import TrainedModel


def model_card(
    records: RunFolderReader, prepared: PreparedExperiment, model: TrainedModel, format: str, file: str
) -> str:
    """The text of the card, in Markdown.

    Args:
        records: The run folder.
        prepared: The experiment, with the exported weights in its module.
        model: The model that is exported.
        format: The format of its file.
        file: The name of its file.
    """
    experiment, summary, federation = prepared.experiment, records.result or {}, prepared.federation
    versions = records.facts.get("versions", {})
    facts = {
        "task": prepared.task.name,
        "model": f"{experiment.model.name} ({prepared.layout.trained_size:,} trained parameters)",
        "round": _round(model),
        "data": f"{federation.name}: {federation.client_count:,} clients, {int(federation.sample_counts().sum()):,} "
        f"train and {federation.test.size:,} test samples",
        "data fingerprint": str(records.facts.get("data_fingerprint")),
        "method": experiment.method,
        "rounds of the run": f"{summary.get('rounds')} ({summary.get('client_updates'):,} client updates)",
        "seed": str(experiment.seed),
        "weights": f"SHA-256 {weights_sha256(prepared.layout.flatten(prepared.module))}",
        "exported": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
    }
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return f"""# Model card: {experiment.method} on {federation.name}

| fact | value |
|---|---|
{rows}

## Scores after round {model.round}

{_scores(prepared, model)}

The test samples are those of the federation; how the model does at a single client or on other data is not known from
these numbers.{_PRECISION_NOTE if experiment.train.precision != "float32" else ""}

## Use

{_usage(prepared, format, file)}
`model.json` has the shapes of inputs and outputs and the scaling of inputs. `spec.yaml` of the run folder
({records.path.name}) has all settings.

## Layers

```
{prepared.module}
```
"""


def _round(model: TrainedModel) -> str:
    """The round of the model, and why it is that one."""
    if model.chosen_by is None:
        return f"{model.round}, the last one"
    return f"{model.round}, the best one on validation samples: {model.chosen_by} {model.row[model.chosen_by]:.6g}"


def _scores(prepared: PreparedExperiment, model: TrainedModel) -> str:
    """A table of all metrics; with a column for validation samples where there are any."""
    names = [name for name in (*prepared.task_facts.metrics, "loss") if model.row.get(name) is not None]
    columns = {"test samples": names}
    if any(model.row.get(on_validation(name)) is not None for name in names):
        columns["validation samples"] = [on_validation(name) for name in names]
    lines = [f"| metric | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for name, *keys in zip(names, *columns.values(), strict=True):
        values = (model.row.get(key) for key in keys)
        lines.append(f"| {name} | {' | '.join('' if value is None else f'{value:.6g}' for value in values)} |")
    return "\n".join(lines)


def _usage(prepared: PreparedExperiment, format: str, file: str) -> str:
    """What to do before the model, and the code that loads it."""
    table, note = find_wrapper(prepared.federation, TableFederation), ""
    if table is not None:
        note = _TABLE_NOTE + (_OWN_NUMBERS_NOTE if table.shared.scaled_per_client else "") + "\n"
    if format in _LOADED_WEIGHTS:
        code = _code_for_weights(prepared, format, file)
    else:
        inputs = "raw values" if table is None else "encoded rows"
        code = _CODE_FOR_WHOLE_MODELS[format].format(file=file, inputs=inputs)
    return f"{note}```python\n{code}\n```\n"


def _code_for_weights(prepared: PreparedExperiment, format: str, file: str) -> str:
    """Code that builds the module, loads its weights, and scales inputs."""
    import_line, weights = _LOADED_WEIGHTS[format]
    imports, lines = rebuild_code(prepared)
    lines += [f"net.load_state_dict({weights.format(file=file)})", "net.eval()"]
    shapes, scaling = prepared.federation.sample_shape, scaling_of(prepared.federation)
    shape = single_shape(shapes)
    if shape is None:
        lines.append("outputs = net(**x)" if isinstance(shapes, dict) else "outputs = net(*x)")
    elif scaling is None:
        lines.append("outputs = net(x)")
    else:
        imports.append("import torch")
        axes = f".view({', '.join(['-1', *('1' for _ in shape[1:])])})"
        shift, scale = (f"torch.tensor({list(each)}){axes}" for each in (scaling.shift, scaling.scale))
        lines += [f"shift, scale = {shift}, {scale}", "outputs = net((x - shift) * scale)  # x: raw values"]
    ordered = sorted({*imports, import_line}, key=lambda line: (line.startswith("from"), line))
    return "\n".join([*ordered, "", *lines])


_LOADED_WEIGHTS = {
    "safetensors": ("from safetensors.torch import load_file", 'load_file("{file}")'),
    "state-dict": ("import torch", 'torch.load("{file}", weights_only=True)'),
}
"""Format → the import, and the expression for the weights by name."""

_CODE_FOR_WHOLE_MODELS = {
    "torch-export": 'import torch\n\nnet = torch.export.load("{file}").module()\noutputs = net(x)  # {inputs}',
    "onnx": 'import onnxruntime\n\nsession = onnxruntime.InferenceSession("{file}")\n'
    'outputs = session.run(None, {{"x": x}})  # {inputs}',
}

_PRECISION_NOTE = """ The scores, and `predictions.csv` where there is one, were computed in mixed precision (bf16), as
in the run. The exported model computes in float32, so its outputs differ from the third digit on."""

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
