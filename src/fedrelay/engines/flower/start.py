"""How a federation of nodes is opened: who belongs to it, what they hold, and what cannot be done with them."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import torch
from pydantic import ValidationError

from fedrelay.data.federation import Samples
from fedrelay.data.own_samples import held, read_samples
from fedrelay.engines.base import Engine, RouteTraits
from fedrelay.engines.flower import check_installed
from fedrelay.engines.flower.engine import FlowerEngine
from fedrelay.engines.flower.messages import Message, one_line, travels
from fedrelay.engines.flower.server.connection import Connection
from fedrelay.engines.flower.server.dispatcher import Dispatcher, Request
from fedrelay.engines.flower.server.node_warnings import node_warnings, privacy_warnings
from fedrelay.engines.flower.server.remote_federation import (
    NodeFacts,
    RemoteFederation,
    facts_from,
    only_public_above,
    remote_part,
)
from fedrelay.errors import EngineError, SpecError
from fedrelay.experiment.spec import DataSettings, Experiment
from fedrelay.experiment.spec import EngineSettings as Wanted
from fedrelay.files import write_atomically
from fedrelay.local.client_state import ClientStateStore
from fedrelay.local.terms.dp import Dp
from fedrelay.local.trainer import TrainingJob

log = logging.getLogger(__name__)

KNOWN = "known"
"""The folder in which the server keeps what nodes have told, for times when one is away."""


def start_flower(job: TrainingJob, experiment: Experiment, client_states: ClientStateStore | None) -> Engine:
    """The engine, connected."""
    wanted = experiment.engine
    return FlowerEngine(job, open_connection(wanted), experiment.recovery, client_states, wait=wanted.wait)


def open_connection(wanted: Wanted) -> Connection:
    """A run at the SuperLink."""
    check_installed()
    from fedrelay.engines.flower.identity import CA, SECRET, authority, public_keys, read
    from fedrelay.engines.flower.wire import FlowerConnection

    folder = folder_of(wanted)
    trusted, secret = authority(folder / CA), read(folder / SECRET, "the secret")
    return FlowerConnection(wanted.superlink, trusted, secret, public_keys(folder), wait=wanted.wait)


def open_remote(experiment: Experiment) -> RemoteFederation:
    """Ask all nodes what they hold. Of a node that is away, what it said the last time counts."""
    wanted = experiment.engine
    check_installed()
    from fedrelay.engines.flower.identity import public_keys

    _check_data(experiment.data)
    folder = folder_of(wanted)
    names = tuple(public_keys(folder))
    with closing(open_connection(wanted)) as connection:
        facts = gathered(connection, names, remembered(folder, names), wanted.wait)
    for name, each in facts.items():
        (folder / KNOWN).mkdir(mode=0o700, exist_ok=True)
        write_atomically(folder / KNOWN / f"{name}.json", each.model_dump_json().encode())
    for line in node_warnings(facts):
        log.warning(line)
    test = own_test(wanted.test) if wanted.test is not None else None
    return RemoteFederation(experiment.data.name, names, tuple(facts[name] for name in names), test)


def gathered(
    connection: Connection, names: tuple[str, ...], known: Mapping[str, NodeFacts], wait: float
) -> dict[str, NodeFacts]:
    """What every node holds: asked until all have answered or the patience is over."""
    found: dict[str, NodeFacts] = {}
    reasons = dict.fromkeys(names, "not there")
    began = time.monotonic()
    while True:
        missing = [place for place, name in enumerate(names) if name not in found]
        for _ in Dispatcher(connection, names, min(10.0, max(1.0, wait))).run(
            who(names, place, found, reasons) for place in missing
        ):
            pass
        away = [name for name in names if name not in found]
        if not away or time.monotonic() - began >= wait:
            break
        time.sleep(0.5)
    for name in away:
        if name not in known:
            raise EngineError(
                f"node {name!r} has not said yet what it holds ({reasons[name]}); start it, or take its key out of "
                "the folder 'nodes'"
            )
        log.warning("node %r is away (%s); it is used when it is back", name, reasons[name])
    return {name: found.get(name) or known[name] for name in names}


def who(names: tuple[str, ...], place: int, found: dict[str, NodeFacts], reasons: dict[str, str]) -> Request:
    """Ask a node what it holds."""

    def answered(answer: Message, seconds: float) -> None:
        try:
            found[names[place]] = facts_from(answer.header)
        except ValidationError as error:
            first = error.errors()[0]
            reasons[names[place]] = one_line(f"its facts cannot be read: {first['loc']} {first['msg']}")

    def failed(reason: str) -> None:
        reasons[names[place]] = reason

    return Request(place, lambda: Message({"kind": "who"}), answered, failed)


def own_test(path: Path) -> Samples:
    """The server's own test samples: those a file keeps for testing, or all of it."""
    arrays = read_samples(str(path))
    if "x_test" in arrays:
        return held(arrays).test
    return held({"x": arrays["x"], "y": arrays["y"]}).samples(0)


def check_flower(job: TrainingJob, experiment: Experiment, ways: Sequence[RouteTraits] = ()) -> None:
    """Refuse what needs samples of others, or what is only simulated."""
    if remote_part(job.federation) is None:
        raise EngineError("engine.name: 'flower' works on the nodes' data, not on data of your own in Python")
    if not only_public_above(job.federation):
        raise EngineError(
            f"method {experiment.method!r}: needs the samples of several clients in one place; with engine 'flower' "
            "they stay at the nodes"
        )
    for setting in filter(None, (way.needs_client_samples for way in ways)):
        raise SpecError(f"{setting} needs the samples of every client at the server; with engine 'flower' they stay")
    if any(way.asynchronous for way in ways):
        _check_race(job, experiment)
    if experiment.eval.forgetting:
        raise SpecError("eval.forgetting: asks one client about another's samples, which engine 'flower' does not have")
    if experiment.attack.name != "none":
        raise SpecError("attack.name: attacks are simulated; engine 'flower' works with what nodes really hold")
    if experiment.recovery.policy not in ("skip", "retry"):
        policy = experiment.recovery.policy
        raise SpecError(f"recovery.policy: {policy!r} is for simulated faults; engine 'flower' knows skip and retry")
    if not travels(job.layout):
        raise SpecError(f"model: weights of type {job.layout.dtype} cannot be sent to nodes; float32 can")
    if torch.device(experiment.train.device).type != "cpu":
        raise SpecError("train.device: is said to each node, with fedrelay node --device")
    _check_judges(job)


def _check_race(job: TrainingJob, experiment: Experiment) -> None:
    """Refuse what needs to know beforehand who is visited."""
    how = "where real times of arrival decide who is visited; set route.mode=sync"
    if experiment.faults or experiment.recovery.deadline is not None:
        setting = "faults" if experiment.faults else "recovery.deadline"
        raise SpecError(f"{setting}: cannot be simulated {how}")
    if any(isinstance(term, Dp) and term.most_visits is not None for term in job.terms):
        raise SpecError(f"terms.dp.epsilon: a budget cannot be kept {how}")


def _check_judges(job: TrainingJob) -> None:
    federation = remote_part(job.federation)
    assert federation is not None
    for line in privacy_warnings(dict(zip(federation.nodes, federation.facts, strict=True)), job.terms):
        log.warning(line)
    if federation.own_test is None and not any(facts.tests for facts in federation.facts):
        raise EngineError(
            "nobody can judge the model: give the server test samples (engine.test), or start nodes with --hold-out"
        )


def folder_of(wanted: Wanted) -> Path:
    """The server's folder."""
    if wanted.folder is None:
        raise SpecError("engine.folder: is required with engine 'flower'; `fedrelay certificates FOLDER` makes one")
    folder = wanted.folder.expanduser()
    if not folder.is_dir():
        raise SpecError(f"engine.folder: there is no folder {folder}; `fedrelay certificates {folder}` makes one")
    return folder


def _check_data(data: DataSettings) -> None:
    """Settings that say how samples are dealt out have no effect where everybody has their own."""
    usual = DataSettings(name=data.name)
    for name in DataSettings.model_fields:
        if name not in ("name", "public") and getattr(data, name) != getattr(usual, name):
            raise SpecError(f"data.{name}: has no effect with engine 'flower'; every node has its own samples")


def remembered(folder: Path, names: tuple[str, ...]) -> dict[str, NodeFacts]:
    """What nodes have told before."""
    found = {}
    for name in names:
        path = folder / KNOWN / f"{name}.json"
        if path.is_file():
            try:
                found[name] = NodeFacts.model_validate_json(path.read_bytes())
            except ValidationError:
                log.warning("%s: cannot be read and is not used", path)
    return found
