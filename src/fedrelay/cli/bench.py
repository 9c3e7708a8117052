"""`fedrelay bench`: the speed of this machine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from typer import Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Json, Quiet, examples
from fedrelay.errors import SpecError

app = typer.Typer()


@app.command(
    epilog=examples("fedrelay bench", "fedrelay bench --workers 4 --rounds 50 --json", "fedrelay bench --device cuda")
)
def bench(
    workers: Annotated[int, Option(help="worker processes; 0 = one per core")] = 0,
    rounds: Annotated[int, Option(help="rounds to measure; the median counts")] = 15,
    device: Annotated[str, Option(help="measure this device beside the worker processes, such as cuda")] = "cpu",
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Measure the speed of this machine, against a plain PyTorch loop."""
    if workers < 0 or rounds < 1:
        raise SpecError(f"--workers must be at least 0 and --rounds at least 1, got {workers} and {rounds}")
    from fedrelay.engines.local.simulation_engine import cores
    from fedrelay.report.terminal.run_tables import pace_table
    from fedrelay.runtime.bench import bench as measure

    output = CommandOutput(quiet=quiet, json=json)
    paces = list(measure(workers or cores(), rounds, device))
    output.print(pace_table(paces))
    output.print_json({"paces": [asdict(pace) for pace in paces]})
