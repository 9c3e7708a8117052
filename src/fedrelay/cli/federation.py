"""A real federation: `fedrelay certificates`, `key`, `superlink`, `node` and `nodes`."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from fedrelay.cli.output import CommandOutput
from fedrelay.cli.settings import Json, Quiet, examples
from fedrelay.engines.flower import check_installed
from fedrelay.errors import EngineError, FedRelayError, SpecError
from fedrelay.experiment.spec import EngineSettings, validate

ServerFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="the server's folder")]
Address = Annotated[str, typer.Option("--superlink", metavar="HOST:PORT", help="where the SuperLink listens")]
HERE = "127.0.0.1:9092"


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(
        epilog=examples(
            "fedrelay certificates server --host relay.example.org --host 10.0.0.5",
            "fedrelay certificates server --renew",
        )
    )(certificates)
    app.command(epilog=examples("fedrelay key hospital-a.key"))(key)
    app.command(epilog=examples("fedrelay superlink server --host 0.0.0.0 --port 9092"))(superlink)
    app.command(
        epilog=examples(
            "fedrelay node --data patients.npz --key a.key --ca ca.pem --superlink relay.example:9092 --hold-out 0.2",
            "fedrelay node --data mydata:load --key b.key --ca ca.pem --share-histogram",
        )
    )(node)
    app.command(epilog=examples("fedrelay nodes server --superlink 127.0.0.1:9092"))(nodes)


def certificates(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="where to put them; files are never replaced")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", metavar="NAME", help="a name or address of the server; repeatable; localhost is added"),
    ] = None,
    renewed: Annotated[
        bool,
        typer.Option("--renew", help="give the server of an existing folder a new certificate, good for another year"),
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Make a certificate authority for development, the server's certificate and its secret."""
    check_installed()
    from fedrelay.engines.flower.identity import CA, NODES, SERVER, make_server_folder, renew

    screen = CommandOutput(quiet=quiet)
    if renewed:
        end = renew(folder, host or [])
        screen.show(f"{folder / SERVER} is new, and valid until {end:%Y-%m-%d}. Nodes keep what they have.")
        screen.show("Start the SuperLink anew, and whatever else shows this certificate.")
        return
    hosts = list(dict.fromkeys([*(host or []), "localhost", "127.0.0.1"]))
    make_server_folder(folder, hosts)
    screen.show(f"Made {folder} for {', '.join(hosts)}. Everything private in it is readable by you alone.")
    screen.show(f"Give {folder / CA} to every node, and put the nodes' public keys into {folder / NODES}.")


def key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="the private key; FILE.pub will be the public one")],
    quiet: Quiet = False,
) -> None:
    """Make the key by which the server knows a node."""
    check_installed()
    from fedrelay.engines.flower.identity import make_node_key

    public = make_node_key(file)
    screen = CommandOutput(quiet=quiet)
    screen.show(f"{file} is private and stays here. Send {public} to whoever runs the server,")
    screen.show("who puts it into the folder 'nodes' as NAME.pub: NAME is what this node is called from then on.")


def superlink(
    folder: ServerFolder,
    host: Annotated[str, typer.Option("--host", help="address to listen on; 0.0.0.0 = all")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="port to listen on")] = 9092,
    database: Annotated[
        Path | None,
        typer.Option(
            "--database", metavar="FILE", help="keep messages on disk; slower, and not needed to resume a run"
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Run Flower's SuperLink with TLS; nodes whose keys are in the folder are let in, also later."""
    check_installed()
    from fedrelay.engines.flower.identity import SERVER, ends_soon
    from fedrelay.engines.flower.superlink import SuperLink

    screen = CommandOutput(quiet=quiet)
    with screen.listening(), _until_stopped() as over, SuperLink(folder, host, port, database) as running:
        log = folder / "superlink.log"
        screen.note(f"The SuperLink listens on {running.address}; its log is {log}. Ctrl-C ends it.")
        changes, wrong = running.register(), ""
        if ending := ends_soon(folder / SERVER):
            screen.note(f"note: {ending}; fedrelay certificates {folder} --renew", "yellow")
        while True:
            for line in changes:
                screen.note(line)
            if over.wait(2.0):
                break
            if running.ended() is not None:
                raise EngineError(f"the SuperLink has ended with code {running.ended()}; see {log}")
            try:
                changes, wrong = running.register(), ""
            except FedRelayError as error:  # such as a key that is just being copied: those who are in stay
                changes, wrong = [str(error)] if str(error) != wrong else [], str(error)


def node(
    data: Annotated[
        str, typer.Option("--data", metavar="FILE|MODULE:FUNCTION", help="samples: .npz (x, y), .csv, or your function")
    ],
    key: Annotated[Path, typer.Option("--key", help="the private key of this node")],
    ca: Annotated[
        Path, typer.Option("--ca", help="the certificate of the authority that the server's is checked with")
    ],
    superlink: Address = HERE,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="where the node keeps what it must not lose; default: KEY.node")
    ] = None,
    label: Annotated[str | None, typer.Option("--label", help=".csv: the column of labels; default: the last")] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help=".csv: there is no line of names; columns are called 1, 2, …")
    ] = False,
    classes: Annotated[
        int | None,
        typer.Option("--classes", min=1, help="classes, if more than the highest label here needs"),
    ] = None,
    hold_out: Annotated[
        float, typer.Option("--hold-out", min=0.0, max=0.9, help="share of the samples kept apart to judge models")
    ] = 0.0,
    share_histogram: Annotated[
        bool,
        typer.Option(
            "--share-histogram/--no-share-histogram", help="tell the server how many samples of each class there are"
        ),
    ] = False,
    model: Annotated[
        str | None, typer.Option("--model", metavar="MODULE:FUNCTION", help="a model of your own, if the run uses one")
    ] = None,
    device: Annotated[str, typer.Option("--device", help="where training runs: cpu, cuda, cuda:1, mps")] = "cpu",
    patience: Annotated[
        float, typer.Option("--patience", min=0.0, help="seconds without a SuperLink after which the node gives up")
    ] = 3600.0,
    keep_states: Annotated[
        int,
        typer.Option(
            "--keep-states", min=1, metavar="DAYS", help="forget what belongs to runs not heard of for so long"
        ),
    ] = 30,
    largest_message: Annotated[
        str, typer.Option("--largest-message", metavar="SIZE", help="refuse larger ones: 500 MB, 2 GB")
    ] = "2 GB",
    require_dp: Annotated[
        float | None,
        typer.Option("--require-dp", metavar="NOISE", help="refuse turns with less noise than this (terms.dp.noise)"),
    ] = None,
    require_clip: Annotated[
        float | None,
        typer.Option("--require-clip", metavar="NORM", help="with --require-dp: refuse a greater terms.dp.clip"),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option("--budget", metavar="EPSILON", help="with --require-dp: refuse all turns once this ε is spent"),
    ] = None,
    delta: Annotated[float, typer.Option("--delta", help="with --budget: the δ that belongs to ε")] = 1e-5,
    quiet: Quiet = False,
) -> None:
    """Hold samples and train on them when asked; they never leave this process."""
    check_installed()
    from torch import nn

    from fedrelay.data.own_samples import held, read_samples
    from fedrelay.engines.flower.identity import authority, private_key
    from fedrelay.engines.flower.node.owner_policy import OwnerPolicy, PrivacyBudget
    from fedrelay.engines.flower.node.process import serve
    from fedrelay.engines.flower.node.service import NodeService
    from fedrelay.local.compatibility import check_device
    from fedrelay.user_code import call_function, import_from_current_folder

    screen = CommandOutput(quiet=quiet)
    largest = _bytes("--largest-message", largest_message)
    validate(EngineSettings, {"name": "flower", "superlink": superlink}, "--")
    authority(ca)  # before samples are read, which may take long
    private_key(key)
    _check_alone(require_dp, {"--require-clip": require_clip, "--budget": budget}, hold_out, share_histogram)
    floor = None if require_dp is None else OwnerPolicy(require_dp, require_clip)
    check_device(device)
    import_from_current_folder()
    own = call_function(model) if model is not None else None
    if model is not None and not isinstance(own, nn.Module):
        raise SpecError(f"--model {model}: must give an nn.Module, got {type(own).__name__}")
    holding = held(read_samples(data, label, header=not no_header), hold_out=hold_out, classes=classes)
    place = folder or key.with_name(f"{key.name}.node")
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    allowance = PrivacyBudget(place, floor, budget, delta) if floor is not None and budget is not None else None
    service = NodeService(
        holding,
        place,
        module=own,
        device=device,
        share_histogram=share_histogram,
        floor=floor,
        budget=allowance,
        keep_states=keep_states,
        largest_model=largest,
    )
    told = "told" if share_histogram else "not told"
    screen.note(
        f"{holding.size(0):,} samples to train on, {service.facts()['tests']:,} to judge with; "
        f"how many of each class is {told}. Ctrl-C ends this node."
    )
    if floor is not None:
        versions = f"; {allowance.left:,} turns are left" if allowance is not None else ""
        screen.note(f"Nothing but models with noise of at least {floor.noise:g} leaves this node{versions}.")
    with screen.listening(), _until_stopped() as over:
        serve(service, superlink, ca, key, place, over=over, patience=patience, say=screen.note, largest=largest)


def nodes(
    folder: ServerFolder,
    superlink: Address = HERE,
    wait: Annotated[float, typer.Option("--wait", min=0.0, help="seconds to wait for answers")] = 10.0,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Show which nodes are there and what they hold."""
    check_installed()
    from fedrelay.engines.flower.server.node_warnings import node_warnings
    from fedrelay.engines.flower.server.roster import take_roster
    from fedrelay.report.terminal.catalogue import node_list

    screen = CommandOutput(quiet=quiet, json=json)
    wanted = validate(EngineSettings, {"name": "flower", "superlink": superlink, "folder": folder, "wait": wait}, "--")
    with screen.listening():
        found = take_roster(wanted)
    facts = {member.name: member.facts for member in found if member.facts is not None}
    odd = list(node_warnings(facts))
    screen.show(node_list(found))
    for line in odd:
        screen.note(f"note: {line}", "yellow")
    screen.emit({"nodes": [member.facts_and_presence() for member in found], "remarks": odd})


def _check_alone(
    noise: float | None, belonging: Mapping[str, float | None], hold_out: float, share_histogram: bool
) -> None:
    """See that options that belong to a floor have one, and that nothing contradicts it."""
    for option, value in belonging.items():
        if noise is None and value is not None:
            raise SpecError(f"{option}: belongs to --require-dp")
    for option, wanted in {"--hold-out": bool(hold_out), "--share-histogram": share_histogram}.items():
        if noise is not None and wanted:
            raise SpecError(f"{option}: tells of samples without noise, which --require-dp forbids; take one of them")


def _bytes(option: str, words: str) -> int:
    """`2 GB` as a number of bytes."""
    found = re.fullmatch(r"\s*(\d{1,6}(?:\.\d{1,6})?)\s*(kB|KB|MB|GB)\s*", words)
    if found is None or not (size := int(float(found[1]) * {"K": 10**3, "M": 10**6, "G": 10**9}[found[2][0].upper()])):
        raise SpecError(f"{option}: a size is a number and a unit, such as 500 MB or 2 GB; got {words!r}")
    return size


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set; pressed twice it ends at once."""
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
