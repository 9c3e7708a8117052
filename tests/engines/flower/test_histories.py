"""Whatever the wire does to messages: each hop counts once, nothing old is accepted, and the weights are the same."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.damage import cases
from tests.engines.flower.conftest import InProcessNodes
from tests.engines.flower.faulty_wire import FATES, TIMEOUT, FaultyWire, check_history

import fedrelay as fr
from fedrelay.data.open_federation import open_federation
from fedrelay.engines.flower import connect, engine
from fedrelay.engines.flower.engine import FlowerEngine
from fedrelay.engines.flower.server import dispatcher
from fedrelay.engines.flower.server.client_state_versions import ClientStateVersions
from fedrelay.experiment.spec import DataSettings
from fedrelay.routes.plan import Hop

pytest.importorskip("cryptography", reason="the extra 'flower' is not installed")

ROUNDS, CLIENTS = 2, 4
USUAL = {
    "rounds": ROUNDS,
    "batch_size": 128,
    "seed": 3,
    "fraction": 1.0,
    "grouping.max_clients": 2,
    "recovery.timeout": TIMEOUT,
    "recovery.repeats": 0,
    "recovery.min_arrivals": 0.0,
}
RETRY = {"recovery.policy": "retry", "recovery.retries": 20}


@cache
def digits():
    return open_federation(DataSettings(name="digits", clients=CLIENTS, alpha=0.5), 3)


@contextmanager
def on_wire(folder, fates, **kind):
    """Run experiments on nodes behind a wire."""
    nodes = InProcessNodes(digits(), folder, **kind)
    wire = FaultyWire(nodes.connection.services, nodes.restart_one, fates)

    def start(job, experiment, client_states):
        return FlowerEngine(
            job, wire, experiment.recovery, client_states, wait=60.0, poll=0.125, signatures=nodes.signatures
        )

    def noting(method, event):
        def noted(self, *values):
            wire.history.append(event(self, *values))
            return method(self, *values)

        return noted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connect, "open_remote", lambda experiment, plugins=(): nodes.remote)
        patch.setattr(connect, "start_flower", start)
        for module in (dispatcher, engine):
            patch.setattr(module, "time", wire.clock)
        for owner, name, event in (
            (ClientStateVersions, "start_round", lambda self, number: ("round", number)),
            (ClientStateVersions, "accept", lambda self, client, route, id: ("accepted", client, id)),
            (ClientStateVersions, "commit", lambda self: ("committed", self.round)),
        ):
            patch.setattr(owner, name, noting(getattr(owner, name), event))
        yield wire


def run(fates, **more):
    """The result of a run with these fates, and its history."""
    with TemporaryDirectory() as folder, on_wire(Path(folder), fates, signed=True) as wire:
        found = fr.run("fedseq+scaffold", engine="flower", data="nodes", **{**USUAL, **more})
    return found, wire.history


@cache
def undisturbed():
    found, history = run(())
    check_history(history, rounds=ROUNDS, clients=CLIENTS, complete=True)
    return found.weights


@pytest.mark.parametrize("fate", FATES)
def test_one_fault_changes_nothing(fate):
    """Each of them, at the second request; a hop that was lost is asked for again."""
    found, history = run(("fine", "fine", fate), **RETRY)
    check_history(history, rounds=ROUNDS, clients=CLIENTS, complete=True)
    assert torch.equal(found.weights, undisturbed())


@settings(max_examples=len(cases(40)))
@given(st.lists(st.sampled_from(FATES), max_size=10))
@example(["reply very late", "request very late", "superlink lost", "reply replayed", "node dies after", "reply lost"])
def test_any_faults_change_nothing(fates):
    found, history = run(fates, **RETRY)
    check_history(history, rounds=ROUNDS, clients=CLIENTS, complete=True)
    assert torch.equal(found.weights, undisturbed())


@settings(max_examples=len(cases(20)))
@given(st.lists(st.sampled_from(FATES), min_size=1, max_size=10))
def test_hops_that_are_skipped_leave_no_trace(fates):
    """Without retries some hops do not count. No reply to them is accepted later, and no client state follows them."""
    found, history = run(fates)
    check_history(history, rounds=ROUNDS, clients=CLIENTS, complete=False)
    assert torch.isfinite(found.weights).all()


def sealed_weights(fates):
    settings = {**USUAL, **RETRY, "route.handover": "sealed"}
    with TemporaryDirectory() as folder, on_wire(Path(folder), fates, sealed=True):
        return fr.run("fedseq", engine="flower", data="nodes", **settings).weights


@cache
def undisturbed_sealed():
    return sealed_weights(())


@settings(max_examples=len(cases(40)))
@given(st.lists(st.sampled_from([fate for fate in FATES if fate != "node offline"]), min_size=1, max_size=8))
def test_sealed_routes_end_with_the_same_weights(fates):
    """A route goes past a node that is offline when the model is sealed; everything else changes nothing."""
    assert torch.equal(sealed_weights(fates), undisturbed_sealed())


FIRST, SECOND = Hop(1, 0, 0, 0, 0, 2), Hop(1, 0, 1, 1, 0, 2)
GOOD = (
    ("round", 1),
    ("sent", "n00", 5, FIRST, 0),
    ("trained", "n00", 5),
    ("accepted", 0, 5),
    ("sent", "n01", 6, SECOND, 0),
    ("trained", "n01", 6),
    ("accepted", 1, 6),
    ("committed", 1),
    ("round", 2),
    ("sent", "n00", 7, replace(FIRST, round=2), 5),
    ("trained", "n00", 7),
    ("accepted", 0, 7),
    ("sent", "n01", 8, replace(SECOND, round=2), 6),
    ("trained", "n01", 8),
    ("accepted", 1, 8),
    ("committed", 2),
)


def test_the_model_allows_a_good_run():
    check_history(GOOD, rounds=2, clients=2, complete=True)
    repeated = (*GOOD[:2], GOOD[1], *GOOD[2:5], GOOD[2], *GOOD[5:])  # sent twice, trained twice, the second time late
    check_history(repeated, rounds=2, clients=2, complete=True)


@pytest.mark.parametrize(
    ("place", "events"),
    [
        (2, ()),  # accepted without training
        (3, ()),  # a client is missing
        (3, (GOOD[3], GOOD[3])),  # accepted twice
        (1, (("sent", "n00", 5, replace(FIRST, round=2), 0),)),  # of another round
        (9, (("sent", "n00", 7, replace(FIRST, round=2), 0),)),  # from an old state
        (9, (("sent", "n00", 5, replace(FIRST, round=2), 5),)),  # an id that was used
        (11, (("accepted", 0, 5),)),  # the reply of the last round
        (2, (("trained", "n01", 5),)),  # by another node
        (3, (("accepted", 1, 5),)),  # for another client
        (7, ()),  # a round is left out
        (15, ()),  # the last round is not committed
    ],
)
def test_the_model_refuses_what_may_not_happen(place, events):
    with pytest.raises((AssertionError, KeyError)):
        check_history((*GOOD[:place], *events, *GOOD[place + 1 :]), rounds=2, clients=2, complete=True)


def test_the_model_refuses_hops_out_of_order():
    swapped = (*GOOD[:1], *GOOD[4:7], *GOOD[1:4], *GOOD[7:])
    with pytest.raises(AssertionError):
        check_history(swapped, rounds=2, clients=2, complete=True)
