"""`fedrelay audit`: verify and print who trained what, when, in a real federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Json, Quiet, examples
from fedrelay.engines.flower import check_installed
from fedrelay.errors import RunFolderError

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedrelay audit runs/hospitals",
        "fedrelay audit runs/hospitals --roster roster.yaml --ca ca.pem",
        "fedrelay audit runs/hospitals --journal a.key.node/audit/0123456789abcdef.jsonl",
    )
)
def audit(
    folder: Annotated[Path, Argument(metavar="RUN", help="the folder of a run with engine 'flower'")],
    roster: Annotated[
        Path | None, Option(metavar="FILE", help="names and keys of all nodes; default: those in the server's folder")
    ] = None,
    ca: Annotated[
        Path | None, Option(metavar="FILE", help="certificate of the server's authority; default: as for --roster")
    ] = None,
    journal: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="a node's own copy, KEY.node/audit/….jsonl: all of it must be there; repeatable"),
    ] = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Verify the audit trail of a run and print it.

    Exits with 0 if it is whole, and otherwise with 4 and the line that was changed, removed or moved, or whose key is
    not that of the roster.
    """
    check_installed()
    from fedrelay.engines.flower.audit_entries import AUDIT_FILE
    from fedrelay.engines.flower.audit_verification import TrustedKeys, verify_audit
    from fedrelay.engines.flower.credentials import CA, authority, public_keys
    from fedrelay.engines.flower.roster import pinned_keys
    from fedrelay.report.terminal.audit_table import audit_table
    from fedrelay.runtime.run_folder_reader import RunFolderReader

    output, run = CommandOutput(quiet=quiet, json=json), RunFolderReader.open(folder)
    path, server = folder / AUDIT_FILE, run.experiment.engine.folder
    if not path.exists():
        why = "its clients are simulated" if not run.experiment.data_at_nodes else "an earlier version wrote it"
        raise RunFolderError(f"{folder}: has no audit trail, because {why}")
    known = server is not None and server.is_dir()
    keys = pinned_keys(roster) if roster is not None else public_keys(server) if known and server is not None else {}
    trusted = ca if ca is not None else server / CA if known and server is not None else None
    known_keys = TrustedKeys(keys, None if trusted is None else authority(trusted))
    report = verify_audit(path, known_keys, run.name, journal or ())
    output.print_rows(audit_table(report.rows))
    for remark in report.remarks:
        output.note(f"note: {remark}", "yellow")
    output.print_json(
        {
            "whole": report.whole,
            "problem": report.problem or None,
            "remarks": report.remarks,
            "head": report.head,
            "nodes": {name: {"entries": n, "last_sha256": last} for name, (n, last) in report.nodes.items()},
            "lines": report.rows,
        }
    )
    if not report.whole:
        raise RunFolderError(f"{path}, {report.problem}")
    entries = ", ".join(f"{name} {count} (the last is {last[:16]})" for name, (count, last) in report.nodes.items())
    output.print(f"  The trail is whole: {len(report.rows)} lines, the last is {report.head[:16]}.")
    output.print(f"  Signed entries: {entries or 'none'}.")
