"""`fedrelay demo`: examples that run from the installed package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.report import write_report
from fedrelay.cli.run import compare_methods
from fedrelay.cli.settings import Quiet, examples
from fedrelay.errors import EngineError, SpecError
from fedrelay.experiment.spec import load_file, unknown

DEMOS = {
    "digits": "four methods on 100 clients with one digit each; three seeds, half a minute on two cores",
    "hospitals": "what each of four hospitals gains by taking part, evaluated on its own patients",
    "federation": "a real federation on this machine: nodes, server and SuperLink are killed and recover",
}
"""Name → what is shown."""

app = typer.Typer()


@app.command(
    epilog=examples("fedrelay demo", "fedrelay demo hospitals --out runs/hospitals", "fedrelay demo federation")
)
def demo(
    name: Annotated[str, Argument(metavar="[NAME]", help=f"one of {', '.join(DEMOS)}")] = "digits",
    out: Annotated[Path | None, Option(metavar="FOLDER", help="where to write; default demo-NAME")] = None,
    quiet: Quiet = False,
) -> None:
    """Run an example and write its report. Needs no download: the data are in the package."""
    known = [each for each in DEMOS if (demo_files() / f"{each}.yaml").is_file() or each == "federation"]
    if name not in known:
        raise SpecError(f"demo: {unknown('name', name, known)}")
    folder = out or Path(f"demo-{name}")
    if folder.exists() and any(folder.iterdir()):
        raise SpecError(f"{folder}: is not empty; choose another folder with --out")
    output = CommandOutput(quiet=quiet)
    output.note(f"{name}: {DEMOS[name]}")
    if name == "federation":
        _run_federation(folder)
        return
    compare_methods(output, name, load_file(demo_files() / f"{name}.yaml"), [("out", folder)])
    write_report([folder], output=output)


def demo_files() -> Path:
    """The folder of the examples: in an installed package beside it, in a clone of the repository `examples`."""
    package = Path(__file__).parents[1]
    installed = package / "demos"
    return installed if installed.is_dir() else package.parents[1] / "examples"


def _run_federation(folder: Path) -> None:
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise EngineError("Flower is not installed, so there are no nodes: pip install 'fedrelay[flower]'")
    script = demo_files() / "federation" / "demo.py"
    ended = subprocess.run([sys.executable, str(script), str(folder)], check=False)
    if ended.returncode:
        raise EngineError(f"the demonstration failed; its logs are in {folder}")
