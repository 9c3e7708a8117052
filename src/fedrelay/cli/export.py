"""`fedrelay export`: the model of a run as files for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Json, Quiet, examples

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedrelay export runs/fedseq-digits-seed1",
        "fedrelay export runs/fedseq-digits-seed1 --best",
        "fedrelay export runs/fedseq-digits-seed1 --format torch-export --predictions --out model",
    )
)
def export(
    folder: Annotated[Path, Argument(metavar="RUN", help="the folder of a complete run")],
    format: Annotated[
        str, Option(help="safetensors or state-dict (weights), torch-export or onnx (the whole model)")
    ] = "safetensors",
    best: Annotated[
        bool, Option("--best", help="the best model on validation samples, instead of that of the last round")
    ] = False,
    out: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="new folder to write to; default RUN/export, or RUN/export-best with --best"),
    ] = None,
    predictions: Annotated[
        bool, Option("--predictions", help="also write the predictions for every test sample")
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Export a model of a run, with its preprocessing and a model card."""
    from fedrelay.report.terminal.table_shapes import facts_grid
    from fedrelay.runtime.export import export_run
    from fedrelay.user_code import import_from_current_folder

    import_from_current_folder()
    output = CommandOutput(quiet=quiet, json=json)
    out = out or folder / ("export-best" if best else "export")
    with output.showing_warnings():
        found = export_run(folder, out, format=format, best=best, predictions=predictions)  # type: ignore[arg-type]
    files = {
        "model": found.model,
        "model card": found.card,
        "predictions": found.predictions,
        "prediction arrays": found.prediction_arrays,
    }
    output.print(facts_grid({name: str(path) for name, path in files.items() if path is not None}))
    output.print_json({name.replace(" ", "_"): str(path) for name, path in files.items() if path is not None})
