"""A node that loses its power: it forgets nothing that it has told the server, and no privacy that was spent."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from tests.power_loss import recorded, write_tree

from fedrelay.engines.flower.node.client_state_files import ClientStateFiles
from fedrelay.engines.flower.node.outbox import Outbox
from fedrelay.engines.flower.node.owner_privacy_policy import OwnerPrivacyPolicy, PrivacyBudget
from fedrelay.engines.flower.node.reply_cache import ReplyCache, digest
from fedrelay.engines.flower.node.service import NodeService
from fedrelay.errors import EngineError
from fedrelay.files import make_folder
from fedrelay.local.terms.client_level_privacy import ClientLevelPrivacy
from fedrelay.local.terms.drift_penalty import DriftPenalty
from fedrelay.privacy.accountant import Accountant

FIRST = 100
"""The id of the first request; each request names the version of the client state that the one before has left."""


POLICY = OwnerPrivacyPolicy(1.0)


def budget(place):
    return PrivacyBudget(place, POLICY, 20.0, 1e-5)


@pytest.fixture
def node(tmp_path, ask, monkeypatch):
    """The disk of a node that has answered three requests with noise, and has chosen how each model leaves it.

    It has promised the requests and replies.
    """
    monkeypatch.setattr(Accountant, "max_hops", lambda accountant, epsilon: 50)  # to count them takes long
    job = ask.job(DriftPenalty(), ClientLevelPrivacy(noise=3))
    with recorded(tmp_path / "disk") as disk:
        place = tmp_path / "disk" / "a.key.node"
        make_folder(place, mode=0o700)
        service = NodeService(job.federation, place, policy=POLICY, budget=budget(place))
        for round in (1, 2, 3):
            version = FIRST + round - 1 if round > 1 else 0
            request = ask.hop(
                job, hop=[round, 0, 0, 5, 0, 1], request=FIRST + round, state=version, oldest_needed=version
            )
            reply = service.answer(request)
            Outbox(service.state_files).choose_departure(f"{round:064x}", "sealed")
            disk.promise((request, reply))
    return disk


def what_is_wrong(place, run, promised):
    """What a node that starts again has forgotten."""
    try:
        if budget(place).spent < len(promised):
            return f"{len(promised)} replies were sent, but not all are charged"
        if not promised:
            return ""
        states, (request, reply) = ClientStateFiles(place / "states"), promised[-1]
        states.get(run, request.header["request"], (), ())
    except EngineError as error:
        return str(error)
    again = ReplyCache(states).get(run, digest(request))
    if again is None or not np.array_equal(again.arrays["models"], reply.arrays["models"]):
        return "the same request would get other noise"
    try:
        Outbox(states).choose_departure(f"{len(promised):064x}", "in the clear")
    except EngineError:
        return ""
    return "a sealed model may leave in the clear"


def problems(disk, run, place, ignored=lambda node: False):
    for when, tree in disk.crashes(60, ignored=ignored):
        write_tree(tree, place)
        if found := what_is_wrong(place / "a.key.node", run, disk.promised(when)):
            yield f"after {when} of {len(disk.operations)} operations: {found}"
        shutil.rmtree(place)


def test_a_node_forgets_nothing_that_it_has_told(node, ask, tmp_path):
    assert len(node.promised(len(node.operations))) == 3
    assert list(problems(node, ask.run, tmp_path / "left")) == []
    for kind in (lambda number: number in node.folders, lambda number: number not in node.folders):
        assert next(problems(node, ask.run, tmp_path / "lying", ignored=kind), "") != "", "the test notices nothing"
        shutil.rmtree(tmp_path / "lying")
