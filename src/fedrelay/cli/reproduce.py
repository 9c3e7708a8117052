"""`fedrelay reproduce`: test published claims. The package `fedrelay_reproduce` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from fedrelay.cli.interrupts import StoppedByUser
from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Json, Quiet, examples
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import unknown

if TYPE_CHECKING:  # these import torch, which would make --help slow
    from fedrelay_reproduce.claim import Claim, Scale
    from fedrelay_reproduce.results import Entry

PAGE, PICTURES, RECORDS = "reproduction.md", "reproduction", "results"

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedrelay reproduce --list",
        "fedrelay reproduce 1 2 --scale smoke",
        "fedrelay reproduce --dry-run",
        "fedrelay reproduce --from my_claim.py",
        "fedrelay reproduce --write docs",
        "fedrelay reproduce 1 --results docs/reproduction/results",
    )
)
def reproduce(
    claims: Annotated[list[int] | None, Argument(metavar="[CLAIM]…", help="numbers; default all")] = None,
    scale: Annotated[
        str, Option(help="smoke (minutes), small (hours), medium (a night) or full (the papers' own settings)")
    ] = "small",
    seeds: Annotated[int | None, Option(min=1, help="how many; default as the claim says")] = None,
    jobs: Annotated[int, Option(min=0, help="worker processes; 0 = one per core")] = 0,
    device: Annotated[str | None, Option(help="where training runs, such as cuda")] = None,
    out: Annotated[Path, Option(help="folder for all runs; unfinished ones continue")] = Path("reproduction"),
    results: Annotated[
        Path | None,
        Option(metavar="FOLDER", help="results of finished runs, as --write keeps them: these runs are not done again"),
    ] = None,
    source: Annotated[
        Path | None, Option("--from", metavar="PATH", help="your own claims: a Python file, or a folder of them")
    ] = None,
    listed: Annotated[bool, Option("--list", help="show the claims and run nothing")] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="estimate the time and run nothing")] = False,
    write: Annotated[
        Path | None,
        Option(
            metavar="FOLDER",
            help=f"write {PAGE} with the results at this scale or a larger one, and the short table into README.md "
            "beside FOLDER if it has a place for it; run nothing",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Test what papers claim, at a scale of your choice."""
    from fedrelay.engines.local.simulation_engine import cores
    from fedrelay_reproduce.catalogue import chosen, load_claims
    from fedrelay_reproduce.estimate import estimate
    from fedrelay_reproduce.page import claims_table, estimate_table, results_table
    from fedrelay_reproduce.progress import show_progress
    from fedrelay_reproduce.results import entry_of, update_results
    from fedrelay_reproduce.scaled_claim import scaled_claim
    from fedrelay_reproduce.workers import execute_all, runs_of

    output = CommandOutput(quiet=quiet, json=json)
    known = load_claims(source)
    wanted = chosen(known, claims or [])
    if listed:
        output.print(claims_table(wanted))
        output.print_json({"claims": [claim.facts() for claim in wanted]})
        return
    chosen_scale = _scale(scale)
    if results is not None and write is not None:
        raise SpecError(f"--results: has no effect with --write, which uses {write / PICTURES / RECORDS}")
    if results is not None and not results.is_dir():
        raise SpecError(f"--results: {results} is not a folder")
    if write is not None:
        _write(output, known, chosen_scale, out, write)
        return
    processes = jobs or cores()
    wanted = wanted if claims else [claim for claim in wanted if chosen_scale in claim.scales]
    scaled = [scaled_claim(claim, chosen_scale, out, seeds, device, results) for claim in wanted]
    runs = runs_of(scaled)
    with output.showing_warnings():
        estimates = estimate(scaled, runs)
        output.print(estimate_table(estimates, processes))
        if dry_run:
            output.print_json({"seconds": {str(each.claim.claim.number): each.seconds for each in estimates}})
            return
        problems: dict[str, str] = {}
        try:
            with show_progress(output.stderr, sum(not run.done for run in runs)) as report:
                problems = execute_all(runs, processes, report)
        except KeyboardInterrupt:
            raise StoppedByUser("stopped; everything is saved, and the same command continues") from None
        finally:
            entries = [entry_of(each, problems) for each in scaled]
            update_results(out, chosen_scale, entries)
    table = results_table({claim.number: claim for claim in wanted}, entries)
    output.print("", table, "", f"  all numbers  {out / chosen_scale / 'results.json'}")
    output.print_json({"claims": {str(entry["claim"]): entry for entry in entries}})


def _write(output: CommandOutput, claims: dict[int, Claim], scale: Scale, out: Path, folder: Path) -> None:
    from fedrelay.files import make_folder, write_atomically
    from fedrelay_reproduce.figures import draw_claim
    from fedrelay_reproduce.page import reproduction_page
    from fedrelay_reproduce.results import (
        NOT_RUN,
        at_larger_scale,
        best_results,
        judged_again,
        keep_finished_runs,
        recorded_entries,
        write_records,
    )
    from fedrelay_reproduce.scaled_claim import scaled_claim

    records = folder / PICTURES / RECORDS
    keep_finished_runs(claims.values(), scale, out, records)
    here = {number: entry for number, entry in best_results(out, scale).items() if number in claims}
    entries = at_larger_scale(here, recorded_entries(claims, scale, out, records))
    make_folder(folder / PICTURES)
    pictures: dict[int, str] = {}
    for number, entry in entries.items():
        if entry["verdict"] == NOT_RUN:
            continue
        scaled = scaled_claim(claims[number], entry["scale"], out, len(entry["seeds"]), records=records)
        entries[number] = judged_again(entry, scaled)
        write_records(scaled, records)
        name = f"{PICTURES}/{number:02}.png"
        if draw_claim(scaled, folder / name):
            pictures[number] = name
    write_atomically(folder / PAGE, reproduction_page(claims, entries, pictures).encode())
    front = _write_front_page(claims, entries, folder)
    output.print(f"{folder / PAGE}, {len(pictures)} pictures" + (f"; the table in {front}" if front else ""))
    output.print_json({"page": str(folder / PAGE), "pictures": sorted(pictures.values()), "front_page": front})


def _write_front_page(claims: dict[int, Claim], entries: dict[int, Entry], folder: Path) -> str | None:
    """Write the short table into README.md beside the folder, if it has a place for it."""
    from fedrelay.files import write_atomically
    from fedrelay_reproduce.page import BEGIN, END, headline_table, with_headlines

    path = folder.absolute().parent / "README.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if BEGIN not in text and END not in text:
        return None
    table = headline_table(claims, entries, f"{folder.absolute().name}/{PAGE}")
    try:
        write_atomically(path, with_headlines(text, table).encode())
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    return str(path)


def _scale(name: str) -> Scale:
    from fedrelay_reproduce.claim import SCALES

    for scale in SCALES:
        if scale == name:
            return scale
    raise SpecError(f"--scale: {unknown('scale', name, SCALES)}")
