"""Starts the engine: connects to the SuperLink, registers nodes, and refuses experiments that cannot run on them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import get_args

import torch

from fedrelay.data.federation import Federation
from fedrelay.data.node_samples import open_test_samples
from fedrelay.data.samples import Samples
from fedrelay.data.table import table_of
from fedrelay.data.table_column_reader import is_table_file, read_table_columns
from fedrelay.data.table_federation import SharedEncoding, TableFederation, encode_rows
from fedrelay.engines.base import Engine, RouteRequirements
from fedrelay.engines.flower import check_installed
from fedrelay.engines.flower.audit_entries import AUDIT_FILE, SERVER_PURPOSE
from fedrelay.engines.flower.engine import FlowerEngine
from fedrelay.engines.flower.job_description import describe_task
from fedrelay.engines.flower.messages import can_send
from fedrelay.engines.flower.node_facts import NodeFacts
from fedrelay.engines.flower.server.audit_trail import AuditTrail
from fedrelay.engines.flower.server.claims import Remark
from fedrelay.engines.flower.server.connection_interface import Connection
from fedrelay.engines.flower.server.dispatcher import Signatures
from fedrelay.engines.flower.server.node_registration import ListedNode, list_nodes, privacy_warnings, register_nodes
from fedrelay.engines.flower.server.remote_federation import RemoteFederation, only_public_above, remote_part
from fedrelay.engines.flower.server.table_encoding_agreement import agree_on_encoding
from fedrelay.errors import DataError, EngineError, FedRelayError, SpecError
from fedrelay.experiment.spec import DataSettings, EngineSettings, Experiment, TableSettings
from fedrelay.files import expand_home
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.local.trainer import TrainingJob
from fedrelay.routes.execution_overlay import Tampering

log = logging.getLogger(__name__)


def start_flower(job: TrainingJob, experiment: Experiment, client_states: ClientStateStore | None) -> Engine:
    """The engine, connected to the SuperLink."""
    settings = experiment.engine
    folder = server_folder(settings)
    connection = open_connection(settings)
    try:
        audit = open_audit(experiment, folder, client_states)
    except FedRelayError:
        connection.close()
        raise
    return FlowerEngine(
        job,
        connection,
        experiment.recovery,
        client_states,
        wait=settings.wait,
        signatures=server_signatures(folder),
        withdrawn=experiment.withdrawn,
        audit=audit,
    )


def open_audit(experiment: Experiment, folder: Path, client_states: ClientStateStore | None) -> AuditTrail | None:
    """The audit trail of a run with a folder, to go on with; None for a run that is not kept."""
    if experiment.out is None or client_states is None:
        return None
    from fedrelay.engines.flower.credentials import public_keys, public_text, requests_certificate, requests_key
    from fedrelay.engines.flower.reply_signatures import REPLY_PURPOSE
    from fedrelay.engines.flower.sealing import is_signed_by, sign

    key, keys = requests_key(folder), public_keys(folder)
    trail = AuditTrail(
        experiment.out / AUDIT_FILE,
        lambda content: sign(key, SERVER_PURPOSE, content),
        lambda node, entry: is_signed_by(keys[node], REPLY_PURPOSE, entry.digest.encode(), entry.signature),
    )
    texts = {name: public_text(each) for name, each in keys.items()}
    trail.start(client_states.run_id, requests_certificate(folder), texts)
    trail.withdraw(experiment.withdrawn)
    return trail


def open_connection(settings: EngineSettings) -> Connection:
    """A connection to the SuperLink, with a run of its own there."""
    check_installed()
    from fedrelay.engines.flower.credentials import CA, authority, public_keys, server_secret
    from fedrelay.engines.flower.wire.server_side_connection import ServerSideConnection

    folder = server_folder(settings)
    trusted, secret = authority(folder / CA), server_secret(folder)
    return ServerSideConnection(settings.superlink, trusted, secret, public_keys(folder), wait=settings.wait)


def open_remote(experiment: Experiment, plugins: Sequence[str] = ()) -> Federation:
    """Register all nodes whose keys are in the server's folder; each must allow the plug-ins."""
    settings = experiment.engine
    check_installed()
    from fedrelay.engines.flower.credentials import public_keys
    from fedrelay.engines.flower.sealing import check_certificates

    _check_data(experiment.data)
    folder = server_folder(settings)
    keys, left = public_keys(folder), experiment.withdrawn
    names = tuple(sorted({*keys, *left}))  # the key of a node that has left may be gone
    with closing(open_connection(settings)) as connection:
        registered = register_nodes(connection, names, folder, settings.wait, plugins, server_signatures(folder), left)
    check_certificates({name: each.sealing for name, each in registered.facts.items()}, keys)
    return remote_federation(experiment.data, registered.facts, settings.test, registered.remarks)


def remote_federation(
    data: DataSettings, facts: Mapping[str, NodeFacts], test: str | None, remarks: tuple[Remark, ...] = ()
) -> Federation:
    """The federation of registered nodes; if they have tables, with the encoding on which they agree.

    Args:
        data: The settings of the data.
        facts: Node → what it said about itself, in the order of their names.
        test: The test samples at the server, if it has any.
        remarks: What is unusual about these facts.

    Raises:
        DataError: The data of the nodes, or the test samples, do not fit each other.
    """
    agreed = agree_on_encoding(facts, data.table)
    if agreed is None:
        if data.table != TableSettings():
            raise SpecError(
                "data.table: has no effect, because the nodes serve no tables (fedrelay node --data FILE.csv)"
            )
        if test is not None and is_table_file(Path(test)):
            raise SpecError(
                f"engine.test: {test} is a table, but the nodes serve none; use an .npz file, or serve tables "
                "(fedrelay node --data FILE.csv --target COLUMN)"
            )
        classes = max(each.classes for each in facts.values()) if facts else 0
        samples = None if test is None else open_test_samples(test, classes or None)
        return RemoteFederation(data.name, tuple(facts), tuple(facts.values()), samples, remarks)
    encoded, shared = agreed
    target = next(each.table.target for each in facts.values() if each.table is not None)
    samples = None if test is None else _encoded_test(test, target, shared)
    remote = RemoteFederation(data.name, tuple(encoded), tuple(encoded.values()), samples, remarks)
    return TableFederation(remote, shared)


def _encoded_test(source: str, target: str, shared: SharedEncoding) -> Samples:
    """The rows of a table at the server, encoded as those of the nodes; all of them are for testing."""
    columns = read_table_columns(expand_home(Path(source)))
    task = "classification" if shared.labels else "regression"
    table = table_of(columns, TableSettings(target=target), source, task, for_testing=True).matching(shared.encoding)
    x, y = encode_rows(shared.encoding, table), table.encoded_targets(shared.labels)
    return Samples(torch.from_numpy(x), torch.from_numpy(y))


def show_nodes(settings: EngineSettings) -> list[ListedNode]:
    """All nodes whose keys are in the server's folder, and their state."""
    from fedrelay.engines.flower.credentials import CA, authority, public_keys, server_secret
    from fedrelay.engines.flower.wire.superlink_calls import last_seen

    folder = server_folder(settings)
    keys, connection = public_keys(folder), open_connection(settings)
    seen = last_seen(settings.superlink, authority(folder / CA), server_secret(folder), keys)
    return list_nodes(connection, tuple(keys), folder, max(1.0, settings.wait), seen, server_signatures(folder))


def table_remarks(nodes: Sequence[ListedNode]) -> list[str]:
    """Why a run would refuse the tables of these nodes; nothing if they fit each other, or a node is not known yet."""
    facts = {node.name: node.facts for node in nodes if node.facts is not None}
    if len(facts) < len(nodes):
        return []
    try:
        agree_on_encoding(facts, TableSettings())
    except DataError as error:
        return [f"a run would refuse these tables: {error}"]
    return []


def server_signatures(folder: Path) -> Signatures:
    """How the server signs requests and checks replies, with the keys in its folder."""
    from fedrelay.engines.flower.credentials import public_keys, requests_certificate, requests_key
    from fedrelay.engines.flower.reply_signatures import ReplyVerifier
    from fedrelay.engines.flower.request_signatures import RequestSigner

    keys = public_keys(folder)
    signer = RequestSigner(requests_key(folder), requests_certificate(folder), keys)
    return Signatures(ReplyVerifier(keys).check, signer)


def server_folder(settings: EngineSettings) -> Path:
    """The server's folder, with certificates and the nodes' keys."""
    if settings.folder is None:
        raise SpecError(
            "engine.folder: is required with engine 'flower'; create one with: fedrelay certificates FOLDER"
        )
    folder = settings.folder.expanduser()
    if not folder.is_dir():
        raise SpecError(f"engine.folder: no such folder: {folder}; create it with: fedrelay certificates {folder}")
    return folder


def check_flower(job: TrainingJob, experiment: Experiment, routes: Sequence[RouteRequirements] = ()) -> None:
    """Refuse an experiment that needs samples at the server, or that only makes sense in a simulation."""
    federation = remote_part(job.federation)
    if federation is None:
        raise EngineError("engine.name: 'flower' works on the nodes' data, not on data of your own in Python")
    if not only_public_above(job.federation):
        raise EngineError(
            f"method {experiment.method!r}: needs the samples of several clients in one place; with engine 'flower' "
            "they stay at the nodes"
        )
    for setting in filter(None, (each.setting_that_needs_client_samples_at_server for each in routes)):
        raise SpecError(
            f"{setting} needs all clients' samples at the server; with engine 'flower' they stay at the nodes"
        )
    if any(each.depends_on_arrival_times for each in routes):
        _check_asynchronous(job, experiment)
    if any(each.is_sealed for each in routes):
        _check_sealed(federation, routes, experiment)
    else:
        _check_open(federation, experiment)
    if experiment.eval.forgetting:
        raise SpecError(
            "eval.forgetting: evaluates models on other clients' samples; with engine 'flower' they stay at the nodes"
        )
    if experiment.attack.name != "none":
        raise SpecError("attack.name: attacks are simulated; engine 'flower' works with the nodes' real data")
    if experiment.recovery.policy not in ("skip", "retry"):
        policy = experiment.recovery.policy
        raise SpecError(f"recovery.policy: {policy!r} is for simulated faults; engine 'flower' has skip and retry")
    if not can_send(job.layout):
        raise SpecError(f"model: weights of type {job.layout.dtype} cannot be sent to nodes; use float32")
    describe_task(job)  # refuses a task that nodes cannot find
    if torch.device(experiment.train.device).type != "cpu":
        raise SpecError("train.device: is set at each node, with fedrelay node --device")
    for line in privacy_warnings(dict(zip(federation.nodes, federation.facts, strict=True)), job.terms):
        log.warning(line)
    if federation.server_test is None and not any(facts.tests for facts in federation.facts):
        raise EngineError(
            "there are no test samples: give the server some (engine.test), or start nodes with --holdout "
            "(and with --share-evaluation, where they have a --roster)"
        )


def _check_asynchronous(job: TrainingJob, experiment: Experiment) -> None:
    """Refuse settings that need to know in advance which clients are visited."""
    why = "when real arrival times decide which clients are visited; set route.mode=sync"
    if experiment.faults or experiment.recovery.deadline is not None:
        setting = "faults" if experiment.faults else "recovery.deadline"
        raise SpecError(f"{setting}: cannot be simulated {why}")
    if any(isinstance(term, ClientLevelPrivacy) and term.max_hops is not None for term in job.terms):
        raise SpecError(f"terms.dp.epsilon: a budget cannot be kept {why}")


def _check_open(federation: RemoteFederation, experiment: Experiment) -> None:
    """Refuse an open run if all nodes decline its hops, because their owners have pinned a roster; name single ones."""
    sealed = [name for name, facts in zip(federation.nodes, federation.facts, strict=True) if facts.sealing is not None]
    advice = "set route.handover=sealed, with a method whose models go through several clients"
    if sealed and len(sealed) == len(federation.nodes):
        raise EngineError(
            f"route.handover: all {len(sealed)} nodes take part in sealed routes only (--roster), and the server would "
            f"read every model of {experiment.method!r} as it is set; {advice}"
        )
    for name in sealed:
        log.warning("node %r takes part in sealed routes only (--roster) and will be skipped; %s", name, advice)


def _check_sealed(federation: RemoteFederation, routes: Sequence[RouteRequirements], experiment: Experiment) -> None:
    """Refuse a sealed run in which some models would be open, or that nodes are not ready for."""
    if tampering := next((fault.what for fault in experiment.faults if fault.what in get_args(Tampering)), None):
        raise SpecError(f"faults: {tampering!r} changes models on the way, and nodes of sealed routes refuse that")
    if any(each.depends_on_arrival_times for each in routes):
        raise SpecError("route.handover: 'sealed' needs to know the next client in advance; set route.mode=sync")
    if not all(each.is_sealed for each in routes):
        raise SpecError(
            "route.handover: 'sealed' does not cover the warm-up, whose models go through the server; remove it"
        )
    for name, facts in zip(federation.nodes, federation.facts, strict=True):
        if facts.sealing is None:
            raise EngineError(
                f"route.handover: node {name!r} has no roster, which 'sealed' needs; start it with --roster"
            )


def _check_data(data: DataSettings) -> None:
    """Refuse settings that distribute samples: every node has its own."""
    for name in ("validation", "holdout"):
        if getattr(data, name):
            raise SpecError(
                f"data.{name}: with engine 'flower' owners decide which samples are kept: fedrelay node --{name}"
            )
    default = DataSettings(name=data.name)
    for name in TableSettings.model_fields:
        at_nodes = name not in ("scaling", "mark_missing")
        if at_nodes and getattr(data.table, name) != getattr(default.table, name):
            why = "every node has its own rows" if name in ("client", "id") else "it is an option of fedrelay node"
            raise SpecError(f"data.table.{name}: has no effect with engine 'flower'; {why}")
    for name in DataSettings.model_fields:
        if name not in ("name", "public", "table") and getattr(data, name) != getattr(default, name):
            raise SpecError(f"data.{name}: has no effect with engine 'flower'; every node has its own samples")
