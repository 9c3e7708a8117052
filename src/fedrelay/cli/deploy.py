"""Commands for a real federation: `fedrelay certificates`, `key`, `roster`, `superlink`, `node` and `nodes`."""

from __future__ import annotations

import math
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from typer import Argument, Option

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Json, Quiet, examples
from fedrelay.engines.flower import check_installed
from fedrelay.errors import EngineError, FedRelayError, SpecError
from fedrelay.experiment.spec import EngineSettings, TableSettings, validate
from fedrelay.files import make_folder
from fedrelay.utc_time import utc_now

ServerFolder = Annotated[Path, Argument(metavar="FOLDER", help="the server's folder")]
Address = Annotated[str, Option("--superlink", metavar="HOST:PORT", help="address of the SuperLink")]
DEFAULT_ADDRESS = "127.0.0.1:9092"

app = typer.Typer()


@app.command(
    epilog=examples(
        "fedrelay certificates server --host relay.example.org --host 10.0.0.5", "fedrelay certificates server --renew"
    )
)
def certificates(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="folder to create; existing files are never replaced")],
    host: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="host name or address of the server; repeatable; localhost is added"),
    ] = None,
    renew: Annotated[
        bool, Option("--renew", help="renew the server's certificate in an existing folder for another year")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Create a certificate authority for development, the server's certificate and its secret."""
    check_installed()
    from fedrelay.engines.flower.credentials import CA, NODES, REQUESTS, SERVER, make_server_folder, renew_certificate

    output = CommandOutput(quiet=quiet)
    if renew:
        end = renew_certificate(folder, host or [])
        output.print(f"Renewed {folder / SERVER} and {REQUESTS}, valid until {end:%Y-%m-%d}. Nodes need no change.")
        output.print("Restart the SuperLink, and any proxy that uses this certificate.")
        return
    hosts = list(dict.fromkeys([*(host or []), "localhost", "127.0.0.1"]))
    make_server_folder(folder, hosts)
    output.print(f"Created {folder} for {', '.join(hosts)}. Only you can read its private files.")
    output.print(f"Give {folder / CA} to every node, and put the nodes' public keys into {folder / NODES}.")


@app.command(epilog=examples("fedrelay key hospital-a.key"))
def key(
    file: Annotated[Path, Argument(metavar="FILE", help="private key to create; FILE.pub is the public one")],
    quiet: Quiet = False,
) -> None:
    """Create the key that identifies a node."""
    check_installed()
    from fedrelay.engines.flower.credentials import make_node_key

    public = make_node_key(file)
    output = CommandOutput(quiet=quiet)
    output.print(f"{file} is private: keep it here. Send {public} to the operator of the server,")
    output.print("who puts it into the folder 'nodes' as NAME.pub. NAME is then the name of this node.")


@app.command(epilog=examples("fedrelay roster server roster.yaml"))
def roster(
    folder: ServerFolder,
    file: Annotated[Path, Argument(metavar="FILE", help="roster to create; an existing file is never replaced")],
    quiet: Quiet = False,
) -> None:
    """Write the roster of a federation: the names and keys of all nodes, and the agreed numbers."""
    check_installed()
    from fedrelay.engines.flower.credentials import NODES, public_keys
    from fedrelay.engines.flower.roster import keys_digest, read_roster_file, roster_with_keys

    keys = public_keys(folder)
    if not keys:
        raise SpecError(f"{folder / NODES}: has no keys; put the nodes' public keys there, as NAME.pub")
    text = roster_with_keys(read_roster_file(folder, tuple(keys)), keys)
    try:
        with file.open("x", encoding="utf-8", newline="\n") as new:
            new.write(text)
    except OSError as error:
        raise SpecError(f"{file}: cannot be created ({error.strerror})") from None
    output = CommandOutput(quiet=quiet)
    output.print(f"Created {file} with the keys of {', '.join(keys)}. SHA-256 of names and keys:")
    output.print(keys_digest(keys))
    output.print("Give the file to every owner. Owners compare this number with each other, not with you alone,")
    output.print(f"and start their nodes with --roster {file.name}.")


@app.command(epilog=examples("fedrelay superlink server --host 0.0.0.0 --port 9092"))
def superlink(
    folder: ServerFolder,
    host: Annotated[str, Option(help="address to listen on; 0.0.0.0: all")] = "127.0.0.1",
    port: Annotated[int, Option(min=1, max=65535, help="port to listen on")] = 9092,
    database: Annotated[
        Path | None, Option(metavar="FILE", help="store messages on disk; slower, and not needed to resume a run")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run Flower's SuperLink with TLS. Nodes whose keys are in the folder are admitted, also keys added later."""
    check_installed()
    from fedrelay.engines.flower.credentials import SERVER, ends_soon
    from fedrelay.engines.flower.superlink import LOG, SuperLink

    output = CommandOutput(quiet=quiet)
    with output.showing_warnings(), _until_stopped() as over, SuperLink(folder, host, port, database) as running:
        output.note(f"The SuperLink listens on {running.address}; its log is {folder / LOG}. Stop it with Ctrl-C.")
        changes, shown = running.register(), ""
        if ending := ends_soon(folder / SERVER):
            output.note(f"note: {ending}; fedrelay certificates {folder} --renew", "yellow")
        while True:
            for line in changes:
                output.note(line)
            if over.wait(2.0):
                break
            if running.ended() is not None:
                raise EngineError(f"the SuperLink has ended with code {running.ended()}; see {folder / LOG}")
            try:
                changes, shown = running.register(), ""
            except FedRelayError as error:  # such as a key that is just being copied; admitted nodes stay
                changes, shown = [str(error)] if str(error) != shown else [], str(error)


@app.command(
    epilog=examples(
        "fedrelay node --data patients.npz --key a.key --ca ca.pem --superlink relay.example:9092 --holdout 0.2",
        "fedrelay node --data mydata:load --key b.key --ca ca.pem --share-histogram",
        "fedrelay node --data patients.csv --target ill --drop patient --key c.key --ca ca.pem",
        "fedrelay node --data flats.parquet --target rent --categorical area --task regression --key d.key --ca ca.pem",
    )
)
def node(
    data: Annotated[
        str,
        Option(
            metavar="FILE|MODULE:FUNCTION",
            help="samples: .npz (x, y), a table (.csv, .parquet), or a function of yours",
        ),
    ],
    key: Annotated[Path, Option(help="private key of this node")],
    ca: Annotated[Path, Option(help="certificate of the authority that signed the server's")],
    superlink: Address = DEFAULT_ADDRESS,
    folder: Annotated[
        Path | None, Option(help="where the node keeps client state and its budget; default: KEY.node")
    ] = None,
    target: Annotated[
        str | None,
        Option(metavar="COLUMN", help="table: the column to predict; the node shares sums of the other columns"),
    ] = None,
    categorical: Annotated[
        list[str] | None, Option(metavar="COLUMN", help="table: a column of numbers that are categories; repeatable")
    ] = None,
    drop: Annotated[list[str] | None, Option(metavar="COLUMN", help="table: a column to leave out; repeatable")] = None,
    task: Annotated[
        str | None, Option(help="table: classification, binary or regression; default: follows from the target")
    ] = None,
    min_rows: Annotated[
        int | None, Option(min=1, help="table: refuse to share sums of fewer rows or numbers; default: 10")
    ] = None,
    classes: Annotated[
        int | None, Option(min=1, help="no table: number of classes, if higher labels exist elsewhere")
    ] = None,
    holdout: Annotated[float, Option(min=0.0, max=0.9, help="share of the samples kept to evaluate models")] = 0.0,
    validation: Annotated[
        float, Option(min=0.0, max=0.9, help="share of the train samples kept to choose the best model and to stop")
    ] = 0.0,
    min_evaluated: Annotated[
        int, Option(min=1, help="evaluate models only on at least this many samples; no scores of fewer leave the node")
    ] = 1,
    share_histogram: Annotated[
        bool, Option(help="share with the server how many samples of each class there are")
    ] = False,
    histogram_epsilon: Annotated[
        float | None,
        Option(
            metavar="EPSILON",
            help="with --share-histogram: add noise to these numbers, so that the class of one sample is private with "
            "this ε",
        ),
    ] = None,
    share_evaluation: Annotated[
        bool, Option(help="with --roster: let the server have any model evaluated on samples that are held out")
    ] = False,
    model: Annotated[
        str | None, Option(metavar="MODULE:FUNCTION", help="model of your own, if the run uses one")
    ] = None,
    plugin: Annotated[
        list[str] | None, Option(metavar="MODULE", help="allow runs to use this plug-in module; repeatable")
    ] = None,
    device: Annotated[str, Option(help="where training runs: cpu, cuda, cuda:1")] = "cpu",
    checkpoint_every: Annotated[
        str,
        Option(
            metavar="1epoch|10min|auto|off",
            help="save a hop while it is trained, so that a node that dies goes on where it was; auto: at ends of "
            "epochs at least 30 s apart, and every 10 minutes",
        ),
    ] = "auto",
    patience: Annotated[float, Option(min=0.0, help="seconds without a SuperLink after which the node stops")] = 3600.0,
    keep_states: Annotated[
        int, Option(min=1, metavar="DAYS", help="remove client state of runs that did not continue for this many days")
    ] = 30,
    largest_message: Annotated[str, Option(metavar="SIZE", help="refuse larger messages, e.g. 500 MB")] = "2 GB",
    roster: Annotated[
        Path | None,
        Option(metavar="FILE", help="names and keys of all nodes; this node then takes part in sealed routes only"),
    ] = None,
    require_dp: Annotated[
        float | None, Option(metavar="NOISE", help="decline hops with less noise than this (terms.dp.noise)")
    ] = None,
    require_clip: Annotated[
        float | None, Option(metavar="NORM", help="with --require-dp: decline a greater terms.dp.clip")
    ] = None,
    budget: Annotated[
        float | None, Option(metavar="EPSILON", help="with --require-dp: decline all hops once this ε is spent")
    ] = None,
    delta: Annotated[float, Option(help="with --budget: δ of the budget")] = 1e-5,
    quiet: Quiet = False,
) -> None:
    """Hold samples and train on them on request. The samples never leave this process."""
    check_installed()
    from torch import nn

    from fedrelay.data.node_samples import open_owner_data
    from fedrelay.data.noisy_counts import MIN_EPSILON
    from fedrelay.data.table_column_reader import is_table_file
    from fedrelay.engines.flower.credentials import authority, private_key
    from fedrelay.engines.flower.node.hop_checkpoints import CheckpointRule
    from fedrelay.engines.flower.node.node_table import MIN_ROWS, NodeTable
    from fedrelay.engines.flower.node.noisy_histogram import epsilons_of_draws
    from fedrelay.engines.flower.node.owner_privacy_policy import OwnerPrivacyPolicy, PrivacyBudget
    from fedrelay.engines.flower.node.serve_loop import serve
    from fedrelay.engines.flower.node.service import NodeService
    from fedrelay.engines.flower.request_signatures import RequestVerifier
    from fedrelay.engines.flower.roster import keys_digest, name_in_roster, pinned_keys
    from fedrelay.engines.flower.sealing import NodeIdentity
    from fedrelay.engines.flower.wire.node_side_connection import NodeSideConnection
    from fedrelay.experiment.method_catalogue import load_plugins
    from fedrelay.local.model_checks import check_device
    from fedrelay.user_code import call_function, import_from_current_folder

    output = CommandOutput(quiet=quiet)
    largest, checkpoints = _bytes("--largest-message", largest_message), CheckpointRule.parse(checkpoint_every)
    validate(EngineSettings, {"name": "flower", "superlink": superlink}, "--")
    revealing = {"--holdout": holdout, "--validation": validation, "--share-histogram": share_histogram}
    has_table = is_table_file(Path(data))
    if has_table:
        _refuse({"--classes": classes}, "has no effect with a table, whose labels are its classes; remove it")
    else:
        columns_of_tables = {"--target": target is not None, "--categorical": categorical, "--drop": drop}
        of_tables = {**columns_of_tables, "--task": task is not None, "--min-rows": min_rows}
        _refuse(of_tables, "has an effect only with a table, a .csv or .parquet file; remove it")
    if histogram_epsilon is not None:
        _refuse({"--histogram-epsilon": not share_histogram}, "needs --share-histogram")
        _refuse({"--histogram-epsilon": has_table}, "has no effect on a table, which shares its labels without noise")
        by_label = {"--holdout": holdout, "--validation": validation}
        _refuse(by_label, "sets samples aside by their labels, which --histogram-epsilon does not cover; remove one")
        _refuse({"--histogram-epsilon": classes is None}, "needs --classes: the highest label would show")
        if not MIN_EPSILON <= histogram_epsilon < math.inf:
            raise SpecError(f"--histogram-epsilon: must be at least {MIN_EPSILON:g}, got {histogram_epsilon:g}")
    trusted, secret = authority(ca), private_key(key)  # before samples are read, which may take long
    pinned = pinned_keys(roster) if roster is not None else {}
    if roster is not None:
        output.note(
            f"This node is {name_in_roster(pinned, secret.public_key(), roster)!r} of {len(pinned)} nodes in {roster}. "
            f"It takes part in sealed routes only. SHA-256 of names and keys: {keys_digest(pinned)}"
        )
    if roster is None:
        _refuse({"--share-evaluation": share_evaluation}, "has an effect only with --roster; remove it")
    elif not share_evaluation:
        held_out = {"--holdout": holdout, "--validation": validation}
        _refuse(
            held_out, "with --roster, needs --share-evaluation: the server could evaluate any model on these samples"
        )
    if require_dp is None:
        _refuse({"--require-clip": require_clip is not None, "--budget": budget is not None}, "needs --require-dp")
    else:
        of_table = "shares sums of its columns without noise, which --require-dp excludes; serve encoded rows as .npz"
        _refuse({f"--data {data}": has_table}, of_table)
        _refuse(revealing, "reveals something about samples that --require-dp does not cover; remove one")
    policy = None if require_dp is None else OwnerPrivacyPolicy(require_dp, require_clip)
    if not 0 <= validation < 1:  # such as nan
        raise SpecError(f"--validation: must be at least 0 and less than 1, got {validation:g}")
    check_device(device)
    import_from_current_folder()
    load_plugins(plugin or ())
    own = call_function(model) if model is not None else None
    if model is not None and not isinstance(own, nn.Module):
        raise SpecError(f"--model {model}: must return an nn.Module, got {type(own).__name__}")
    table = None
    if not has_table:
        samples = open_owner_data(data, hold_out=holdout, classes=classes)
    else:
        columns = TableSettings(target=target, categorical=tuple(categorical or ()), drop=tuple(drop or ()))
        least = MIN_ROWS if min_rows is None else min_rows
        table = NodeTable.read(Path(data), columns, hold_out=holdout, task=task, min_rows=least)
        samples = table.encoded_by_itself()
    place = folder or key.with_name(f"{key.name}.node")
    make_folder(place, mode=0o700)
    left = PrivacyBudget(place, policy, budget, delta) if policy is not None and budget is not None else None
    service = NodeService(
        samples,
        place,
        table=table,
        module=own,
        device=device,
        validation=validation,
        share_histogram=share_histogram,
        histogram_epsilon=histogram_epsilon,
        share_evaluation=share_evaluation,
        min_evaluated=min_evaluated,
        policy=policy,
        budget=left,
        keep_days=keep_states,
        largest_model=largest,
        plugins=tuple(plugin or ()),
        identity=NodeIdentity.load(secret, place),
        requests=RequestVerifier(trusted, secret.public_key()),
        checkpoints=checkpoints,
        say=lambda text: output.note(f"{utc_now()} {text}"),
        roster=pinned,
    )
    noise = "" if histogram_epsilon is None else f" with noise (ε {histogram_epsilon:g})"
    shared = f"shared{noise}" if share_histogram else "not shared"
    facts = service.facts()
    choosing = f", {facts.validations:,} for validation" if facts.validations else ""
    output.note(
        f"{facts.samples:,} samples to train on, {facts.tests:,} held out{choosing}; "
        f"class counts of train samples are {shared}. Stop this node with Ctrl-C."
    )
    if histogram_epsilon is not None and len(spent := epsilons_of_draws(place)) > 1:
        output.note(f"Noisy class counts were drawn {len(spent)} times here; their ε add up to {sum(spent):g}.")
    if 0 < samples.test.size < min_evaluated:
        kept = f"{samples.test.size:,} held-out samples are fewer than --min-evaluated"
        output.note(f"Models are not evaluated here: {kept}.")
    if facts.tests or facts.validations:
        output.note(
            "The server can have any model evaluated on samples that are held out or for validation, and learns from "
            "that how many of them have each label; for binary labels, the output for every single one."
        )
    if table is not None:
        output.note("The server receives sums over the columns of the table, its categories and its labels.")
    if policy is not None:
        hops = f"; {left.left:,} hops are left" if left is not None else ""
        output.note(f"Only models with noise of at least {policy.noise:g} leave this node{hops}.")
    with output.showing_warnings(), _until_stopped() as over:
        client = NodeSideConnection(superlink, trusted, secret, place / "node-id", largest)
        service.on_step = client.show_progress
        serve(client, service, superlink, ca, place, over=over, patience=patience, say=output.note)


@app.command(epilog=examples("fedrelay nodes server --superlink 127.0.0.1:9092"))
def nodes(
    folder: ServerFolder,
    superlink: Address = DEFAULT_ADDRESS,
    wait: Annotated[float, Option(min=0.0, help="seconds to wait for replies")] = 10.0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show which nodes are online and what they hold."""
    check_installed()
    from fedrelay.engines.flower.connect import show_nodes, table_remarks
    from fedrelay.report.terminal.listings import node_list

    output = CommandOutput(quiet=quiet, json=json)
    settings = validate(
        EngineSettings, {"name": "flower", "superlink": superlink, "folder": folder, "wait": wait}, "--"
    )
    with output.showing_warnings():
        listed = show_nodes(settings)
        warnings = [*(str(remark) for node in listed for remark in node.remarks), *table_remarks(listed)]
    output.print(node_list(listed))
    for line in warnings:
        output.note(f"note: {line}", "yellow")
    output.print_json({"nodes": [node.to_json() for node in listed], "warnings": warnings})


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Refuse the first of these options that is set."""
    for option, value in options.items():
        if value:
            raise SpecError(f"{option}: {why}")


def _bytes(option: str, words: str) -> int:
    """`2 GB` as a number of bytes."""
    found = re.fullmatch(r"\s*(\d{1,6}(?:\.\d{1,6})?)\s*(kB|KB|MB|GB)\s*", words)
    if found is None or not (size := int(float(found[1]) * {"K": 10**3, "M": 10**6, "G": 10**9}[found[2][0].upper()])):
        raise SpecError(f"{option}: expects a number and a unit, such as 500 MB or 2 GB; got {words!r}")
    return size


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; the second Ctrl-C ends the process at once."""
    over = threading.Event()

    def stop(signum: int, frame: FrameType | None) -> None:
        if over.is_set():
            raise KeyboardInterrupt
        over.set()

    before = {each: signal.signal(each, stop) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield over
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
