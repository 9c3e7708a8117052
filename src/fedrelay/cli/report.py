"""`fedrelay report` and `watch`: runs as pictures, finished or under way."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Json, Quiet, examples
from fedrelay.files import make_folder, write_atomically

if TYPE_CHECKING:  # these import torch, which would make --help slow
    from fedrelay.report.gathering import Gathering

PORT = 8642
Runs = Annotated[list[Path], typer.Argument(metavar="RUN…", help="folders of runs and of comparisons")]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog=examples(
            "fedrelay report runs/compare-digits",
            "fedrelay report runs/fedavg-digits-seed1 runs/fedseq-digits-seed1 --out both.html",
            "fedrelay report runs/compare-digits --csv tables --png figures",
        )
    )(report)
    app.command(
        epilog=examples("fedrelay watch runs/fedseq-digits-seed1", "fedrelay watch runs/compare-digits --open")
    )(watch)


def report(
    runs: Runs,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.html", help="where to write; default RUN/report.html")
    ] = None,
    png: Annotated[Path | None, typer.Option("--png", metavar="FOLDER", help="the figures as pictures too")] = None,
    csv: Annotated[Path | None, typer.Option("--csv", metavar="FOLDER", help="the figures as tables too")] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write one self-contained page with everything there is to see of runs; it opens from disk, without a network."""
    from fedrelay.report.document import describe
    from fedrelay.report.gathering import gather
    from fedrelay.report.tables import facts_grid
    from fedrelay.report.webpage import webpage

    screen = CommandOutput(quiet=quiet, json=json)
    page = out or runs[0] / "report.html"
    if page.is_dir():
        page = page / "report.html"
    with screen.listening():
        gathering = gather(runs)
        found = describe(gathering)
        make_folder(page.parent)
        write_atomically(page, webpage(found).encode())
        pictures, tables = _figures(gathering, png), _tables(gathering, csv)
    rows = {"report": str(page), "open it with": f"a browser, such as:  xdg-open {shlex.quote(str(page))}"}
    rows |= {"pictures": f"{len(pictures)} in {png}"} if png else {}
    rows |= {"tables": f"{len(tables)} in {csv}"} if csv else {}
    screen.show(facts_grid(rows))
    screen.emit(
        {
            "report": str(page),
            "png": [str(path) for path in pictures],
            "csv": [str(path) for path in tables],
            "methods": [method["name"] for method in found["methods"]],
            "states": found["states"],
        }
    )


def watch(
    runs: Runs,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="where to serve the page; 0 takes any")] = PORT,
    browser: Annotated[bool, typer.Option("--open", help="open the page in the browser")] = False,
    quiet: Quiet = False,
) -> None:
    """Show runs live in the browser, before, while and after they go on; only this machine can see it."""
    import webbrowser

    from fedrelay.report.live import Live, absent
    from fedrelay.report.tables import facts_grid

    screen = CommandOutput(quiet=quiet)
    with screen.listening(), Live(runs, port) as server:
        awaited = ", ".join(map(str, absent(runs)))
        waiting = {"waiting for": f"{awaited}, which is not there yet"} if awaited else {}
        screen.show(facts_grid({"watch at": server.address, **waiting, "stop with": "Ctrl-C; the run goes on"}))
        if browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            screen.show("\nStopped watching. Keep what there is with:  fedrelay report " + shlex.join(map(str, runs)))


def _figures(gathering: Gathering, folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    from fedrelay.report.document import describe
    from fedrelay.report.figures import write_figures
    from fedrelay.report.thinning import EVERYTHING

    make_folder(folder)
    return write_figures(describe(gathering, EVERYTHING), folder)


def _tables(gathering: Gathering, folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    from fedrelay.report.document import describe
    from fedrelay.report.sheets import write_sheets
    from fedrelay.report.thinning import EVERYTHING

    make_folder(folder)
    return write_sheets(describe(gathering, EVERYTHING), folder)
