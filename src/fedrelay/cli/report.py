"""`fedrelay report` and `fedrelay watch`: runs as a web page, figures and tables."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Baseline, Json, Quiet, examples
from fedrelay.errors import SpecError
from fedrelay.files import make_folder, write_atomically

PORT = 8642
Runs = Annotated[list[Path], Argument(metavar="RUN…", help="folders of runs or comparisons")]


def _folder(name: str, what: str) -> typer.models.OptionInfo:
    option: typer.models.OptionInfo = Option(name, metavar="FOLDER", help=f"also write {what}")
    return option


@dataclass(frozen=True)
class WantedFiles:
    """What to write besides the page."""

    figures: Mapping[str, Path]
    """png, svg or pdf → folder."""

    csv: Path | None
    paper: Path | None
    width: float

    @property
    def folders(self) -> dict[str, Path]:
        """The folder of every kind of file."""
        others = {"csv": self.csv, "paper": self.paper}
        return {**self.figures, **{kind: folder for kind, folder in others.items() if folder is not None}}


PAGE_ONLY = WantedFiles({}, None, None, 3.4)

Report = tuple[dict[str, Any], dict[str, list[Path]]]
"""The document of a page, and the files that were written, by kind."""

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedrelay report runs/compare-digits",
        "fedrelay report runs/fedavg-digits-seed1 runs/fedseq-digits-seed1 --out both.html",
        "fedrelay report runs/compare-digits --csv tables --pdf figures",
        "fedrelay report runs/compare-digits --baseline fedseq",
        "fedrelay report runs/compare-digits --paper paper --width 7",
    )
)
def report(
    runs: Runs,
    out: Annotated[Path | None, Option(metavar="FILE.html", help="the page to write; default RUN/report.html")] = None,
    png: Annotated[Path | None, _folder("--png", "all figures as PNG files")] = None,
    svg: Annotated[Path | None, _folder("--svg", "all figures as SVG files")] = None,
    pdf: Annotated[Path | None, _folder("--pdf", "all figures as PDF files")] = None,
    csv: Annotated[Path | None, _folder("--csv", "all numbers as CSV files")] = None,
    paper: Annotated[
        Path | None,
        _folder("--paper", "the tables of a paper (LaTeX, Markdown, CSV) and its figures (PDF, SVG), with captions"),
    ] = None,
    width: Annotated[
        float, Option(min=1, max=20, help="inches of the figures of --paper: 3.4 is one column, 7 are two")
    ] = 3.4,
    baseline: Baseline = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Write one self-contained web page about runs. It opens from disk and needs no network."""
    figures = {kind: folder for kind, folder in {"png": png, "svg": svg, "pdf": pdf}.items() if folder is not None}
    wanted = WantedFiles(figures, csv, paper, width)
    write_report(runs, out, baseline, wanted, CommandOutput(quiet=quiet, json=json))


def write_report(
    runs: Sequence[Path],
    out: Path | None = None,
    baseline: str | None = None,
    wanted: WantedFiles = PAGE_ONLY,
    output: CommandOutput | None = None,
) -> None:
    """Write the page of runs and the wanted files, and say where they are."""
    from fedrelay.report.load_sweep import only_sweep
    from fedrelay.report.terminal.table_shapes import facts_grid
    from fedrelay.report.web_page import web_page
    from fedrelay.runtime.spec_files import TUNING_SPEC

    output = output or CommandOutput()
    for folder in runs:
        if (folder / TUNING_SPEC).is_file():
            page, compared = folder / "report.html", folder / "comparison"
            raise SpecError(f"{folder}: is a tuning; its page is {page}, its comparison is {compared}")
    page = out or runs[0] / "report.html"
    if page.is_dir():
        page = page / "report.html"
    with output.showing_warnings():
        sweep = only_sweep(runs)
        if sweep is None:
            document, written = _report_of_runs(runs, baseline, wanted)
        else:
            document, written = _report_of_sweep(sweep, baseline, wanted)
        make_folder(page.parent)
        write_atomically(page, web_page(document).encode())
    rows = {"report": str(page), "open it with": f"a browser, such as:  xdg-open {shlex.quote(str(page))}"}
    rows |= {f"{kind} files": f"{len(paths)} in {wanted.folders[kind]}" for kind, paths in written.items()}
    output.print(facts_grid(rows))
    output.print_json(
        {
            "report": str(page),
            **{kind: list(map(str, written.get(kind, ()))) for kind in ("png", "svg", "pdf", "csv", "paper")},
            "methods": [method["name"] for method in document["methods"]],
            "states": document["states"],
        }
    )


def _report_of_runs(runs: Sequence[Path], baseline: str | None, wanted: WantedFiles) -> Report:
    """Write the files of runs and comparisons; return their page as a document."""
    from fedrelay.report.csv_tables import write_csv_tables
    from fedrelay.report.load_runs import load_runs
    from fedrelay.report.page_limits import EVERYTHING
    from fedrelay.report.page_sections import write_figures
    from fedrelay.report.paper_files import write_paper_files
    from fedrelay.report.report_content import describe

    loaded = load_runs(runs, baseline)
    whole = describe(loaded, EVERYTHING) if wanted.folders else {}
    written = {kind: write_figures(whole, folder, kind) for kind, folder in wanted.figures.items()}
    if wanted.csv is not None:
        make_folder(wanted.csv)
        written["csv"] = write_csv_tables(whole, wanted.csv)
    if wanted.paper is not None:
        written["paper"] = write_paper_files(whole, wanted.paper, wanted.width)
    return describe(loaded), written


def _report_of_sweep(folder: Path, baseline: str | None, wanted: WantedFiles) -> Report:
    """Write the files of a sweep; return its page as a document."""
    from fedrelay.report.load_sweep import load_sweep
    from fedrelay.report.sweep_files import sweep_document, write_sweep_figures, write_sweep_paper
    from fedrelay.report.sweep_summary import sweep_csv

    result, _ = load_sweep(folder, baseline)
    written = {kind: write_sweep_figures(result, place, kind) for kind, place in wanted.figures.items()}
    if wanted.csv is not None:
        make_folder(wanted.csv)
        write_atomically(wanted.csv / "sweep.csv", sweep_csv(result).encode())
        written["csv"] = [wanted.csv / "sweep.csv"]
    if wanted.paper is not None:
        written["paper"] = write_sweep_paper(result, wanted.paper, wanted.width)
    return sweep_document(folder, baseline), written


@app.command(epilog=examples("fedrelay watch runs/fedseq-digits-seed1", "fedrelay watch runs/compare-digits --open"))
def watch(
    runs: Runs,
    port: Annotated[int, Option(min=0, max=65535, help="port of the page; 0 takes a free one")] = PORT,
    browser: Annotated[bool, Option("--open", help="open the page in the browser")] = False,
    quiet: Quiet = False,
) -> None:
    """Show runs live in the browser. The runs may start later; only this machine can open the page."""
    import webbrowser

    from fedrelay.report.terminal.table_shapes import facts_grid
    from fedrelay.report.watch_server import WatchServer, missing_folders

    output = CommandOutput(quiet=quiet)
    with output.showing_warnings(), WatchServer(runs, port) as server:
        missing = ", ".join(map(str, missing_folders(runs)))
        waiting = {"waiting for": f"{missing}, which does not exist yet"} if missing else {}
        output.print(facts_grid({"watch at": server.address, **waiting, "stop with": "Ctrl-C; the run continues"}))
        if browser:
            webbrowser.open(server.address)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            output.print("\nStopped watching. To keep the page, run:  fedrelay report " + shlex.join(map(str, runs)))
