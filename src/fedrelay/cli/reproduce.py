"""`fedrelay reproduce`: published claims, run and judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedrelay.cli.interrupts import Stopped
from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Json, Quiet, examples
from fedrelay.errors import SpecError
from fedrelay.experiment.spec import unknown

if TYPE_CHECKING:  # these import torch, which would make --help slow
    from fedrelay.claims.claim import Claims, Scale
    from fedrelay.claims.record import Entry

PAGE, PICTURES = "reproduction.md", "reproduction"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        epilog=examples(
            "fedrelay reproduce --list",
            "fedrelay reproduce 1 2 --scale smoke",
            "fedrelay reproduce --dry-run",
            "fedrelay reproduce --write docs",
        )
    )(reproduce)


def reproduce(
    claims: Annotated[list[int] | None, typer.Argument(metavar="[CLAIM]…", help="their numbers; default all")] = None,
    scale: Annotated[
        str, typer.Option("--scale", help="smoke (minutes), small (hours) or full (the papers' own settings)")
    ] = "small",
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="how many; default as the claim says")] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=0, help="processes side by side; 0 = one per core")] = 0,
    device: Annotated[str | None, typer.Option("--device", help="where training runs, such as cuda")] = None,
    out: Annotated[Path, typer.Option("--out", help="folder for all runs; what is there goes on")] = Path(
        "reproduction"
    ),
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FOLDER", help="claims of your own; default those of FedRelay")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="show the claims and run nothing")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say how long it will take and run nothing")] = False,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="FOLDER",
            help=f"write {PAGE} with what was run at this scale or a larger one, and the short table into README.md "
            "beside FOLDER where it has a place for it; run nothing",
        ),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run what papers claim, on a scale of your choice, and say what holds."""
    from fedrelay.claims.claim import load_claims
    from fedrelay.claims.page import claims_table

    screen = CommandOutput(quiet=quiet, json=json)
    known = load_claims(source or _own_claims())
    chosen = known.chosen(claims or [])
    if listed:
        screen.show(claims_table(chosen))
        screen.emit({"claims": [claim.model_dump(mode="json") for claim in chosen]})
    elif write is not None:
        _write(screen, known, _scale(scale), out, write)
    else:
        _run(screen, known, [claim.claim for claim in chosen], _scale(scale), out, seeds, jobs, device, dry_run)


def _run(
    screen: CommandOutput,
    known: Claims,
    numbers: list[int],
    scale: Scale,
    out: Path,
    seeds: int | None,
    jobs: int,
    device: str | None,
    dry_run: bool,
) -> None:
    from fedrelay.claims.cases import build_cases
    from fedrelay.claims.estimate import estimate
    from fedrelay.claims.page import as_json, estimate_table, results_table
    from fedrelay.claims.record import entry_of, update_results
    from fedrelay.claims.running import jobs_of, run_jobs
    from fedrelay.claims.watching import watching_jobs
    from fedrelay.engines.local.engine import cores

    processes = jobs or cores()
    cases = build_cases(known, known.chosen(numbers), scale, out, seeds, device)
    todo = jobs_of(cases)
    with screen.listening():
        estimates = estimate(cases, todo)
        screen.show(estimate_table(estimates, processes))
        if dry_run:
            screen.emit({"seconds": {str(each.case.claim.claim): each.seconds for each in estimates}})
            return
        problems: dict[str, str] = {}
        try:
            with watching_jobs(screen.notes, sum(not job.done for job in todo)) as watcher:
                problems = run_jobs(todo, processes, watcher)
        except KeyboardInterrupt:
            raise Stopped("stopped; everything is saved, and the same command goes on from there") from None
        finally:
            entries = [entry_of(case, problems) for case in cases]
            update_results(out, scale, entries)
    screen.show("", results_table(known.by_number, entries), "", f"  all numbers  {out / scale / 'results.json'}")
    screen.emit(as_json(entries))


def _write(screen: CommandOutput, known: Claims, scale: Scale, out: Path, folder: Path) -> None:
    from fedrelay.claims.cases import build_case
    from fedrelay.claims.figures import draw_case
    from fedrelay.claims.page import reproduction_page
    from fedrelay.claims.record import NOT_RUN, best_results, judged_again
    from fedrelay.files import make_folder, write_atomically

    entries = {number: entry for number, entry in best_results(out, scale).items() if number in known.by_number}
    make_folder(folder / PICTURES)
    pictures: dict[int, str] = {}
    for number, entry in entries.items():
        if entry["verdict"] == NOT_RUN:
            continue
        case = build_case(known, known.by_number[number], entry["scale"], out, len(entry["seeds"]))
        entries[number] = judged_again(entry, case)
        name = f"{PICTURES}/{number:02}.png"
        if draw_case(case, folder / name):
            pictures[number] = name
    page = reproduction_page(known, entries, pictures)
    write_atomically(folder / PAGE, page.encode())
    front = _front_page(known, entries, folder)
    screen.show(f"{folder / PAGE}, {len(pictures)} pictures" + (f"; the table in {front}" if front else ""))
    screen.emit({"page": str(folder / PAGE), "pictures": sorted(pictures.values()), "front_page": front})


def _front_page(known: Claims, entries: Mapping[int, Entry], folder: Path) -> str | None:
    """Put the short table into README.md beside the folder, where it keeps a place for it."""
    from fedrelay.claims.page import has_headlines, headline_table, with_headlines
    from fedrelay.files import write_atomically

    path = folder.absolute().parent / "README.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if not has_headlines(text):
        return None
    table = headline_table(known, entries, f"{folder.absolute().name}/{PAGE}")
    try:
        write_atomically(path, with_headlines(text, table).encode())
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    return str(path)


def _own_claims() -> Path:
    """The claims that come with the package, or those of the source tree."""
    here = Path(__file__).resolve()
    packaged, checkout = here.parents[1] / "examples" / "claims", here.parents[3] / "examples" / "claims"
    return packaged if packaged.is_dir() else checkout


def _scale(name: str) -> Scale:
    from fedrelay.claims.claim import SCALES

    for scale in SCALES:
        if scale == name:
            return scale
    raise SpecError(f"--scale: {unknown('scale', name, SCALES)}")
