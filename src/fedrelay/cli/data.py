"""`fedrelay data`: the data sets, and how they are partitioned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import DATA_FLAGS, Assignments, Json, Quiet, Tree, apply, examples, takes_settings
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import Experiment, validate

app = typer.Typer(name="data", epilog=examples("fedrelay data", "fedrelay data show digits --alpha 0"))


@app.callback(invoke_without_command=True)
def data(context: typer.Context) -> None:
    """List all data sets and where they were found."""
    if context.invoked_subcommand is None:
        from fedrelay.data.registry import DATASETS
        from fedrelay.report.terminal.listings import dataset_list

        CommandOutput().print(*dataset_list(DATASETS.values()))


@app.command(
    epilog=examples(
        "fedrelay data show digits --clients 100 --alpha 0",
        "fedrelay data show mnist --partition natural --plot mnist.png",
        "fedrelay data show digits --partition shards --set shards_per_client=3",
    )
)
@takes_settings(*DATA_FLAGS)
def show(
    name: Annotated[str, Argument(metavar="[NAME]", help="a data set, or an .npz, .csv or .parquet file")] = "digits",
    plot: Annotated[
        Path | None,
        Option(
            metavar="FILE.png", help="draw the class mix of every client; in a folder, the file is NAME-partition.png"
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
    *,
    settings: Assignments,
) -> None:
    """Show how a data set is partitioned: samples and classes per client."""
    from fedrelay.data.client_class_counts import count_classes
    from fedrelay.data.open_federation import open_federation
    from fedrelay.report.terminal.listings import partition_page
    from fedrelay.report.terminal.table_shapes import facts_grid

    output = CommandOutput(quiet=quiet, json=json)
    experiment = _data_experiment(apply({"data": {"name": name}}, settings))
    with output.showing_warnings():
        partition = count_classes(open_federation(experiment.data, experiment.seed))
    page = [partition_page(partition, histograms=plot is None)]
    if plot is not None:
        from fedrelay.report.figure_files import save_figures
        from fedrelay.report.figure_specs import partition_figures

        file = plot / f"{partition.name}-partition.png" if plot.is_dir() else plot
        save_figures(file, partition_figures(partition))
        page += ["", facts_grid({"class mix": str(file)})]
    output.print(*page)
    output.print_json(partition.summary())


def _data_experiment(tree: Tree) -> Experiment:
    """An experiment with only data and seed set; other settings have no effect and are refused."""
    others = sorted(set(tree) - {"data", "seed"})
    if others:
        raise SpecError(f"{others[0]}: has no effect here; 'data show' takes only settings of 'data', and the seed")
    return validate(Experiment, {"method": "fedavg", **tree})
